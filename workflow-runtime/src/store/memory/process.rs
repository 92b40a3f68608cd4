//! The simulated process of a [`MemoryStore`](super::MemoryStore): alive, stopped, closed
//! or dead, and what it answers in each state.
//!
//! Owns the acting out of planned faults at a write. Never knows who waits.

use std::future::{pending, ready};

use super::disk::{Log, Table, Write};
use super::faults::{Fault, FaultPlan, Surviving};
use crate::store::{BoxFuture, StoreError, StoreResult};

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) process: Process,
    pub(super) plan: FaultPlan,
    pub(super) writes: u64,
    pub(super) log: Log,
    pub(super) table: Table,
    pub(super) held: Option<Held>,
    /// What is found by whoever opens it again after an error.
    pub(super) surviving: Surviving,
    /// What a test wants to know of writes.
    #[cfg(feature = "testing")]
    pub(super) watched: super::watching::Watched,
}

/// Acknowledgements that a test keeps back.
#[derive(Debug)]
pub(super) struct Held {
    /// The length of the log when it began; what follows is not synced yet.
    pub(super) from: usize,
}

#[derive(Debug)]
pub(super) enum Process {
    Alive,
    Stopped(String),
    Closed,
    Dead,
}

/// What a call answers when the process is in no state to serve it.
pub(super) enum Refusal {
    Never,
    Error(StoreError),
}

impl Refusal {
    pub(super) fn answer<T: Send + 'static>(self) -> BoxFuture<'static, StoreResult<T>> {
        match self {
            Self::Never => Box::pin(pending()),
            Self::Error(error) => Box::pin(ready(Err(error))),
        }
    }
}

impl Inner {
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let reason = match &self.process {
            Process::Alive => return None,
            Process::Dead => return Some(Refusal::Never),
            Process::Stopped(_) if seeded!(AcknowledgedAfterError) => return None,
            Process::Stopped(error) => {
                let error = error.clone();
                return Some(Refusal::Error(StoreError::Failed { error }));
            }
            Process::Closed => "it was closed".to_owned(),
        };
        Some(Refusal::Error(StoreError::Stopped { reason }))
    }

    /// Says whether the write that made the log `number` long can be answered, and with
    /// what.
    pub(super) fn acknowledgement(&self, number: usize) -> Option<Option<Refusal>> {
        let held = self.held.as_ref().is_some_and(|held| held.from < number);
        match (&self.process, held) {
            (Process::Alive | Process::Closed, true) => None,
            (Process::Alive | Process::Closed, false) => Some(None),
            (Process::Stopped(_) | Process::Dead, _) => Some(self.refusal()),
        }
    }

    /// Makes a write that promises nothing, so that nothing can go wrong with it.
    pub(super) fn record(&mut self, write: Write) {
        self.table.apply(&write);
        self.log.push(write);
    }

    /// Makes one write, or acts out the fault that is planned for it.
    pub(super) fn write(&mut self, write: Write) -> Result<(), Refusal> {
        let number = self.writes;
        self.writes += 1;
        let fault = self.plan.fault(number);
        #[cfg(feature = "testing")]
        self.watched.see(&write, fault);
        match fault {
            None => {
                self.table.apply(&write);
                let from = self.log.len();
                self.log.push(write);
                if self.held.is_none() && !seeded!(SkippedSync) {
                    self.log.sync_as_asked(from);
                }
                Ok(())
            }
            Some(Fault::FailWrite) => Err(self.fail("writing", number)),
            Some(Fault::FailSync) => {
                self.log.push(write);
                Err(self.fail("syncing", number))
            }
            Some(Fault::CrashBefore) => Err(self.die()),
            Some(Fault::CrashAfter) => {
                self.log.push(write);
                self.log.sync();
                Err(self.die())
            }
            Some(Fault::Tear) => {
                self.log.push_torn();
                Err(self.die())
            }
        }
    }

    fn fail(&mut self, doing: &str, number: u64) -> Refusal {
        let error = StoreError::Io {
            operation: format!("{doing} write {number}"),
            message: "injected fault".to_owned(),
        };
        let error = error.to_string();
        self.process = Process::Stopped(error.clone());
        Refusal::Error(StoreError::Failed { error })
    }

    fn die(&mut self) -> Refusal {
        self.process = Process::Dead;
        Refusal::Never
    }
}
