//! What the handles of a store and its committer share: the table, the queue, the end.
//!
//! Owns the one lock of the store. It is held for look-ups and queuing only, never while
//! anything is written or synced.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::database::Database;
use super::table::Table;
use crate::ids::RunId;
use crate::store::{Append, Creation, Durability, NewRun, Parking, StoreError, StoreResult};

/// The most appends one group commit takes. Far more than ever wait; it bounds the time
/// until the first of them is told.
const MAX_GROUP: usize = 8_192;

/// The most payload bytes one group commit takes, if it is more than one append.
const MAX_GROUP_BYTES: usize = 4 * 1024 * 1024;

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<StoreResult<T>>;

/// One thing the committer is asked for.
#[derive(Debug)]
pub(super) enum Op {
    Create(NewRun, Reply<Creation>),
    Append(Append, Reply<()>),
    Park(RunId, Option<Parking>, Reply<()>),
    /// Nothing: the answer comes once everything queued before is durable.
    Barrier(Reply<()>),
}

impl Op {
    fn bytes(&self) -> usize {
        match self {
            Self::Create(run, _) => run.first.len(),
            Self::Append(append, _) => append.frames.iter().map(bytes::Bytes::len).sum(),
            Self::Park(..) | Self::Barrier(_) => 0,
        }
    }

    pub(super) fn durability(&self) -> Durability {
        match self {
            Self::Create(run, _) => run.durability,
            Self::Append(append, _) => append.durability,
            Self::Park(..) => Durability::Synced,
            Self::Barrier(_) => Durability::Buffered,
        }
    }

    /// Answers with an error.
    pub(super) fn refuse(self, error: StoreError) {
        // Whoever dropped the future does not want to know.
        let _ = match self {
            Self::Create(_, reply) => reply.send(Err(error)).is_err(),
            Self::Append(_, reply) | Self::Park(_, _, reply) | Self::Barrier(reply) => {
                reply.send(Err(error)).is_err()
            }
        };
    }
}

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
    queue: Vec<Op>,
    /// Whether the committer waits to be woken.
    sleeping: bool,
}

/// What the committer does next.
#[derive(Debug)]
pub(super) enum Work {
    Commit(Vec<Op>),
    /// Nobody asked for anything for a while.
    Idle,
    Stop {
        clean: bool,
    },
}

/// Shared between handles and committer.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    database: RwLock<Option<Database>>,
    /// The outcome of closing, once it is there.
    pub(super) closed: watch::Sender<Option<StoreResult<()>>>,
    pub(super) directory: PathBuf,
    pub(super) clean: bool,
}

impl Shared {
    pub(super) fn new(directory: PathBuf, clean: bool, table: Table, database: Database) -> Self {
        Self {
            state: Mutex::new(State {
                table,
                phase: Phase::Open,
                queue: Vec::new(),
                sleeping: false,
            }),
            wake: Condvar::new(),
            database: RwLock::new(Some(database)),
            closed: watch::Sender::new(None),
            directory,
            clean,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        if let Err(error) = &result
            && (database.is_broken() || matches!(error, StoreError::Io { .. }))
        {
            self.fail(error);
        }
        result
    }

    /// Puts something in the queue. The caller holds the lock, so order of calls is order
    /// of commits.
    pub(super) fn push(&self, state: &mut State, op: Op) {
        state.queue.push(op);
        if state.sleeping {
            state.sleeping = false;
            self.wake.notify_one();
        }
    }

    /// Waits for work, at most until `idle_at` if that is given.
    pub(super) fn next_work(&self, idle_at: Option<Instant>) -> Work {
        let mut state = self.lock();
        loop {
            if matches!(state.phase, Phase::Failed(_)) {
                return Work::Stop { clean: false };
            }
            if !state.queue.is_empty() {
                return Work::Commit(take_group(&mut state.queue));
            }
            if let Phase::Closing { clean } = state.phase {
                return Work::Stop { clean };
            }
            let now = Instant::now();
            let wait = match idle_at {
                Some(at) if at <= now => return Work::Idle,
                Some(at) => at - now,
                None => Duration::MAX,
            };
            state.sleeping = true;
            state = if wait == Duration::MAX {
                self.wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner)
            } else {
                self.wake
                    .wait_timeout(state, wait)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            };
            state.sleeping = false;
        }
    }

    /// Asks the committer to stop after what is queued.
    pub(super) fn begin_close(&self, clean: bool) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing { clean };
        }
        state.sleeping = false;
        self.wake.notify_one();
    }

    /// Stops the store for good because of an error.
    pub(super) fn fail(&self, error: &StoreError) {
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Failed(_) | Phase::Closed) {
            state.phase = Phase::Failed(error.to_string());
        }
        let stopped = state.stopped();
        let queue = std::mem::take(&mut state.queue);
        state.sleeping = false;
        drop(state);
        self.wake.notify_one();
        for op in queue {
            op.refuse(stopped.clone());
        }
    }
}

impl State {
    /// Says whether calls are taken.
    pub(super) fn open(&self) -> StoreResult<()> {
        match self.phase {
            Phase::Open => Ok(()),
            _ => Err(self.stopped()),
        }
    }

    pub(super) fn stopped(&self) -> StoreError {
        let reason = match &self.phase {
            Phase::Failed(reason) => reason.clone(),
            Phase::Open | Phase::Closing { .. } | Phase::Closed => "it was closed".to_owned(),
        };
        StoreError::Stopped { reason }
    }
}

/// Takes what one group commit holds off the queue.
fn take_group(queue: &mut Vec<Op>) -> Vec<Op> {
    let mut bytes = 0;
    let fits = queue
        .iter()
        .take(MAX_GROUP)
        .take_while(|op| {
            let first = bytes == 0;
            bytes += op.bytes();
            first || bytes <= MAX_GROUP_BYTES
        })
        .count();
    if fits == queue.len() {
        return std::mem::take(queue);
    }
    let rest = queue.split_off(fits);
    std::mem::replace(queue, rest)
}
