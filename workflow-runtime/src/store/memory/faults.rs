//! Faults that a [`MemoryStore`](super::MemoryStore) acts out on request.
//!
//! Owns the vocabulary of a test's bad luck: which write goes wrong, how, and what of the
//! unsynced writes a restart still finds. Never decides anything by chance: the same plan
//! and the same calls give the same disk.

use std::collections::BTreeMap;

use crate::hashing::scramble;

/// What goes wrong at one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The operating system refuses the write: the caller gets an I/O error, nothing of it
    /// is on the disk, and the store stops.
    FailWrite,
    /// The write reached the operating system but its sync failed: the caller gets an I/O
    /// error, the store stops, and whether a restart finds the write is up to
    /// [`Surviving`].
    FailSync,
    /// The process dies before the write: nothing of it is on the disk.
    CrashBefore,
    /// The process dies after the write is durable and before anybody is told.
    CrashAfter,
    /// The process dies with the write half on the disk. Writes are atomic, so a restart
    /// finds nothing of it.
    Tear,
}

impl Fault {
    /// Every fault there is, for tests that go through all of them.
    pub const ALL: [Self; 5] = [
        Self::FailWrite,
        Self::FailSync,
        Self::CrashBefore,
        Self::CrashAfter,
        Self::Tear,
    ];
}

/// Says at which write which fault happens.
///
/// Writes are numbered from 0 in the order in which they were called; a call that was
/// refused (out of order, unknown run, an id that exists) wrote nothing and has no number.
///
/// ```
/// use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore};
///
/// let store = MemoryStore::with_faults(FaultPlan::at(3, Fault::CrashAfter));
/// assert_eq!(store.writes(), 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    faults: BTreeMap<u64, Fault>,
}

impl FaultPlan {
    /// Makes a plan in which nothing goes wrong.
    pub fn none() -> Self {
        Self::default()
    }

    /// Makes a plan with one fault.
    pub fn at(write: u64, fault: Fault) -> Self {
        Self::none().and(write, fault)
    }

    /// Adds a fault, or replaces the one at that write.
    #[must_use]
    pub fn and(mut self, write: u64, fault: Fault) -> Self {
        self.faults.insert(write, fault);
        self
    }

    /// Returns what goes wrong at a write.
    pub fn fault(&self, write: u64) -> Option<Fault> {
        self.faults.get(&write).copied()
    }
}

/// What a restart finds of the writes that were handed over but never synced.
///
/// The disk is a log: what survives of it is always a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Surviving {
    /// Nothing: the power was cut at the worst moment.
    Synced,
    /// Everything: only the process died.
    All,
    /// A prefix whose length follows from this seed.
    Random(u64),
}

impl Surviving {
    /// Decides how many of `unsynced` writes survive.
    pub(super) fn count(self, unsynced: usize) -> usize {
        match self {
            Self::Synced => 0,
            Self::All => unsynced,
            Self::Random(seed) => {
                let choices = unsynced as u64 + 1;
                usize::try_from(scramble(seed) % choices).expect("no more than `unsynced`")
            }
        }
    }
}
