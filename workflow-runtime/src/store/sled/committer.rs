//! The committer: the one thread that writes the log.
//!
//! Owns group commit. It takes everything that is queued, writes one block, syncs once and
//! tells everybody; while it syncs, the next group queues up. It also keeps the high-water
//! mark, and lets go of everything at the end. It never waits for the database, except to ask
//! for what a queued write depends on and memory does not know: whether the id of a new run is
//! taken, what a guarded note says, whether the recipient of a letter sleeps. After the first
//! error it writes nothing more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::archiver::Archiver;
use super::block::{Chain, Facts};
use super::change::Written;
use super::database::{Database, corrupt, io_error};
use super::files::{self, Lock, Mark, MarkFile};
use super::group::Group;
use super::log::{self, Log};
use super::op::Op;
use super::segment::{Archive, Tombstone};
use super::shared::{Phase, Shared, Spare, Work};
use crate::id_map::IdMap;
use crate::ids::RunId;
use crate::store::StoreResult;

/// How often the high-water mark is written at most. What it cannot see is the loss of the
/// commits since.
pub(super) const MARK_EVERY: Duration = Duration::from_secs(1);

/// The log's next file is prepared once the present one has this many blocks. A store that
/// is opened for a look needs none, and large blocks, which fill a file with fewer, gain
/// nothing from it.
const SPARE_AFTER: u64 = 64;

/// What the committer begins with.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) log: Log,
    /// The newest commit and its chain value.
    pub(super) commit: u64,
    pub(super) chain: Chain,
    pub(super) archive: Archive,
    /// Deleted runs of which the log may still tell.
    pub(super) deleted: IdMap<RunId, Tombstone>,
    pub(super) mark_file: MarkFile,
    pub(super) lock: Lock,
}

/// The committer's own state.
#[derive(Debug)]
pub(super) struct Committer {
    shared: Arc<Shared>,
    log: Log,
    commit: u64,
    chain: Chain,
    group: Group,
    archiver: Option<JoinHandle<()>>,
    mark_file: MarkFile,
    lock: Lock,
    /// The newest synced commit is in the mark file.
    marked: bool,
    marked_at: Instant,
    /// Blocks in the present file, as far as this process wrote them.
    blocks_in_file: u64,
    spare_is_ready: bool,
    /// Whether the store is known to be of this format.
    is_raised: bool,
}

impl Committer {
    /// Starts the archiver, and prepares to commit.
    pub(super) fn new(shared: Arc<Shared>, beginning: Beginning) -> StoreResult<Self> {
        let Beginning { log, archive, .. } = &beginning;
        let archiver = Archiver::new(
            Arc::clone(&shared),
            log.file_size(),
            *archive,
            &beginning.deleted,
        )?;
        let archiver = std::thread::Builder::new()
            .name("workflow-archiver".to_owned())
            .spawn(move || archiver.run())
            .map_err(|error| io_error("starting the archiver of", &shared.directory, &error))?;
        Ok(Self {
            shared,
            log: beginning.log,
            commit: beginning.commit,
            chain: beginning.chain,
            group: Group::default(),
            archiver: Some(archiver),
            mark_file: beginning.mark_file,
            lock: beginning.lock,
            marked: true,
            marked_at: Instant::now(),
            blocks_in_file: 0,
            spare_is_ready: false,
            is_raised: false,
        })
    }

    /// Works until the store is closed, dropped or broken; then lets go of everything.
    pub(super) fn run(mut self) {
        // A bug in here must not leave anybody waiting for ever.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.work()))
            .unwrap_or_else(|_| Err(corrupt("the committer".to_owned(), "it panicked")));
        if let Err(error) = &outcome {
            self.shared.fail(error);
        }
        self.stop_archiver();
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
        let mut ops = Vec::new();
        loop {
            let idle_at = (!self.marked).then(|| self.marked_at + MARK_EVERY);
            match self.shared.next_work(idle_at, &mut ops) {
                Work::Commit => self.commit(&mut ops)?,
                Work::Refuse(strays) => {
                    for (run, ack) in strays {
                        ack.send(Err(self.shared.refusal(run)));
                    }
                }
                Work::Idle => {}
                Work::Stop { clean } => return self.stop(clean),
            }
            if !self.marked && self.marked_at.elapsed() >= MARK_EVERY {
                self.mark()?;
            }
        }
    }

    fn stop_archiver(&mut self) {
        self.shared.stop_archiver();
        if let Some(archiver) = self.archiver.take() {
            // Its panics were caught and reported; here only its end matters.
            let _ = archiver.join();
        }
    }

    fn stop(&mut self, clean: bool) -> StoreResult<()> {
        if clean {
            self.leave_log_behind()?;
        }
        self.stop_archiver();
        if !clean || matches!(self.shared.lock().phase, Phase::Failed(_)) {
            return Ok(());
        }
        let guard = self.shared.database();
        let Some(database) = guard.as_ref() else {
            return Ok(());
        };
        database.put_down()?;
        drop(guard);
        self.mark()?;
        log::remove_spare(&log::directory(&self.shared.directory))?;
        files::mark_clean(&self.shared.directory)
    }

    /// Begins a new file of the log if nearly all before it was forgotten, and has the rest archived: what a run
    /// that begins anew again and again leaves in the log is not read by the next open.
    fn leave_log_behind(&mut self) -> StoreResult<()> {
        if !self.shared.lock().ledger.is_hardly_needed() {
            return Ok(());
        }
        self.group.draft.clear(0);
        let commit = self.commit + 1;
        // There always is a newest block, as in a new store.
        let (block, chain) = self.group.draft.seal(&self.chain, commit, self.facts());
        self.log.begin_next(commit, None)?;
        self.log.append(block)?;
        let bytes = block.len();
        self.commit = commit;
        self.chain = chain;
        self.sync()?;
        self.publish(Some(bytes));
        self.shared.have_archiver_finish();
        Ok(())
    }

    /// Writes the high-water mark: the newest commit is synced.
    fn mark(&mut self) -> StoreResult<()> {
        self.sync()?;
        let guard = self.shared.database();
        let Some(database) = guard.as_ref() else {
            return Ok(());
        };
        let mark = Mark {
            commit: self.commit,
            chain: self.chain,
            archive: self.shared.archived.load(Ordering::Acquire),
            db_len: database.file_len()?,
        };
        drop(guard);
        self.mark_file.write(&mark)?;
        self.marked = true;
        self.marked_at = Instant::now();
        Ok(())
    }

    fn sync(&mut self) -> StoreResult<()> {
        self.log.sync()?;
        let syncs = &self.shared.counters.syncs;
        syncs.fetch_add(1, Ordering::Relaxed);
        self.shared.synced.fetch_max(self.commit, Ordering::AcqRel);
        Ok(())
    }

    /// Makes one group durable and tells everybody in it.
    fn commit(&mut self, ops: &mut Vec<Op>) -> StoreResult<()> {
        let shared = Arc::clone(&self.shared);
        let writes = ops.len() as u64;
        let gathered = self.group.gather(&shared, ops);
        match gathered.and_then(|()| self.write()) {
            Ok(bytes) => {
                let counters = &shared.counters;
                counters.writes.fetch_add(writes, Ordering::Relaxed);
                counters.commits.fetch_add(1, Ordering::Relaxed);
                let len = bytes.unwrap_or_default() as u64;
                counters.bytes.fetch_add(len, Ordering::Relaxed);
                self.publish(bytes);
                self.group.tell();
                Ok(())
            }
            Err(error) => {
                // First nothing more is taken, then those in the group hear why.
                shared.fail(&error);
                self.group.refuse(&shared.lock().stopped());
                Err(error)
            }
        }
    }

    /// Writes the group's block, and returns how long it is. `None` if it needs none.
    fn write(&mut self) -> StoreResult<Option<usize>> {
        let synced = self.group.synced;
        if self.group.draft.is_empty() {
            if synced {
                // Blocks before it may not have been synced.
                self.sync()?;
                self.marked = false;
            }
            return Ok(None);
        }
        if self.group.dozes && !self.is_raised {
            files::raise_format(&self.shared.directory)?;
            self.is_raised = true;
        }
        let commit = self.commit + 1;
        let (block, chain) = self.group.draft.seal(&self.chain, commit, self.facts());
        if self.log.wants_next(block.len(), self.spare_is_ready) {
            let spare = self.shared.take_spare();
            self.spare_is_ready = false;
            self.blocks_in_file = 0;
            self.log.begin_next(commit, spare)?;
        }
        self.log.append(block)?;
        let bytes = block.len();
        self.commit = commit;
        self.chain = chain;
        self.blocks_in_file += 1;
        if synced {
            self.sync()?;
            self.marked = false;
        }
        Ok(Some(bytes))
    }

    /// What is known to be on the disk.
    fn facts(&self) -> Facts {
        Facts {
            archive: self.shared.archived.load(Ordering::Acquire),
            synced: self.shared.synced.load(Ordering::Acquire),
        }
    }

    /// Makes a durable commit visible. Without bytes no block was needed for it.
    fn publish(&mut self, bytes: Option<usize>) {
        let pinned = self.group.judge.unpin();
        if bytes.is_none() && self.group.changes.is_empty() && pinned.is_empty() {
            return;
        }
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        let (table, ledger) = (&mut state.table, &mut state.ledger);
        if let Some(bytes) = bytes
            && ledger.enter_block(self.commit, self.log.first(), bytes)
        {
            state.log_file = self.log.file().clone();
        }
        let block = Written {
            commit: self.commit,
            at: self.log.position() - bytes.unwrap_or_default() as u64,
        };
        for change in self.group.changes.drain(..) {
            change.apply(table, ledger, block);
        }
        for run in pinned {
            if let Some(live) = table.runs.get_mut(&run) {
                live.pins -= 1;
                ledger.look_at(live, 0);
            }
        }
        ledger.sweep(table);
        if self.blocks_in_file == SPARE_AFTER && matches!(state.spare, Spare::None) {
            state.spare = Spare::Wanted;
        }
        self.spare_is_ready = matches!(state.spare, Spare::Ready(_));
        let wake = state.archiver_has_work();
        drop(guard);
        if wake {
            self.shared.wake_archiver();
        }
    }
}
