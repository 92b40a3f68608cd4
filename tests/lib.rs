//! The tests that cross crate borders; each theme is one `[[test]]` binary.
//!
//! What the themes share is here: an outside world that honours idempotency keys
//! ([`Ledger`]), runs that survive planned crashes ([`survive`]), and journals that are cut,
//! copied or damaged on purpose ([`cut`], [`Edited`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use workflow_runtime::clock::Timestamp;
use workflow_runtime::journal::{Event, Journal, StepCompleted};
use workflow_runtime::store::memory::{FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{
    Append, BoxFuture, Claim, Commit, Committed, Creation, Durability, Epoch, Mail, NewRun,
    NoteKey, Parking, Released, Reopening, RunHeader, RunQuery, RunState, Sleeper, Store,
    StoreError, StoreResult,
};
use workflow_runtime::testing::Witness;
use workflow_runtime::{
    EngineBuilder, RunError, RunId, StepId, Workflow, WorkflowCall, get_step_metadata,
};

/// The outside world: it acts once per idempotency key, and counts how often it was asked.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    effects: BTreeMap<StepId, String>,
    order: Vec<StepId>,
    asked: Vec<(StepId, u32)>,
}

impl Ledger {
    /// Makes an empty ledger to be given to engines.
    pub fn shared() -> Arc<Self> {
        Arc::default()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something under the id of the running step; asked again with that id, does nothing.
    ///
    /// # Panics
    ///
    /// If the id was used for something else.
    pub fn act(&self, what: &str) {
        let meta = get_step_metadata();
        let mut book = self.book();
        book.asked.push((meta.step_id, meta.attempt));
        if !book.effects.contains_key(&meta.step_id) {
            book.order.push(meta.step_id);
        }
        let first = book
            .effects
            .entry(meta.step_id)
            .or_insert_with(|| what.to_owned());
        assert_eq!(first, what, "one id was used for two effects");
    }

    /// What was done, in the order in which it was first asked for.
    pub fn in_order(&self) -> Vec<String> {
        let book = self.book();
        let effects = book.order.iter().map(|step| book.effects[step].clone());
        effects.collect()
    }

    /// What was done, sorted.
    pub fn effects(&self) -> Vec<String> {
        let mut effects: Vec<_> = self.book().effects.values().cloned().collect();
        effects.sort();
        effects
    }

    /// How often a step's body ran.
    pub fn asked(&self) -> usize {
        self.book().asked.len()
    }

    /// Which bodies ran, with the numbers of their attempts.
    pub fn attempts(&self) -> Vec<(StepId, u32)> {
        self.book().asked.clone()
    }

    /// Forgets how often it was asked, but not what it did.
    pub fn forget_asking(&self) {
        self.book().asked.clear();
    }
}

/// Starts a run under the key `story` and waits for its end, through one crash per plan.
///
/// Every process opens the store anew and starts the run again under its key.
///
/// # Errors
///
/// What the run ended with.
///
/// # Panics
///
/// If an engine cannot be opened or refuses the start.
pub async fn survive<W: Workflow>(
    engine: impl Fn() -> EngineBuilder,
    call: impl Fn() -> WorkflowCall<W>,
    plans: impl IntoIterator<Item = FaultPlan>,
) -> (Result<W::Ok, RunError<W::Error>>, MemoryStore) {
    let mut plans = plans.into_iter();
    let mut store = MemoryStore::with_faults(plans.next().unwrap_or_default());
    let mut witness = Witness::new();
    loop {
        let living = async {
            let engine = engine().open_with(store.clone()).await.expect("opens");
            let run = engine.start(call()).key("story").await.expect("is started");
            witness.started_under("story", engine.namespace(), run.id(), None);
            let result = run.result().await;
            if engine.failure().is_none() {
                let found = witness.check(&engine).await.expect("reads");
                assert_eq!(found, [], "what was promised");
            }
            result
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            result = living => return (result, store),
        }
        store = store.reopen(Surviving::Synced);
        store.set_faults(plans.next().unwrap_or_default());
    }
}

/// Opens an engine and lets it live until its process dies, which may be while it is opened.
///
/// # Panics
///
/// If the engine cannot be opened.
pub async fn live_until_the_crash(engine: EngineBuilder, store: &MemoryStore) {
    let living = async {
        let _engine = engine.open_with(store.clone()).await.expect("opens");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = store.crashed() => {}
        () = living => {}
    }
}

/// Reads the frames of a run.
///
/// # Panics
///
/// If the store refuses.
pub async fn frames(store: &MemoryStore, run: RunId) -> Vec<Bytes> {
    store.frames(run, 0, usize::MAX).await.expect("reads")
}

/// Makes a store that holds only the first records of a run, as a crash would have left it.
///
/// # Panics
///
/// If the store refuses.
pub async fn cut(header: &RunHeader, frames: &[Bytes], records: usize) -> MemoryStore {
    let store = MemoryStore::new();
    let header = RunHeader {
        state: RunState::Active,
        ..header.clone()
    };
    let run = header.run;
    let new = NewRun {
        header,
        first: frames[0].clone(),
        rest: Vec::new(),
        durability: Durability::Synced,
    };
    store.create(new).await.expect("creates");
    if records > 1 {
        let append = Append {
            run,
            epoch: Epoch::FIRST,
            first_seq: 1,
            frames: frames[1..records].to_vec().into(),
            end: None,
            taken: 0,
            changes: None,
            durability: Durability::Synced,
        };
        store.append(append).await.expect("appends");
    }
    store.reopen(Surviving::All)
}

/// The outcomes of steps in a journal, in order.
pub fn steps(journal: &Journal) -> Vec<StepCompleted> {
    journal
        .records()
        .iter()
        .filter_map(|record| match &record.event {
            Event::StepCompleted(step) => Some(step.clone()),
            _ => None,
        })
        .collect()
}

/// The ids of the steps of a name, in the order of their outcomes.
pub fn ids_of(journal: &Journal, name: &str) -> Vec<StepId> {
    steps(journal)
        .iter()
        .filter(|step| &*step.name == name)
        .map(|step| step.step)
        .collect()
}

/// Decodes the value of a step that returned one.
///
/// # Panics
///
/// If it returned none, or another type.
pub fn value<T: DeserializeOwned>(step: &StepCompleted) -> T {
    let Some(payload) = step.outcome.value() else {
        panic!("{} has no value: {:?}", step.name, step.outcome);
    };
    rmp_serde::from_slice(payload).expect("is of that type")
}

/// How often notes of [`Edited`] stores were read.
static LOOKS: AtomicUsize = AtomicUsize::new(0);

/// Lets whoever else looks at the store change it before this one goes on, one sooner and the next one
/// later, and some of them much later.
async fn dawdle() {
    let look = LOOKS.fetch_add(1, Ordering::Relaxed);
    let long = if look % 17 == 16 { 150 } else { 0 };
    for _ in 0..look * 7 % 5 + long {
        tokio::task::yield_now().await;
    }
}

/// A store that shows frames other than those that were written, reads notes slowly, and may stumble.
pub struct Edited<F> {
    /// What was written.
    pub store: MemoryStore,
    /// What is made of it.
    pub edit: F,
}

/// What an [`Edited`] store makes of what it holds.
pub trait Edit: Send + Sync + 'static {
    /// Changes frames that are read.
    fn edit(&self, frames: &mut Vec<Bytes>);

    /// Says whether this is refused, by a store that works all the same.
    fn stumbles(&self, _at: Stumble) -> bool {
        false
    }
}

/// What a store may refuse once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stumble {
    /// A commit.
    Commit,
    /// Reading a note.
    Note,
}

impl<F: Fn(&mut Vec<Bytes>) + Send + Sync + 'static> Edit for F {
    fn edit(&self, frames: &mut Vec<Bytes>) {
        self(frames);
    }
}

/// Refuses something when it is told to, once, and changes nothing.
#[derive(Debug, Clone, Default)]
pub struct Stumbles(Arc<Mutex<Option<Stumble>>>);

impl Stumbles {
    /// The next one of these is refused.
    pub fn refuse(&self, next: Stumble) {
        *self.0.lock().expect("no panic") = Some(next);
    }

    /// Says whether it has refused what it was told to.
    pub fn is_over(&self) -> bool {
        self.0.lock().expect("no panic").is_none()
    }
}

impl Edit for Stumbles {
    fn edit(&self, _: &mut Vec<Bytes>) {}

    fn stumbles(&self, at: Stumble) -> bool {
        let mut next = self.0.lock().expect("no panic");
        next.take_if(|next| *next == at).is_some()
    }
}

fn stumbled<T: Send + 'static>() -> BoxFuture<'static, StoreResult<T>> {
    let reason = "it stumbled".to_owned();
    Box::pin(std::future::ready(Err(StoreError::Stopped { reason })))
}

impl<F: Edit> Store for Edited<F> {
    fn create(&self, run: NewRun) -> BoxFuture<'_, StoreResult<Creation>> {
        self.store.create(run)
    }

    fn append(&self, append: Append) -> BoxFuture<'static, StoreResult<()>> {
        self.store.append(append)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, StoreResult<Committed>> {
        if self.edit.stumbles(Stumble::Commit) {
            return stumbled();
        }
        self.store.commit(commit)
    }

    fn put_to_sleep(
        &self,
        run: RunId,
        epoch: Epoch,
        wake_at: Option<Timestamp>,
    ) -> BoxFuture<'_, StoreResult<Released>> {
        self.store.put_to_sleep(run, epoch, wake_at)
    }

    fn revive(&self, reopening: Reopening) -> BoxFuture<'_, StoreResult<Epoch>> {
        self.store.revive(reopening)
    }

    fn delete(&self, runs: Vec<RunId>) -> BoxFuture<'_, StoreResult<u64>> {
        self.store.delete(runs)
    }

    fn asleep(
        &self,
        after: Option<Sleeper>,
        limit: usize,
    ) -> BoxFuture<'_, StoreResult<Vec<Sleeper>>> {
        self.store.asleep(after, limit)
    }

    fn mail(&self, run: RunId, from: u64) -> BoxFuture<'_, StoreResult<Vec<Mail>>> {
        self.store.mail(run, from)
    }

    fn note(&self, key: NoteKey) -> BoxFuture<'_, StoreResult<Option<Bytes>>> {
        if self.edit.stumbles(Stumble::Note) {
            return stumbled();
        }
        Box::pin(async move {
            let note = self.store.note(key).await;
            dawdle().await;
            note
        })
    }

    fn notes(
        &self,
        prefix: NoteKey,
        after: Option<NoteKey>,
        limit: usize,
    ) -> BoxFuture<'_, StoreResult<Vec<(NoteKey, Bytes)>>> {
        Box::pin(async move {
            let notes = self.store.notes(prefix, after, limit).await;
            dawdle().await;
            notes
        })
    }

    fn park(
        &self,
        run: RunId,
        epoch: Epoch,
        parking: Option<Parking>,
    ) -> BoxFuture<'_, StoreResult<()>> {
        self.store.park(run, epoch, parking)
    }

    fn claim(&self, run: RunId, from: u64) -> BoxFuture<'_, StoreResult<Option<Claim>>> {
        Box::pin(async move {
            let mut claim = self.store.claim(run, from).await?;
            if let Some(claim) = &mut claim {
                self.edit.edit(&mut claim.frames);
            }
            Ok(claim)
        })
    }

    fn unfinished(&self) -> BoxFuture<'_, StoreResult<Vec<RunHeader>>> {
        self.store.unfinished()
    }

    fn header(&self, run: RunId) -> BoxFuture<'_, StoreResult<Option<RunHeader>>> {
        self.store.header(run)
    }

    fn frames(
        &self,
        run: RunId,
        from: u64,
        limit: usize,
    ) -> BoxFuture<'_, StoreResult<Vec<Bytes>>> {
        Box::pin(async move {
            let mut frames = self.store.frames(run, from, limit).await?;
            self.edit.edit(&mut frames);
            Ok(frames)
        })
    }

    fn list(&self, query: RunQuery) -> BoxFuture<'_, StoreResult<Vec<RunHeader>>> {
        self.store.list(query)
    }

    fn stopped_cleanly(&self) -> bool {
        self.store.stopped_cleanly()
    }

    fn failure(&self) -> Option<String> {
        self.store.failure()
    }

    fn failed(&self) -> BoxFuture<'static, String> {
        self.store.failed()
    }

    fn check(&self) -> BoxFuture<'_, StoreResult<()>> {
        self.store.check()
    }

    fn close(&self) -> BoxFuture<'_, StoreResult<()>> {
        self.store.close()
    }
}
