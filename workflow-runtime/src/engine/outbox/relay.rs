//! The relay of an outbox: one task that hands its messages to a handler.
//!
//! Owns which message is next. Of each run only the oldest message is on its way, so that a run's messages arrive in
//! order; different runs take turns. A message is removed, durably, after its handler said `Ok`, and not before.
//! What is known between two looks (which runs have something, which wait) is only a memory of the notes. `deliver`
//! is what happens to one message. Never touches a journal.

mod deliver;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use self::deliver::{After, Found, deliver, find};
use super::note::{self, Place};
use super::{Message, RelayOptions};
use crate::clock::Timestamp;
use crate::engine::letters::check_name;
use crate::engine::{EngineError, Shared};
use crate::error::Result;
use crate::id_map::IdMap;
use crate::ids::RunId;
use crate::store::{BoxFuture, NoteKey, StoreResult};

/// Messages that are listed at a time.
const PAGE: usize = 64;

/// Runs whose next attempt is remembered; of more, only the time at which to look for them.
const MAX_WAITING: usize = 10_000;

/// Runs that are known to be ready, at most: more of them can be looked for later.
const MAX_READY: usize = 1024;

/// After how many turns of known runs others are looked for.
const TURNS: usize = 8;

/// How long the clock may go unlooked at: one that was set is noticed after this.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// How soon the store is asked again after it failed.
const AFTER_TROUBLE: Duration = Duration::from_secs(1);

type Handler = Arc<dyn Fn(Message) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// Who takes the messages of an outbox, and how.
#[derive(Clone)]
pub(in crate::engine) struct Relay {
    name: Arc<str>,
    options: RelayOptions,
    handler: Handler,
}

impl Relay {
    pub(in crate::engine) fn new<H, F>(name: &str, options: RelayOptions, handler: H) -> Self
    where
        H: Fn(Message) -> F + Send + Sync + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        Self {
            name: name.into(),
            options,
            handler: Arc::new(move |message| Box::pin(handler(message))),
        }
    }

    pub(in crate::engine) fn name(&self) -> &str {
        &self.name
    }
}

/// The relays of an engine.
#[derive(Default)]
pub(in crate::engine) struct Relays {
    tasks: Mutex<HashMap<Arc<str>, Task>>,
    closing: AtomicBool,
    /// Notified when a task has ended.
    ended: Notify,
}

struct Task {
    bell: Arc<Notify>,
    abort: AbortHandle,
}

impl Relays {
    fn tasks(&self) -> MutexGuard<'_, HashMap<Arc<str>, Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has all relays look for new messages.
    pub(in crate::engine) fn nudge(&self) {
        self.tasks()
            .values()
            .for_each(|task| task.bell.notify_one());
    }

    /// Lets no message be handed over any more; handlers that have one may finish.
    pub(in crate::engine) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.nudge();
    }

    /// Waits until no handler has a message, after [`Relays::close`].
    pub(in crate::engine) async fn drained(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.tasks().is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// Stops all relays at once. What their handlers had is relayed again by the next engine.
    pub(in crate::engine) fn stop(&self) {
        // Apart: a task that ends takes itself out of the list.
        let tasks: Vec<_> = self
            .tasks()
            .values()
            .map(|task| task.abort.clone())
            .collect();
        tasks.iter().for_each(AbortHandle::abort);
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn ended(&self, name: &str) {
        self.tasks().remove(name);
        self.ended.notify_waiters();
    }
}

/// Starts the relay of an outbox.
///
/// # Errors
///
/// If the name cannot be one, or the outbox has a relay already.
pub(in crate::engine) fn serve(shared: &Arc<Shared>, relay: Relay) -> Result<(), EngineError> {
    check_name("outbox", &relay.name)?;
    let mut tasks = shared.relays.tasks();
    if shared.is_closing() {
        return Err(shared.refusal("it is shutting down"));
    }
    if tasks.contains_key(&relay.name) {
        return Err(EngineError::Outbox {
            name: relay.name.to_string(),
            problem: "it is relayed already: an outbox has one handler, which may pass messages on"
                .into(),
        });
    }
    let (name, bell) = (relay.name.clone(), Arc::new(Notify::new()));
    let abort = tokio::spawn(run(Arc::downgrade(shared), relay, bell.clone())).abort_handle();
    tasks.insert(name, Task { bell, abort });
    Ok(())
}

/// Says that the task has ended, however it did.
struct Ending(Weak<Shared>, Arc<str>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.relays.ended(&self.1);
        }
    }
}

async fn run(engine: Weak<Shared>, relay: Relay, bell: Arc<Notify>) {
    let _ending = Ending(engine.clone(), relay.name.clone());
    let mut round = Round::new(relay);
    loop {
        let Some(shared) = engine.upgrade() else {
            return;
        };
        if shared.relays.is_closing() {
            drop(shared);
            while round.flying.join_next().await.is_some() {}
            return;
        }
        let outbox = round.relay.name.clone();
        let outbox = &*outbox;
        let nap = match round.hand_over(&shared).await {
            Ok(()) => round.nap(&shared),
            Err(error) if shared.store.failure().is_some() => {
                tracing::debug!(outbox, %error, "messages are not relayed any more: the store has stopped");
                return;
            }
            Err(error) => {
                tracing::warn!(outbox, %error, "messages could not be relayed: trying again");
                AFTER_TROUBLE
            }
        };
        let nap = shared.services.clock.pace(nap);
        drop(shared);
        tokio::select! {
            biased; // the same in every run of a test; each of them is looked for again in the next round
            ended = round.ended() => round.settle(ended),
            () = bell.notified() => round.look_again = true,
            () = tokio::time::sleep(nap) => {}
        }
    }
}

/// What a relay knows between two looks.
struct Round {
    relay: Relay,
    /// Handlers that have a message.
    flying: JoinSet<(RunId, After)>,
    /// Runs that are known to have something, and how they stand: one that is in here is not looked for.
    runs: IdMap<RunId, Standing>,
    /// Those that are ready, in turn.
    ready: VecDeque<RunId>,
    /// How many had their turn since runs were last looked for.
    turns: usize,
    /// Those that wait, the soonest first.
    waiting: BTreeSet<(Timestamp, RunId)>,
    /// How far the notes were looked through: behind that key; `None`: to the end.
    looking: Option<Option<NoteKey>>,
    /// Messages may have come since the last look began.
    look_again: bool,
    /// When to look again in any case.
    look_at: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Ready,
    Flying,
    Waiting,
}

impl Round {
    fn new(relay: Relay) -> Self {
        Self {
            relay,
            flying: JoinSet::new(),
            runs: IdMap::default(),
            ready: VecDeque::new(),
            turns: 0,
            waiting: BTreeSet::new(),
            looking: None,
            look_again: true,
            look_at: None,
        }
    }

    /// Hands over as many messages as may be on their way at once.
    async fn hand_over(&mut self, shared: &Arc<Shared>) -> StoreResult<()> {
        let now = shared.services.clock.now();
        self.wake(now);
        while self.flying.len() < self.relay.options.concurrency {
            let Some(run) = self.next_run(shared).await? else {
                return Ok(());
            };
            match find(shared, &self.relay, run).await? {
                None => drop(self.runs.remove(&run)),
                Some(Found::Not(until)) => self.wait(run, until),
                Some(Found::Message(parcel)) if parcel.due_at() > now => {
                    self.wait(run, parcel.due_at());
                }
                Some(Found::Message(parcel)) => {
                    self.runs.insert(run, Standing::Flying);
                    let engine = Arc::downgrade(shared);
                    let delivering = deliver(engine, self.relay.clone(), *parcel);
                    self.flying.spawn(async move { (run, delivering.await) });
                }
            }
        }
        Ok(())
    }

    /// Makes runs ready whose wait is over.
    fn wake(&mut self, now: Timestamp) {
        while let Some((at, run)) = self.waiting.first().copied()
            && at <= now
        {
            self.waiting.pop_first();
            self.make_ready(run);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            (self.look_at, self.look_again) = (None, true);
        }
    }

    fn make_ready(&mut self, run: RunId) {
        self.runs.insert(run, Standing::Ready);
        self.ready.push_back(run);
    }

    fn wait(&mut self, run: RunId, until: Timestamp) {
        if self.waiting.len() < MAX_WAITING {
            self.runs.insert(run, Standing::Waiting);
            self.waiting.insert((until, run));
        } else {
            self.runs.remove(&run);
            self.look_at = Some(self.look_at.map_or(until, |at| at.min(until)));
        }
    }

    /// The next run whose turn it is.
    async fn next_run(&mut self, shared: &Shared) -> StoreResult<Option<RunId>> {
        // A run with many messages is always ready: others are looked for all the same.
        while self.ready.is_empty() || (self.turns >= TURNS && self.ready.len() < MAX_READY) {
            self.turns = 0;
            let after = match self.looking.take() {
                Some(after) => after,
                None if std::mem::take(&mut self.look_again) => None,
                None => break,
            };
            if let Err(error) = self.look(shared, after.clone()).await {
                self.looking = Some(after);
                return Err(error);
            }
        }
        self.turns += 1;
        Ok(self.ready.pop_front())
    }

    /// Looks through a page of messages for runs that are not known to have any.
    async fn look(&mut self, shared: &Shared, after: Option<NoteKey>) -> StoreResult<()> {
        let (namespace, outbox) = (&shared.services.namespace, self.relay.name.clone());
        let prefix = note::messages(namespace, &outbox);
        let page = shared.store.notes(prefix, after, PAGE).await?;
        let mut last = None;
        for run in page
            .iter()
            .filter_map(|(key, _)| Place::of(key))
            .map(|place| place.run)
        {
            if last.replace(run) != Some(run) && !self.runs.contains_key(&run) {
                self.make_ready(run);
            }
        }
        // Of a run with many messages the first is enough.
        let last = last.filter(|_| page.len() == PAGE);
        self.looking = last.map(|run| Some(Place::behind(run).message(namespace, &outbox)));
        Ok(())
    }

    /// How long there is nothing to do, unless something happens.
    fn nap(&self, shared: &Shared) -> Duration {
        let clock = &shared.services.clock;
        let soonest = self.waiting.first().map(|(at, _)| *at);
        let soonest = soonest.into_iter().chain(self.look_at).min();
        let nap = clock.nap(LONGEST_NAP);
        soonest.map_or(nap, |at| nap.min(at.since(clock.now())))
    }

    /// Waits for a handler to be done.
    async fn ended(&mut self) -> (RunId, After) {
        loop {
            match self.flying.join_next().await {
                Some(Ok(ended)) => return ended,
                // It was aborted with its runtime; its own panics are caught.
                Some(Err(_)) => {}
                None => return pending().await,
            }
        }
    }

    fn settle(&mut self, (run, after): (RunId, After)) {
        match after {
            After::Next => self.make_ready(run),
            After::Wait(until) => self.wait(run, until),
        }
    }
}
