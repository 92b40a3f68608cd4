//! What the handles of a store, its committer and its archiver share: the table, the queue,
//! the ledger, the end.
//!
//! Owns the one lock of the store. It is held for look-ups and queuing only, never while
//! anything is written or synced.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::change;
use super::database::{Database, corrupt};
use super::deletions::Deletion;
use super::doze::{self, Place, Slumber};
use super::inbox::{Arrival, Inbox};
use super::ledger::{Due, Ledger};
use super::log::LogFile;
use super::op::Op;
use super::queue::Queue;
use super::reads;
use super::table::Table;
use crate::ids::RunId;
use crate::store::{AckSender, StoreError, StoreResult};

/// Whether the store takes calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// It was closed, or its last handle was dropped: what is queued is still written.
    Closing {
        clean: bool,
    },
    Closed,
    Failed(String),
}

/// What is behind the lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) table: Table,
    pub(super) phase: Phase,
    pub(super) ledger: Ledger,
    /// The file of the log that holds the newest commit of the table.
    pub(super) log_file: LogFile,
    pub(super) spare: Spare,
    queue: Queue,
    /// Appends to runs that are not in memory: the database says why they are refused.
    strays: Vec<(RunId, AckSender)>,
    /// The buffer that the inbox is emptied into.
    arrivals: Vec<Arrival>,
    /// Whether the committer waits to be woken.
    sleeping: bool,
    archiver: Resting,
    archiver_stops: bool,
    /// Whether it first archives what is in line.
    archiver_finishes: bool,
    pub(super) deletions: VecDeque<Deletion>,
}

/// The file that will be the log's next one.
#[derive(Debug)]
pub(super) enum Spare {
    None,
    Wanted,
    /// The archiver prepares it.
    InTheMaking,
    Ready(File),
}

/// What the archiver waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resting {
    /// Nothing: it works, or looks by itself what there is.
    No,
    /// Anything.
    ForWork,
    /// A time, or work that is due before that.
    Until(Instant),
}

/// What the archiver does next.
#[derive(Debug)]
pub(super) enum Chore {
    Archive,
    PrepareFile,
    Delete,
    Stop,
}

/// What the committer does next.
#[derive(Debug)]
pub(super) enum Work {
    /// What was queued is in the caller's buffer.
    Commit,
    /// Appends to runs that are not in memory are to be refused.
    Refuse(Vec<(RunId, AckSender)>),
    /// Nobody asked for anything for a while.
    Idle,
    Stop {
        clean: bool,
    },
}

/// What the committer did since the store was opened. It alone counts, once per group.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) writes: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// Shared between handles, committer and archiver.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) inbox: Inbox,
    wake: Condvar,
    wake_archiver: Condvar,
    database: RwLock<Option<Database>>,
    /// The newest commit that is on the disk.
    pub(super) synced: AtomicU64,
    /// The number of the newest archive that is on the disk.
    pub(super) archived: AtomicU64,
    /// Why the store failed, once it has.
    pub(super) failed: watch::Sender<Option<String>>,
    /// What the committer did.
    pub(super) counters: Counters,
    /// The outcome of closing, once it is there.
    pub(super) closed: watch::Sender<Option<StoreResult<()>>>,
    pub(super) directory: PathBuf,
    pub(super) clean: bool,
}

impl Shared {
    /// Shares what opening found; everything in it is on the disk.
    pub(super) fn new(
        directory: PathBuf,
        clean: bool,
        (table, ledger): (Table, Ledger),
        log_file: LogFile,
        database: Database,
        archived: u64,
    ) -> Self {
        let synced = ledger.commit();
        Self {
            state: Mutex::new(State {
                table,
                phase: Phase::Open,
                ledger,
                log_file,
                spare: Spare::None,
                queue: Queue::default(),
                strays: Vec::new(),
                arrivals: Vec::new(),
                sleeping: false,
                archiver: Resting::No,
                archiver_stops: false,
                archiver_finishes: false,
                deletions: VecDeque::new(),
            }),
            inbox: Inbox::default(),
            wake: Condvar::new(),
            wake_archiver: Condvar::new(),
            database: RwLock::new(Some(database)),
            synced: AtomicU64::new(synced),
            archived: AtomicU64::new(archived),
            failed: watch::Sender::new(None),
            counters: Counters::default(),
            closed: watch::Sender::new(None),
            directory,
            clean,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.take_in(&self.inbox);
        state
    }

    /// Returns the database for as long as the guard lives.
    pub(super) fn database(&self) -> RwLockReadGuard<'_, Option<Database>> {
        self.database.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the database away from everybody, once nobody reads it any more.
    pub(super) fn take_database(&self) -> Option<Database> {
        self.database
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Reads from the database, or says that the store has stopped. A panic in sled stops
    /// the store: nothing it says is to be trusted after that.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Database) -> StoreResult<T>) -> StoreResult<T> {
        self.lock().open()?;
        let guard = self.database();
        let Some(database) = guard.as_ref() else {
            return Err(self.lock().stopped());
        };
        let result = read(database);
        let settled = database.settle_after_reading();
        let result = result.and_then(|read| settled.map(|()| read));
        match result {
            // Whoever meets it first hears the same as all who ask later: that the store failed, and why.
            Err(error) if matches!(error, StoreError::Io { .. }) || database.is_broken() => {
                self.fail(&error);
                Err(self.lock().stopped())
            }
            result => result,
        }
    }

    /// Reads a run that sleeps in the log, and says where. `None`: it does not sleep there.
    pub(super) fn dozing(&self, run: RunId) -> StoreResult<Option<(Place, Slumber)>> {
        let look = || {
            let state = self.lock();
            let place = state.table.dozing.place(run)?;
            Some((place, state.ledger.file_of(place.commit)))
        };
        let mut found = look();
        while let Some((place, first)) = found {
            if let Some(slumber) = doze::read(&self.directory, first, place, run)? {
                return Ok(Some((place, slumber)));
            }
            // It may have left the log meanwhile, and the file with it.
            let now = look();
            if now == found {
                let what = format!("the file of the log in which {run} sleeps");
                return Err(corrupt(what, "it is missing"));
            }
            found = now;
        }
        Ok(None)
    }

    /// Takes a run that sleeps in the log back into memory, where it still sleeps. Says whether it slept there.
    pub(super) fn rouse(&self, run: RunId) -> StoreResult<bool> {
        let Some((place, slumber)) = self.dozing(run)? else {
            return Ok(false);
        };
        self.lock().rouse(place, slumber);
        Ok(true)
    }

    /// Says why a run that is not in memory takes no write.
    pub(super) fn refusal(&self, run: RunId) -> StoreError {
        {
            let table = &self.lock().table;
            if table.dozing.contains(run) || table.runs.get(&run).is_some_and(|live| !live.ended())
            {
                // It sleeps, or has come back meanwhile: whoever asks does not own it.
                return StoreError::StaleEpoch { run };
            }
        }
        match self.read(|database| reads::shelved(database, run)) {
            Ok(Some(found)) if found.header.end().is_some() => StoreError::Ended { run },
            // It sleeps: nobody owns it.
            Ok(Some(_)) => StoreError::StaleEpoch { run },
            Ok(None) => StoreError::UnknownRun { run },
            Err(error) => error,
        }
    }

    /// Puts something of so many bytes in the queue. The caller holds the lock, so order of calls is order
    /// of commits.
    pub(super) fn push(&self, mut state: MutexGuard<'_, State>, op: Op, bytes: usize) {
        state.queue.push(op, bytes);
        let wake = std::mem::take(&mut state.sleeping);
        // First the lock, then the committer: it would wake to wait for that.
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Waits for work, at most until `idle_at` if that is given. `ops` comes empty.
    pub(super) fn next_work(&self, idle_at: Option<Instant>, ops: &mut Vec<Op>) -> Work {
        let mut state = self.lock();
        loop {
            if matches!(state.phase, Phase::Failed(_)) {
                return Work::Stop { clean: false };
            }
            if !state.strays.is_empty() {
                return Work::Refuse(std::mem::take(&mut state.strays));
            }
            // If the archiver is far behind, it is waited for: it wakes this thread.
            if !state.queue.is_empty() && !state.ledger.is_behind() {
                state.queue.take_group(ops);
                return Work::Commit;
            }
            if state.queue.is_empty()
                && let Phase::Closing { clean } = state.phase
            {
                return Work::Stop { clean };
            }
            let now = Instant::now();
            let wait = match idle_at {
                Some(at) if at <= now => return Work::Idle,
                Some(at) => Some(at - now),
                None => None,
            };
            if !self.inbox.leave_unattended() {
                state.take_in(&self.inbox);
                continue;
            }
            state.sleeping = true;
            state = sleep(&self.wake, state, wait);
            state.sleeping = false;
            self.inbox.attend();
        }
    }

    /// Waits for something that the archiver is to do.
    pub(super) fn next_chore(&self) -> Chore {
        let mut state = self.lock();
        loop {
            if matches!(state.phase, Phase::Failed(_)) {
                return Chore::Stop;
            }
            if state.archiver_stops {
                return match state.archiver_finishes && state.ledger.has_work() {
                    true => Chore::Archive,
                    false => Chore::Stop,
                };
            }
            // Commits must not wait for deletions.
            if !state.deletions.is_empty() && !state.ledger.is_behind() {
                return Chore::Delete;
            }
            let due = state.ledger.due();
            if due == Due::Now {
                return Chore::Archive;
            }
            if matches!(state.spare, Spare::Wanted) {
                state.spare = Spare::InTheMaking;
                return Chore::PrepareFile;
            }
            let (resting, wait) = match due {
                Due::At(at) => {
                    let wait = at.saturating_duration_since(Instant::now());
                    (Resting::Until(at), Some(wait))
                }
                _ => (Resting::ForWork, None),
            };
            state.archiver = resting;
            state = sleep(&self.wake_archiver, state, wait);
            state.archiver = Resting::No;
        }
    }

    /// Says whether the archiver has nothing to do that cannot wait for a round of tidying up.
    pub(super) fn archiver_may_tidy(&self) -> bool {
        let state = self.lock();
        let is_open = matches!(state.phase, Phase::Open) && !state.archiver_stops;
        let is_needed = state.ledger.due() == Due::Now || !state.deletions.is_empty();
        is_open && !is_needed && !matches!(state.spare, Spare::Wanted)
    }

    pub(super) fn wake_archiver(&self) {
        self.wake_archiver.notify_one();
    }

    /// Has the archiver archive all that is needed before the log's newest file, before it stops.
    pub(super) fn have_archiver_finish(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        state.ledger.sweep_all(&mut state.table);
        state.archiver_finishes = true;
    }

    /// Tells the archiver to stop after what it is doing. What is still to be deleted stays.
    pub(super) fn stop_archiver(&self) {
        let mut state = self.lock();
        state.archiver_stops = true;
        state.deletions.clear();
        drop(state);
        self.wake_archiver.notify_one();
    }

    /// Wakes the committer if it waited for the archiver.
    pub(super) fn made_room(&self) {
        let state = self.lock();
        if state.sleeping && !state.queue.is_empty() && !state.ledger.is_behind() {
            self.wake.notify_one();
        }
    }

    /// Takes the spare file of the log, if it is ready.
    pub(super) fn take_spare(&self) -> Option<File> {
        let mut state = self.lock();
        match std::mem::replace(&mut state.spare, Spare::None) {
            Spare::Ready(file) => Some(file),
            other => {
                state.spare = other;
                None
            }
        }
    }

    /// Asks the committer to stop after what is queued.
    pub(super) fn begin_close(&self, clean: bool) {
        let mut state = self.lock();
        self.inbox.close();
        state.take_in(&self.inbox);
        if state.phase == Phase::Open {
            state.phase = Phase::Closing { clean };
        }
        state.sleeping = false;
        self.wake.notify_one();
    }

    /// Stops the store for good because of an error.
    pub(super) fn fail(&self, error: &StoreError) {
        let mut state = self.lock();
        self.inbox.close();
        state.take_in(&self.inbox);
        let is_first = !matches!(state.phase, Phase::Failed(_) | Phase::Closed);
        if is_first {
            state.phase = Phase::Failed(error.to_string());
        }
        let stopped = state.stopped();
        let queue = state.queue.take_all();
        let strays = std::mem::take(&mut state.strays);
        let deletions = std::mem::take(&mut state.deletions);
        state.sleeping = false;
        drop(state);
        if is_first {
            self.failed.send_replace(Some(error.to_string()));
        }
        self.wake.notify_one();
        self.wake_archiver.notify_one();
        for op in queue {
            op.refuse(stopped.clone());
        }
        for (_, ack) in strays {
            ack.send(Err(stopped.clone()));
        }
        for deletion in deletions {
            deletion.refuse(stopped.clone());
        }
    }
}

impl State {
    /// Accepts or refuses what came while somebody else had the lock.
    fn take_in(&mut self, inbox: &Inbox) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        inbox.take(&mut arrivals);
        for arrival in arrivals.drain(..) {
            let Arrival {
                epoch,
                mut append,
                slot,
                bytes,
            } = arrival;
            let accepted = match self.open() {
                Ok(()) => self.table.accept_append(epoch, &mut append),
                Err(stopped) => Some(Err(stopped)),
            };
            let (run, ack) = (append.run, AckSender::owning(slot));
            match accepted {
                Some(Ok(())) => self.queue.push(Op::Append(append, ack), bytes),
                Some(Err(error)) => ack.send(Err(error)),
                None => self.strays.push((run, ack)),
            }
        }
        self.arrivals = arrivals;
    }

    /// Takes a run back into memory that was read from the log, unless somebody else did meanwhile.
    fn rouse(&mut self, place: Place, slumber: Slumber) {
        if self.table.dozing.place(slumber.run()) == Some(place) {
            change::rouse(&mut self.table, &mut self.ledger, place, slumber);
        }
    }

    /// Says whether the archiver rests and should not.
    pub(super) fn archiver_has_work(&self) -> bool {
        match self.archiver {
            Resting::No => false,
            Resting::ForWork => {
                self.ledger.due() != Due::Never || matches!(self.spare, Spare::Wanted)
            }
            Resting::Until(time) => {
                let sooner = match self.ledger.due() {
                    Due::Now => true,
                    Due::At(at) => at < time,
                    Due::Never => false,
                };
                sooner || matches!(self.spare, Spare::Wanted)
            }
        }
    }

    /// Says whether the archiver has nothing to do and does nothing.
    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        self.archiver == Resting::ForWork
            && self.ledger.due() == Due::Never
            && self.deletions.is_empty()
    }

    /// Says whether calls are taken.
    pub(super) fn open(&self) -> StoreResult<()> {
        match self.phase {
            Phase::Open => Ok(()),
            _ => Err(self.stopped()),
        }
    }

    pub(super) fn stopped(&self) -> StoreError {
        match &self.phase {
            Phase::Failed(error) => StoreError::Failed {
                error: error.clone(),
            },
            Phase::Open | Phase::Closing { .. } | Phase::Closed => StoreError::Stopped {
                reason: "it was closed".to_owned(),
            },
        }
    }
}

/// Waits to be woken, at most for as long as is given.
fn sleep<'a>(
    wake: &Condvar,
    state: MutexGuard<'a, State>,
    wait: Option<Duration>,
) -> MutexGuard<'a, State> {
    match wait {
        None => wake.wait(state).unwrap_or_else(PoisonError::into_inner),
        Some(wait) => {
            let woken = wake.wait_timeout(state, wait);
            woken.unwrap_or_else(PoisonError::into_inner).0
        }
    }
}

#[cfg(test)]
mod tests;
