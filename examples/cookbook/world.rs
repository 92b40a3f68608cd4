//! The world outside of the recipes: a service that acts once per idempotency key, and processes that die.
//!
//! Owns what every recipe needs to show its claim. It never knows which process, run or step is asking.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};

use workflow_runtime::Result;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};

/// A service outside, with a ledger that no crash of ours undoes. It honours idempotency keys: asked again under a key
/// that it knows, it gives the first receipt and does nothing.
#[derive(Debug, Default)]
pub(crate) struct Service(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// Key and deed, in order; the receipt is the place in it.
    entries: Vec<(String, String)>,
    asked: usize,
}

impl Book {
    fn receipt(&self, key: &str) -> Option<usize> {
        let found = self.entries.iter().position(|(known, _)| known == key);
        found.map(|place| place + 1)
    }
}

impl Service {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something under a key, unless it was done, and gives the receipt.
    pub(crate) fn act(&self, key: impl Display, what: impl Into<String>) -> usize {
        let key = key.to_string();
        let mut book = self.book();
        book.asked += 1;
        book.receipt(&key).unwrap_or_else(|| {
            book.entries.push((key, what.into()));
            book.entries.len()
        })
    }

    /// Looks for what was done under a key.
    pub(crate) fn find(&self, key: impl Display) -> Option<usize> {
        self.book().receipt(&key.to_string())
    }

    /// What was done, in order.
    pub(crate) fn ledger(&self) -> Vec<String> {
        let book = self.book();
        book.entries.iter().map(|(_, what)| what.clone()).collect()
    }

    /// How often it was asked, repetitions included.
    pub(crate) fn asked(&self) -> usize {
        self.book().asked
    }
}

/// The ways to die at a write: nothing of it is on the disk, or all of it is and nobody was told.
pub(crate) const DEATHS: [Fault; 2] = [Fault::CrashBefore, Fault::CrashAfter];

/// Lives `life` in a process that dies at a write to the store, and then once more in the process after it.
///
/// Returns what the second one came to, or `None` if the first one ended without so many writes.
pub(crate) async fn two_lives<T, L>(
    write: u64,
    fault: Fault,
    life: impl Fn(MemoryStore) -> L,
) -> Result<Option<T>>
where
    L: Future<Output = Result<T>>,
{
    let store = MemoryStore::with_faults(FaultPlan::at(write, fault));
    tokio::select! {
        biased;
        () = store.crashed() => {}
        ended = life(store.clone()) => {
            ended?;
            return Ok(None);
        }
    }
    life(store.reopen(Surviving::Synced)).await.map(Some)
}
