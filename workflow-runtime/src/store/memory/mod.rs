//! A store in memory: the same contract without a disk, and the fault seam of all tests.
//!
//! Owns a simulated machine: a process that may die at any write, and a disk that knows
//! which writes were synced. [`MemoryStore::reopen`] gives what a restart would find. It is
//! deterministic: it never asks for the time or a random number, and every future is ready
//! at its first poll unless the test [holds](MemoryStore::hold) acknowledgements back or
//! the process has died.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! use workflow_runtime::store::Store;
//! use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
//!
//! let store = MemoryStore::with_faults(FaultPlan::at(0, Fault::CrashBefore));
//! // … give a clone to an engine and let it work, until:
//! # let closing = { let store = store.clone(); async move { store.close().await } };
//! # tokio::select! { _ = closing => unreachable!(), () = store.crashed() => {} }
//! store.crashed().await;
//! let after_restart = store.reopen(Surviving::Synced);
//! assert!(!after_restart.stopped_cleanly());
//! # });
//! ```

mod disk;
mod faults;
mod process;
#[cfg(feature = "testing")]
mod watching;

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use self::disk::{Log, Table, Write};
pub use self::faults::{Fault, FaultPlan, Surviving};
use self::process::{Held, Inner, Process};
#[cfg(feature = "testing")]
pub(crate) use self::watching::Written;
use super::{
    Append, BoxFuture, Changes, Claim, Commit, Committed, Creation, Epoch, KeptJournal, Mail,
    NewRun, NoteChange, NoteKey, Parking, Released, Reopening, RunHeader, RunQuery, Sleeper, Store,
    StoreCounts, StoreResult,
};
use crate::clock::Timestamp;
use crate::ids::RunId;

/// A store in memory, with faults on request.
///
/// Clones are handles of the same store.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// Tells waiting futures that acknowledgements were released or the process died.
    changed: watch::Sender<()>,
    clean: bool,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Makes an empty store in which nothing goes wrong.
    pub fn new() -> Self {
        Self::with_faults(FaultPlan::none())
    }

    /// Makes an empty store that acts out a plan.
    pub fn with_faults(plan: FaultPlan) -> Self {
        Self::from_writes(Vec::new(), plan, true)
    }

    fn from_writes(writes: Vec<Write>, plan: FaultPlan, clean: bool) -> Self {
        let table = Table::replay(&writes);
        let mut log = Log::default();
        for write in writes {
            log.push(write);
        }
        log.sync();
        let inner = Inner {
            process: Process::Alive,
            plan,
            writes: 0,
            log,
            table,
            held: None,
            surviving: Surviving::Synced,
            #[cfg(feature = "testing")]
            watched: watching::Watched::default(),
        };
        Self {
            shared: Arc::new(Shared {
                inner: Mutex::new(inner),
                changed: watch::Sender::new(()),
                clean,
            }),
        }
    }

    /// Replaces the plan. Writes keep their numbers: the next one is [`Self::writes`].
    pub fn set_faults(&self, plan: FaultPlan) {
        self.lock().plan = plan;
    }

    /// Returns how many writes were made, so that a test can go through all of them: run
    /// once without faults, then once for every `k` in `0..store.writes()`.
    ///
    /// Creating, appending, committing, parking, reopening, deleting and the first close are writes;
    /// refused calls are not, nor are sleeping, waking and forgetting, which promise nothing.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Says whether the process has died.
    pub fn is_crashed(&self) -> bool {
        matches!(self.lock().process, Process::Dead)
    }

    /// Waits until the process has died.
    pub async fn crashed(&self) {
        self.wait_until(|inner| matches!(inner.process, Process::Dead).then_some(()))
            .await;
    }

    /// Lets the process die now. No call resolves any more.
    pub fn crash(&self) {
        self.lock().process = Process::Dead;
        self.shared.changed.send_replace(());
    }

    /// Keeps acknowledgements and syncs back from now on: writes are accepted and pile up
    /// as if the disk were slow. Plain reads show them already; `create` and `claim` wait.
    pub fn hold(&self) {
        let mut inner = self.lock();
        let from = inner.log.len();
        inner.held.get_or_insert(Held { from });
    }

    /// Syncs what was held back as it was asked for, and acknowledges it.
    pub fn release(&self) {
        let mut inner = self.lock();
        if let Some(held) = inner.held.take() {
            inner.log.sync_as_asked(held.from);
        }
        drop(inner);
        self.shared.changed.send_replace(());
    }

    /// Returns what a restart of the machine finds, as a new store in which nothing goes
    /// wrong. This store's process is dead from then on, unless it was closed or stopped.
    pub fn reopen(&self, surviving: Surviving) -> Self {
        let mut inner = self.lock();
        let writes = inner.log.surviving(surviving);
        if matches!(inner.process, Process::Alive) {
            inner.process = Process::Dead;
        }
        drop(inner);
        self.shared.changed.send_replace(());
        let clean = matches!(writes.last(), Some(Write::Close));
        // Opening takes the mark away, as on a real disk: it speaks for one stop only.
        let writes = writes
            .into_iter()
            .filter(|write| !matches!(write, Write::Close))
            .collect();
        Self::from_writes(writes, FaultPlan::none(), clean)
    }

    /// Sets what [`Store::open_again`] finds of writes that were not synced; nothing of them otherwise.
    pub fn set_surviving(&self, surviving: Surviving) {
        self.lock().surviving = surviving;
    }

    /// Flips a bit at the end of a record, as a bad disk does. `false` if there is no such record. A restart finds it
    /// intact: only this process reads it so.
    #[cfg(feature = "testing")]
    pub fn damage(&self, run: RunId, seq: u64) -> bool {
        self.lock().table.damage(run, seq)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here panics half-way through a change; a poisoned lock means that a
        // test's own assertion failed in another thread, which must not hide behind ours.
        self.shared
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready` gives a value, looking again after every change.
    async fn wait_until<T>(&self, ready: impl Fn(&Inner) -> Option<T>) -> T {
        let mut changes = self.shared.changed.subscribe();
        loop {
            if let Some(value) = ready(&self.lock()) {
                return value;
            }
            changes
                .changed()
                .await
                .expect("this handle keeps the sender alive");
        }
    }

    /// Answers a read, or what the state of the process makes of it.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Table) -> T,
    ) -> BoxFuture<'static, StoreResult<T>> {
        let mut inner = self.lock();
        match inner.refusal() {
            None => Box::pin(ready(Ok(read(&mut inner.table)))),
            Some(refusal) => refusal.answer(),
        }
    }

    /// Makes a write at once and returns the future of its acknowledgement.
    fn write<T: Send + Sync + 'static>(
        &self,
        inner: &mut Inner,
        write: Write,
        answer: T,
    ) -> BoxFuture<'static, StoreResult<T>> {
        match inner.write(write) {
            Ok(()) => self.after_held(inner, answer),
            Err(refusal) => {
                self.shared.changed.send_replace(());
                refusal.answer()
            }
        }
    }

    /// Answers once everything that was written before is acknowledged: what somebody is
    /// told about a run must be durable by then.
    fn after_held<T: Send + Sync + 'static>(
        &self,
        inner: &Inner,
        answer: T,
    ) -> BoxFuture<'static, StoreResult<T>> {
        if inner.held.is_none() {
            return Box::pin(ready(Ok(answer)));
        }
        let number = inner.log.len();
        let store = self.clone();
        Box::pin(async move {
            let refused = store
                .wait_until(|inner| inner.acknowledgement(number))
                .await;
            match refused {
                None => Ok(answer),
                Some(refusal) => refusal.answer().await,
            }
        })
    }
}

impl Store for MemoryStore {
    fn create(&self, run: NewRun) -> BoxFuture<'_, StoreResult<Creation>> {
        let mut inner = self.lock();
        if let Some(refusal) = inner.refusal() {
            return refusal.answer();
        }
        match inner.table.existing(run.header.run) {
            Some(exists) => self.after_held(&inner, exists),
            None => self.write(
                &mut inner,
                Write::Create(run),
                Creation::Created(Epoch::FIRST),
            ),
        }
    }

    fn append(&self, append: Append) -> BoxFuture<'static, StoreResult<()>> {
        let mut inner = self.lock();
        if let Some(refusal) = inner.refusal() {
            return refusal.answer();
        }
        let fits = append.changes.as_deref().map_or(Ok(()), Changes::check);
        match fits.and_then(|()| inner.table.accept(&append)) {
            Ok(()) => self.write(&mut inner, Write::Append(append), ()),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, StoreResult<Committed>> {
        let mut inner = self.lock();
        if let Some(refusal) = inner.refusal() {
            return refusal.answer();
        }
        if let Err(error) = commit.changes.check() {
            return Box::pin(ready(Err(error)));
        }
        match inner.table.refuses(&commit) {
            Some(refusal) => self.after_held(&inner, Committed::Refused(refusal)),
            None => self.write(&mut inner, Write::Commit(commit.changes), Committed::Done),
        }
    }

    fn park(
        &self,
        run: RunId,
        epoch: Epoch,
        parking: Option<Parking>,
    ) -> BoxFuture<'_, StoreResult<()>> {
        let mut inner = self.lock();
        if let Some(refusal) = inner.refusal() {
            return refusal.answer();
        }
        match inner.table.accept_park(run, epoch) {
            Ok(()) => self.write(&mut inner, Write::Park(run, parking), ()),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn claim(&self, run: RunId, from: u64) -> BoxFuture<'_, StoreResult<Option<Claim>>> {
        let mut inner = self.lock();
        if let Some(refusal) = inner.refusal() {
            return refusal.answer();
        }
        if inner.table.is_asleep(run) {
            // Not a write of the caller's: no fault is planned for it.
            inner.record(Write::Wake(run));
        }
        match inner.table.claim(run, from) {
            Ok(claim) => self.after_held(&inner, claim),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn put_to_sleep(
        &self,
        run: RunId,
        epoch: Epoch,
        wake_at: Option<Timestamp>,
    ) -> BoxFuture<'_, StoreResult<Released>> {
        let mut inner = self.lock();
        if let Some(refusal) = inner.refusal() {
            return refusal.answer();
        }
        match inner.table.accept_release(run, epoch) {
            Ok(true) => {
                inner.record(Write::Sleep(run, wake_at));
                Box::pin(ready(Ok(Released::Asleep)))
            }
            Ok(false) => Box::pin(ready(Ok(Released::HasMail))),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn forget(&self, run: RunId, epoch: Epoch, below: u64) -> BoxFuture<'_, StoreResult<()>> {
        let mut inner = self.lock();
        if let Some(refusal) = inner.refusal() {
            return refusal.answer();
        }
        let owned = inner.table.accept_park(run, epoch);
        if owned.is_ok() {
            // Not a write that anybody relies on: no fault is planned for it.
            inner.record(Write::Forget(run, below));
        }
        Box::pin(ready(owned))
    }

    fn revive(&self, reopening: Reopening) -> BoxFuture<'_, StoreResult<Epoch>> {
        let mut inner = self.lock();
        if let Some(refusal) = inner.refusal() {
            return refusal.answer();
        }
        let notes = reopening.notes.iter().try_for_each(NoteChange::check);
        match notes.and_then(|()| inner.table.accept_reopen(&reopening)) {
            Ok(()) => {
                let epoch = inner.table.next_epoch(reopening.run);
                self.write(&mut inner, Write::Reopen(Box::new(reopening)), epoch)
            }
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn delete(&self, runs: Vec<RunId>) -> BoxFuture<'_, StoreResult<u64>> {
        let mut inner = self.lock();
        if let Some(refusal) = inner.refusal() {
            return refusal.answer();
        }
        let runs = inner.table.deletable(runs);
        let count = runs.len() as u64;
        if count == 0 {
            return Box::pin(ready(Ok(0)));
        }
        self.write(&mut inner, Write::Delete(runs), count)
    }

    fn unfinished(&self) -> BoxFuture<'_, StoreResult<Vec<RunHeader>>> {
        self.read(|table| table.unfinished())
    }

    fn asleep(
        &self,
        after: Option<Sleeper>,
        limit: usize,
    ) -> BoxFuture<'_, StoreResult<Vec<Sleeper>>> {
        self.read(|table| table.asleep(after.as_ref(), limit))
    }

    fn mail(&self, run: RunId, from: u64) -> BoxFuture<'_, StoreResult<Vec<Mail>>> {
        self.read(|table| table.mail(run, from))
    }

    fn note(&self, key: NoteKey) -> BoxFuture<'_, StoreResult<Option<Bytes>>> {
        self.read(|table| table.note(&key))
    }

    fn notes(
        &self,
        prefix: NoteKey,
        after: Option<NoteKey>,
        limit: usize,
    ) -> BoxFuture<'_, StoreResult<Vec<(NoteKey, Bytes)>>> {
        self.read(|table| table.notes(&prefix, after.as_ref(), limit))
    }

    fn header(&self, run: RunId) -> BoxFuture<'_, StoreResult<Option<RunHeader>>> {
        self.read(|table| table.header(run))
    }

    fn frames(
        &self,
        run: RunId,
        from: u64,
        limit: usize,
    ) -> BoxFuture<'_, StoreResult<Vec<Bytes>>> {
        let frames = self.read(|table| table.frames(run, from, limit));
        Box::pin(async move { frames.await? })
    }

    fn journal(&self, run: RunId) -> BoxFuture<'_, StoreResult<KeptJournal>> {
        self.read(|table| table.journal(run))
    }

    fn list(&self, query: RunQuery) -> BoxFuture<'_, StoreResult<Vec<RunHeader>>> {
        self.read(|table| table.list(&query))
    }

    fn stopped_cleanly(&self) -> bool {
        self.shared.clean
    }

    fn failure(&self) -> Option<String> {
        match &self.lock().process {
            Process::Stopped(reason) => Some(reason.clone()),
            Process::Alive | Process::Closed | Process::Dead => None,
        }
    }

    fn failed(&self) -> BoxFuture<'static, String> {
        let store = Arc::downgrade(&self.shared);
        let mut changes = self.shared.changed.subscribe();
        Box::pin(async move {
            loop {
                let failure = match store.upgrade() {
                    Some(shared) => Self { shared }.failure(),
                    None => std::future::pending().await,
                };
                if let Some(failure) = failure {
                    return failure;
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await; // it is gone, and had not failed
                }
            }
        })
    }

    fn open_again(&self) -> BoxFuture<'_, StoreResult<Arc<dyn Store>>> {
        let inner = self.lock();
        if let Process::Dead = inner.process {
            return Box::pin(std::future::pending());
        }
        let surviving = inner.surviving;
        drop(inner);
        Box::pin(ready(
            Ok(Arc::new(self.reopen(surviving)) as Arc<dyn Store>),
        ))
    }

    fn counts(&self) -> StoreCounts {
        let writes = self.lock().writes;
        StoreCounts {
            writes,
            commits: writes,
            ..StoreCounts::default()
        }
    }

    fn check(&self) -> BoxFuture<'_, StoreResult<()>> {
        self.read(|_| ())
    }

    fn close(&self) -> BoxFuture<'_, StoreResult<()>> {
        let mut inner = self.lock();
        match inner.process {
            Process::Closed => return Box::pin(ready(Ok(()))),
            Process::Alive => {}
            Process::Stopped(_) | Process::Dead => {
                if let Some(refusal) = inner.refusal() {
                    return refusal.answer();
                }
            }
        }
        if inner.held.take().is_some() {
            inner.log.sync();
        }
        let closed = self.write(&mut inner, Write::Close, ());
        if matches!(inner.process, Process::Alive) {
            inner.process = Process::Closed;
        }
        drop(inner);
        self.shared.changed.send_replace(());
        closed
    }
}

#[cfg(test)]
mod tests;
