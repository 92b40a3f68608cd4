//! The committer: the one thread that writes.
//!
//! Owns group commit. It takes everything that is queued, writes one block, syncs once and
//! tells everybody; while it syncs, the next group queues up. It also moves journals to
//! segments beside that, and keeps the high-water mark. After the first error it writes
//! nothing more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::database::{Database, MAX_UNSYNCED, Write, corrupt, cost};
use super::files::{self, Lock, Mark, MarkFile};
use super::group::Group;
use super::keys::{Key, cut};
use super::ledger::{Ledger, Plan};
use super::shared::{Op, Phase, Shared, Work};
use crate::store::StoreResult;

/// How often the high-water mark is written at most. What it cannot see is the loss of the
/// commits since.
const MARK_EVERY: Duration = Duration::from_secs(1);

/// How long nobody must have asked for anything before the committer tidies up by itself.
const IDLE_AFTER: Duration = Duration::from_millis(20);

/// The committer's own state.
#[derive(Debug)]
pub(super) struct Committer {
    pub(super) shared: Arc<Shared>,
    pub(super) ledger: Ledger,
    pub(super) mark_file: MarkFile,
    pub(super) lock: Lock,
    /// The newest synced commit is in the mark file.
    marked: bool,
    marked_at: Instant,
    /// Bytes handed over since the last sync.
    unsynced: usize,
}

impl Committer {
    pub(super) fn new(
        shared: Arc<Shared>,
        ledger: Ledger,
        mark_file: MarkFile,
        lock: Lock,
    ) -> Self {
        Self {
            shared,
            ledger,
            mark_file,
            lock,
            marked: true,
            marked_at: Instant::now(),
            unsynced: 0,
        }
    }

    /// Works until the store is closed, dropped or broken; then lets go of everything.
    pub(super) fn run(mut self) {
        // A bug in here must not leave anybody waiting for ever.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.work()))
            .unwrap_or_else(|_| Err(corrupt("the committer".to_owned(), "it panicked")));
        if let Err(error) = &outcome {
            self.shared.fail(error);
        }
        let Self { shared, lock, .. } = self;
        let closed = shared.take_database().map_or(Ok(()), Database::close);
        drop(lock);
        let outcome = outcome.and(closed);
        let mut state = shared.lock();
        if matches!(state.phase, Phase::Closing { .. }) {
            state.phase = Phase::Closed;
        }
        let outcome = match state.phase {
            Phase::Failed(_) => Err(state.stopped()),
            _ => outcome,
        };
        drop(state);
        shared.closed.send_replace(Some(outcome));
    }

    fn work(&mut self) -> StoreResult<()> {
        loop {
            match self.shared.next_work(self.idle_at()) {
                Work::Commit(ops) => self.commit(ops)?,
                Work::Idle => self.idle()?,
                Work::Stop { clean } => return self.stop(clean),
            }
            while self.ledger.is_behind() {
                self.commit(Vec::new())?;
            }
            if !self.marked && self.marked_at.elapsed() >= MARK_EVERY {
                self.mark()?;
            }
        }
    }

    /// Says when there is something to do that nobody asks for.
    fn idle_at(&self) -> Option<Instant> {
        if self.ledger.has_idle_work() {
            return Some(Instant::now() + IDLE_AFTER);
        }
        (!self.marked).then(|| self.marked_at + MARK_EVERY)
    }

    fn idle(&mut self) -> StoreResult<()> {
        if self.ledger.has_idle_work() {
            self.commit(Vec::new())?;
        }
        Ok(())
    }

    fn stop(&mut self, clean: bool) -> StoreResult<()> {
        let guard = self.shared.database();
        let Some(database) = guard.as_ref() else {
            return Ok(());
        };
        if !clean {
            return Ok(());
        }
        database.flush()?;
        database.sync()?;
        drop(guard);
        self.mark()?;
        files::mark_clean(&self.shared.directory)
    }

    /// Writes the high-water mark: the newest commit is synced.
    fn mark(&mut self) -> StoreResult<()> {
        let guard = self.shared.database();
        let Some(database) = guard.as_ref() else {
            return Ok(());
        };
        if self.unsynced > 0 {
            database.sync()?;
            self.unsynced = 0;
        }
        let mark = Mark {
            commit: self.ledger.next_commit - 1,
            chain: self.ledger.chain,
            db_len: database.file_len()?,
        };
        drop(guard);
        self.mark_file.write(&mark)?;
        self.marked = true;
        self.marked_at = Instant::now();
        Ok(())
    }

    /// Makes one group durable and tells everybody in it.
    fn commit(&mut self, ops: Vec<Op>) -> StoreResult<()> {
        let shared = Arc::clone(&self.shared);
        let guard = shared.database();
        let database = guard.as_ref().expect("only this thread takes it away");
        let nothing_to_write = ops.iter().all(|op| matches!(op, Op::Barrier(_)));
        let mut group = Group::default();
        let gathered = group.gather(&shared, database, ops);
        let written = match gathered {
            Ok(()) if nothing_to_write && !self.ledger.has_idle_work() => Ok(None),
            Ok(()) => self.write(database, &mut group).map(Some),
            Err(error) => Err(error),
        };
        match written {
            Ok(plan) => {
                if let Some(plan) = plan {
                    self.publish(&shared, &mut group, plan);
                }
                for answer in group.answers {
                    answer.send();
                }
                Ok(())
            }
            Err(error) => {
                // First nothing more is taken, then those in the group hear why.
                shared.fail(&error);
                for answer in group.answers {
                    answer.fail(error.clone());
                }
                Err(error)
            }
        }
    }

    /// Writes the group's block, and what is archived with it.
    fn write(&mut self, database: &Database, group: &mut Group) -> StoreResult<Plan> {
        let mut plan = self.ledger.plan(&self.shared.lock().table);
        let commit = self.ledger.next_commit;
        let items = std::mem::take(&mut group.items);
        let (block, chain) = items.seal(&self.ledger.chain, commit, &self.ledger.totals);
        group.info.bytes = block.len();
        let key = Key::block(commit);
        let mut early = std::mem::take(&mut plan.segments);
        let mut last = std::mem::take(&mut plan.atomic);
        let mut pieces = cut(&block).into_iter();
        // The first piece says how many there are; a block without it was never finished.
        let first = pieces.next().expect("there is always a first piece");
        last.push((key.piece(0), Some(first)));
        group.info.pieces = 1;
        for piece in pieces {
            early.push((key.piece(group.info.pieces), Some(piece)));
            group.info.pieces += 1;
        }
        self.hand_over(database, early, last)?;
        if group.synced {
            database.sync()?;
            self.unsynced = 0;
            self.marked = false;
        }
        self.ledger.chain = chain;
        self.ledger.next_commit += 1;
        Ok(plan)
    }

    /// Hands writes to sled: `last` in one batch, `early` with it if there is room.
    fn hand_over(
        &mut self,
        database: &Database,
        early: Vec<Write>,
        mut last: Vec<Write>,
    ) -> StoreResult<()> {
        let mut bytes: usize = last.iter().map(cost).sum();
        let mut ahead = Vec::new();
        let mut ahead_bytes = 0;
        for write in early {
            let weight = cost(&write);
            if bytes + weight <= MAX_UNSYNCED {
                bytes += weight;
                last.push(write);
                continue;
            }
            if ahead_bytes + weight > MAX_UNSYNCED {
                let full = std::mem::take(&mut ahead);
                self.apply(database, full, ahead_bytes)?;
                ahead_bytes = 0;
            }
            ahead_bytes += weight;
            ahead.push(write);
        }
        if !ahead.is_empty() {
            self.apply(database, ahead, ahead_bytes)?;
        }
        self.apply(database, last, bytes)
    }

    fn apply(&mut self, database: &Database, writes: Vec<Write>, bytes: usize) -> StoreResult<()> {
        if self.unsynced + bytes > MAX_UNSYNCED && self.unsynced > 0 {
            database.sync()?;
            self.unsynced = 0;
        }
        database.apply(writes)?;
        database.flush()?;
        self.unsynced += bytes;
        Ok(())
    }

    /// Makes a durable commit visible.
    fn publish(&mut self, shared: &Shared, group: &mut Group, plan: Plan) {
        let commit = self.ledger.next_commit - 1;
        let mut state = shared.lock();
        let table = &mut state.table;
        Ledger::archived(plan, table);
        self.ledger.enter(commit, std::mem::take(&mut group.info));
        for change in group.changes.drain(..) {
            if let Some(live) = change.apply(table, commit)
                && live.wants_archiving()
            {
                self.ledger.enqueue(live);
            }
        }
        self.ledger.sweep(table);
    }
}
