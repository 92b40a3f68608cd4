//! The committer: the one thread that writes.
//!
//! Owns group commit. It takes everything that is queued, writes one block, syncs once and
//! tells everybody; while it syncs, the next group queues up. It also moves journals to
//! segments beside that, and keeps the high-water mark. After the first error it writes
//! nothing more.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::block::Items;
use super::database::{Database, MAX_UNSYNCED, Write, cost};
use super::files::{self, Lock, Mark, MarkFile};
use super::keys::{Key, cut};
use super::ledger::{BlockInfo, Ledger, Plan};
use super::reads;
use super::shared::{Op, Phase, Reply, Shared, Work};
use super::table::{Live, Table};
use crate::ids::RunId;
use crate::store::{Creation, Durability, Epoch, NewRun, RunHeader, RunState, StoreResult};

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

/// What is told to whom once a commit is durable.
enum Answer {
    Done(Reply<()>),
    Creation(Reply<Creation>, Creation),
}

/// One commit in the making.
#[derive(Default)]
struct Group {
    items: Items,
    answers: Vec<Answer>,
    changes: Vec<Change>,
    info: BlockInfo,
    synced: bool,
    created: HashMap<RunId, RunHeader>,
}

/// A change of the table, made visible once the commit is durable.
enum Change {
    Created(RunHeader, bytes::Bytes),
    Appended(crate::store::Append),
    Parked(RunId, RunState),
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
        let outcome = self.work();
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
        let gathered = gather(&shared, database, ops, &mut group);
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

/// Turns what was queued into items and answers.
fn gather(
    shared: &Shared,
    database: &Database,
    ops: Vec<Op>,
    group: &mut Group,
) -> StoreResult<()> {
    let mut failed = None;
    for op in ops {
        group.synced |= op.durability() == Durability::Synced;
        match op {
            Op::Create(run, reply) => match group.create(shared, database, &run) {
                Ok(creation) => group.answers.push(Answer::Creation(reply, creation)),
                Err(error) => {
                    // The group fails as a whole, and this call with it.
                    let _ = reply.send(Err(error.clone()));
                    failed.get_or_insert(error);
                }
            },
            Op::Append(append, reply) => {
                group
                    .items
                    .appended(append.run, append.first_seq, &append.frames, append.end);
                group.count(append.run, append.frames.len());
                group.changes.push(Change::Appended(append));
                group.answers.push(Answer::Done(reply));
            }
            Op::Park(run, parking, reply) => {
                group.items.parked(run, parking.as_ref());
                group.count(run, 1);
                let state = parking.map_or(RunState::Active, RunState::Parked);
                group.changes.push(Change::Parked(run, state));
                group.answers.push(Answer::Done(reply));
            }
            Op::Barrier(reply) => group.answers.push(Answer::Done(reply)),
        }
    }
    failed.map_or(Ok(()), Err)
}

impl Group {
    /// Adds a creation, unless the id is taken: in memory, in this group, or long ago.
    fn create(
        &mut self,
        shared: &Shared,
        database: &Database,
        run: &NewRun,
    ) -> StoreResult<Creation> {
        let id = run.header.run;
        let exists = |header: RunHeader| Ok(Creation::Exists(Box::new(header)));
        if let Some(live) = shared.lock().table.runs.get(&id) {
            return exists(live.header.clone());
        }
        if let Some(ended) = reads::ended_run(database, id)? {
            return exists(ended.header);
        }
        match self.created.entry(id) {
            Entry::Occupied(taken) => return exists(taken.get().clone()),
            Entry::Vacant(free) => {
                free.insert(run.header.clone());
            }
        }
        self.items.created(&run.header, &run.first);
        self.count(id, 1);
        self.changes
            .push(Change::Created(run.header.clone(), run.first.clone()));
        Ok(Creation::Created(Epoch::FIRST))
    }

    /// Counts what the block holds of a run.
    fn count(&mut self, run: RunId, things: usize) {
        let things = u32::try_from(things).expect("an append has few frames");
        self.info.live += things;
        self.info.total += things;
        if self.info.runs.last() != Some(&run) {
            self.info.runs.push(run);
        }
    }
}

impl Change {
    /// Applies the change and returns the run.
    fn apply(self, table: &mut Table, commit: u64) -> Option<&mut Live> {
        let run = match self {
            Self::Created(header, first) => {
                let run = header.run;
                let mut live = Live::new(header);
                live.next_seq = 1;
                live.push(first, commit);
                table.insert(live);
                run
            }
            Self::Appended(append) => {
                let live = table.runs.get_mut(&append.run)?;
                for frame in append.frames {
                    live.push(frame, commit);
                }
                if let Some(end) = append.end {
                    live.header.state = RunState::Ended(end);
                }
                append.run
            }
            Self::Parked(run, state) => {
                let live = table.runs.get_mut(&run)?;
                live.header.state = state;
                live.parked_in.push(commit);
                run
            }
        };
        table.runs.get_mut(&run)
    }
}

impl Answer {
    fn send(self) {
        // Whoever dropped the future does not want to know.
        let _ = match self {
            Self::Done(reply) => reply.send(Ok(())).is_err(),
            Self::Creation(reply, creation) => reply.send(Ok(creation)).is_err(),
        };
    }

    fn fail(self, error: crate::store::StoreError) {
        let _ = match self {
            Self::Done(reply) => reply.send(Err(error)).is_err(),
            Self::Creation(reply, _) => reply.send(Err(error)).is_err(),
        };
    }
}
