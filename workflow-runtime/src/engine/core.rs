//! What one run's driver and the calls inside the run share.
//!
//! Owns the run's table of waiting calls and its outbox of records to be written. How far the run is, is in `phases`.
//! The driver decides what is delivered when; a call only registers, waits, and hands in what its
//! body made. Nothing in here waits, and no lock is held while user code runs.

mod bodies;
mod caller;
mod calls;
pub(crate) mod children;
mod clearance;
mod expected;
mod keyed;
pub(crate) mod outside;
mod passes;
mod past;
mod phases;
mod tried;
pub(crate) mod undo;
#[cfg(feature = "testing")]
pub(crate) mod waits;

use std::hint::cold_path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;

use self::caller::Caller;
use self::calls::Calls;
use self::outside::Outside;
use super::Services;
use super::obstacle::Obstacle;
use super::prepared::EncodedCall;
use super::signal::{BodyWaker, CallWaker, RunSignal, wake_by_engine};
use crate::clock::Timestamp;
use crate::context::WorkflowMetadata;
use crate::error::Error;
use crate::id_map::{IdMap, IdSet};
use crate::ids::{RunId, StepId};
use crate::journal::{Draft, Event, Outcome, RunAborted};
use crate::replay::{Fork, Known, Past, WaitingCall};
use crate::store::{Changes, StoreError};

pub(crate) use bodies::Began;
pub(crate) use caller::Woken;
pub(crate) use clearance::{Asks, BeganBody, Clearance, Intended};
pub(crate) use keyed::KeyedTurn;
pub(crate) use phases::Phase;

/// Shared between the driver of one run and the calls inside it.
pub(crate) struct RunCore {
    identity: WorkflowMetadata,
    /// The runs that this one was forked from, the oldest first.
    forks: Vec<Fork>,
    pub(crate) services: Arc<Services>,
    pub(crate) signal: Arc<RunSignal>,
    /// The waker that the workflow is polled with.
    waker: Waker,
    /// The time of the last delivery. Set under the lock, by the driver; every call asks for it.
    now: AtomicU64,
    /// Blocking bodies that have begun and not returned, also those whose calls were dropped.
    blocking: AtomicUsize,
    /// The run is to leave once what it began has finished: a copy of what the phase says, to be looked at without the
    /// lock. It is never taken back.
    leaves: AtomicBool,
    /// Something keeps the run from going on: a copy too.
    is_troubled: AtomicBool,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// The recorded outcomes are used up: what leaves the run may leave it, also while it closes.
    went_live: bool,
    /// Calls that were polled and have not been given their outcome yet.
    calls: Calls,
    /// Calls that were polled and dropped, whose outcome may still come up; `None` if there was none yet.
    dropped: Option<Box<IdSet<StepId>>>,
    /// What the journal says about calls without an outcome: failed attempts, set timers.
    known: Option<Box<IdMap<StepId, Known>>>,
    /// How far the code got before; `None` if the journal knows nothing that it has yet to come to.
    /// Apart, like all that most runs never have: every waiting run keeps its state in memory.
    past: Option<Box<Past>>,
    /// Records to be written, in order.
    outbox: Vec<Draft>,
    /// Bodies that have begun and not ended.
    bodies: usize,
    /// What keeps the run from going on.
    trouble: Option<Box<Trouble>>,
    /// A call that is asked to show its input, and the answer.
    evidence: Option<Box<(StepId, Option<Bytes>)>>,
    /// Recorded outcomes are still to come: what the code does now, it did before.
    repeating: bool,
    /// Signals, children, published values: most runs have none.
    outside: Option<Box<Outside>>,
    /// Idempotency keys that the code has used: most runs use none.
    keyed: Option<Box<keyed::KeyedCalls>>,
    /// How much of the journal survives a power cut.
    prefix: clearance::Prefix,
    /// The waker of the last body, made to wake the workflow, if nobody has it any more.
    spare_waker: Option<BodyWaker>,
}

impl State {
    /// Makes a call known, and says whether the journal has its outcome.
    fn register(&mut self, view: WaitingCall, caller: Caller) -> bool {
        let WaitingCall { id, name, site, .. } = view;
        let past = self.past.as_mut();
        let recorded = past.is_some_and(|past| past.make(id, view.digest.as_ref()));
        let taken = self.calls.insert(id, Waiting::new(view, caller, recorded));
        // It cannot be: ids are claimed one by one. If it were, waiting for ever would hide it.
        if let Some(first) = taken {
            cold_path();
            let error = Error::fatal(format!(
                "two calls of `{name}` share {id}, at {} and at {site}: this is a bug of \
                 workflow-runtime",
                first.view.site
            ));
            let trouble = Trouble::Fail(error);
            self.trouble.get_or_insert_with(|| Box::new(trouble));
        }
        recorded
    }

    /// What a call is to do that has not been given its outcome.
    fn undelivered_turn(&mut self, id: StepId, handed_in: bool, recorded: bool) -> Turn {
        if handed_in || self.trouble.is_some() {
            return Turn::Wait { show_input: false };
        }
        if recorded || self.phase == Phase::Replaying {
            let asked = self.evidence.as_deref();
            let show_input = matches!(asked, Some((asked, None)) if *asked == id);
            return Turn::Wait { show_input };
        }
        match self.phase {
            Phase::Live => {
                let known = self.known.as_mut();
                Turn::Run(known.and_then(|known| known.remove(&id)))
            }
            Phase::Replaying | Phase::Winding | Phase::Pausing | Phase::Closing => Turn::Run(None),
        }
    }
}

/// What keeps a run from going on.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A person has to help.
    Park(Obstacle),
    /// The store does not answer a call any more: that is no outcome, the next process asks again.
    Store(StoreError),
    /// The run fails: a call cannot give the workflow a value of its type.
    Fail(Error),
    /// The workflow ended itself.
    Abort(RunAborted),
    /// The workflow begins anew with these arguments.
    Checkpoint(Bytes),
    /// The workflow goes on as a new run.
    Continue(EncodedCall),
}

struct Waiting {
    view: WaitingCall,
    caller: Caller,
    delivered: Option<Delivered>,
    /// The outcome was handed in and is on its way to the journal.
    handed_in: bool,
    /// It only waits for this time, which the journal knows.
    due: Option<Timestamp>,
    /// The journal has its outcome: it waits for that, whatever the phase.
    recorded: bool,
    /// The waker of the attempt that runs and waits.
    body: Option<Arc<CallWaker>>,
    /// Whether its intent is on record.
    intent: clearance::Intent,
}

impl Waiting {
    fn new(view: WaitingCall, caller: Caller, recorded: bool) -> Self {
        Self {
            view,
            caller,
            delivered: None,
            handed_in: false,
            due: None,
            recorded,
            body: None,
            intent: clearance::Intent::default(),
        }
    }
}

/// What a call is given.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// An outcome from the journal, to be decoded.
    Recorded(Outcome),
    /// What the call itself handed in is durable now; it has the value.
    Durable,
}

/// What a polled call finds.
pub(crate) enum Turn {
    /// Its outcome.
    Take(Delivered),
    /// It may run or go on running its body.
    Run(Option<Known>),
    /// It waits; if asked to, it shows its input first.
    Wait { show_input: bool },
}

impl RunCore {
    pub(crate) fn new(
        identity: WorkflowMetadata,
        services: Arc<Services>,
        known: IdMap<StepId, Known>,
        mut past: Past,
        now: Timestamp,
        phase: Phase,
    ) -> Arc<Self> {
        let past_counts = !past.is_blank();
        let signal = Arc::<RunSignal>::default();
        Arc::new(Self {
            identity,
            forks: past.take_forks(),
            services,
            waker: signal.clone().into(),
            signal,
            now: AtomicU64::new(now.as_micros()),
            blocking: AtomicUsize::new(0),
            leaves: AtomicBool::new(false),
            is_troubled: AtomicBool::new(false),
            state: Mutex::new(State {
                phase,
                went_live: phase == Phase::Live,
                calls: Calls::default(),
                dropped: None,
                known: (!known.is_empty()).then(|| Box::new(known)),
                past: past_counts.then(|| Box::new(past)),
                outbox: Vec::new(),
                bodies: 0,
                trouble: None,
                evidence: None,
                repeating: phase == Phase::Replaying,
                outside: None,
                keyed: None,
                prefix: clearance::Prefix::default(),
                spare_waker: None,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn run(&self) -> RunId {
        self.identity.run_id
    }

    pub(crate) fn identity(&self) -> &WorkflowMetadata {
        &self.identity
    }

    pub(crate) fn metadata(&self) -> WorkflowMetadata {
        WorkflowMetadata {
            run_id: self.ambient_run(),
            ..self.identity.clone()
        }
    }

    pub(crate) fn begin_blocking(&self) {
        self.blocking.fetch_add(1, Ordering::AcqRel);
        self.services.under_way.begin();
    }

    pub(crate) fn end_blocking(&self) {
        if self.blocking.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.signal.nudge(); // the run may wait for this to be undone
        }
        self.services.under_way.end();
    }

    /// How many blocking bodies run.
    pub(crate) fn blocking(&self) -> usize {
        self.blocking.load(Ordering::Acquire)
    }

    /// The time of the last delivery.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::Acquire))
    }

    /// Time goes on to a delivery. By the driver, which alone delivers.
    fn set_now(&self, now: Timestamp) {
        self.now.store(now.as_micros(), Ordering::Release);
    }

    /// The waker that the workflow is polled with.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    // --- what calls do -----------------------------------------------------------------

    /// Makes a call known when it is first polled.
    pub(crate) fn register(&self, view: WaitingCall, waker: &Waker) {
        let caller = Caller::of(waker, &self.waker);
        let mut state = self.state();
        state.register(view, caller);
        self.note_trouble(&state);
    }

    /// The same, and says what the call is to do now.
    ///
    /// If what it asks for before its body starts is given, and it may run, its body has begun.
    pub(crate) fn register_for_turn(
        &self,
        view: WaitingCall,
        waker: &Waker,
        asks: Option<Asks>,
    ) -> (Turn, Option<Began>) {
        let (id, caller) = (view.id, Caller::of(waker, &self.waker));
        let mut state = self.state();
        let recorded = state.register(view, caller);
        self.note_trouble(&state);
        let turn = state.undelivered_turn(id, false, recorded);
        let began = match (&turn, asks) {
            (Turn::Run(None), Some(asks)) => Some(self.begin_in(&mut state, id, asks, waker)),
            _ => None,
        };
        (turn, began)
    }

    /// Says what a registered call is to do now.
    pub(crate) fn turn(&self, id: StepId, waker: &Waker) -> Turn {
        let mut state = self.state();
        let state = &mut *state;
        let Some(call) = state.calls.get_mut(&id) else {
            return Turn::Wait { show_input: false };
        };
        if let Some(delivered) = call.delivered.take() {
            state.calls.remove(&id);
            return Turn::Take(delivered);
        }
        call.caller.follow(waker, &self.waker);
        let (handed_in, recorded) = (call.handed_in, call.recorded);
        state.undelivered_turn(id, handed_in, recorded)
    }

    /// Takes the outcome of a call; the call becomes ready once it is durable.
    pub(crate) fn hand_in(&self, id: StepId, outcome: Draft) {
        let mut state = self.state();
        if let Some(call) = state.calls.get_mut(&id) {
            call.handed_in = true;
        }
        state.outbox.push(outcome);
    }

    /// A call only waits for a time that the journal knows.
    pub(crate) fn set_due(&self, id: StepId, due: Timestamp) {
        if let Some(call) = self.state().calls.get_mut(&id) {
            call.due = Some(due);
        }
    }

    /// When the run has to be woken, if all that it waits for is in the journal or comes by letter.
    /// `None`: it has to stay.
    pub(crate) fn may_sleep(&self) -> Option<Option<Timestamp>> {
        let state = self.state();
        let outside = state.outside.as_ref();
        let sends = outside.is_some_and(|outside| outside.has_changes());
        if state.phase != Phase::Live || state.bodies > 0 || !state.outbox.is_empty() || sends {
            return None;
        }
        let waits_for_letter = outside.is_some_and(|outside| outside.waits_for_something());
        if state.calls.is_empty() && !waits_for_letter {
            return None; // it waits for something that is not durable
        }
        let mut wake_at: Option<Timestamp> = None;
        for call in state.calls.values() {
            let due = call.due.filter(|_| !call.handed_in)?;
            wake_at = Some(wake_at.map_or(due, |at| at.min(due)));
        }
        Some(wake_at)
    }

    /// Says whether a letter may be what the run waits for.
    pub(crate) fn waits_for_letters(&self) -> bool {
        let state = self.state();
        let outside = state.outside.as_ref();
        outside.is_some_and(|outside| outside.waits_for_something())
    }

    /// Takes a record that is no outcome.
    pub(crate) fn annotate(&self, event: &Event) {
        let draft = Draft::of(event);
        self.state().outbox.push(draft);
    }

    /// Shows the input of a call that was asked for it.
    pub(crate) fn show_input(&self, input: Bytes) {
        if let Some(evidence) = &mut self.state().evidence {
            evidence.1 = Some(input);
        }
    }

    /// Forgets a call that was dropped before it was given its outcome.
    pub(crate) fn drop_call(&self, id: StepId) {
        let mut state = self.state();
        let Some(call) = state.calls.remove(&id) else {
            return;
        };
        if call.intent.is_written() {
            state.unannounce(id);
        }
        // Live, an outcome can only come if it was handed in already. In replay any recorded
        // one can: that the call was dropped is itself part of the replay.
        if call.handed_in || call.recorded || state.phase == Phase::Replaying {
            state.dropped.get_or_insert_default().insert(id);
        }
    }

    // --- what the driver does ----------------------------------------------------------

    /// The call that an outcome belongs to, if it waits.
    pub(crate) fn waiting(&self, id: StepId) -> Option<WaitingCall> {
        self.state().calls.get(&id).map(|call| call.view.clone())
    }

    /// All calls that wait, in the order of their source lines.
    pub(crate) fn all_waiting(&self) -> Vec<WaitingCall> {
        let state = self.state();
        let mut calls: Vec<_> = state.calls.values().map(|call| call.view.clone()).collect();
        if let Some(outside) = &state.outside {
            calls.extend(outside.waiting_children());
        }
        drop(state);
        calls.sort_by_key(|call| (call.site.file(), call.site.line(), call.id));
        calls
    }

    /// Calls whose bodies were woken before `deadline` and not polled since. Each is named once.
    pub(crate) fn take_unpolled(&self, deadline: Timestamp) -> Vec<WaitingCall> {
        let mut state = self.state();
        let calls = state.calls.values_mut();
        let unpolled = calls.filter(|call| {
            let since = call.body.as_ref().and_then(|body| body.unpolled_since());
            since.is_some_and(|since| since <= deadline)
        });
        let named = unpolled.map(|call| {
            call.body = None;
            call.view.clone()
        });
        named.collect()
    }

    /// Says whether all these calls, and all that the journal knows of, were made by now.
    pub(crate) fn knows_all(&self, mut ids: impl Iterator<Item = StepId>) -> bool {
        let state = self.state();
        let dropped = state.dropped.as_ref();
        let made = |id: &StepId| {
            state.calls.contains_key(id) || dropped.is_some_and(|dropped| dropped.contains(id))
        };
        let mut known = state.known.iter().flat_map(|known| known.keys());
        known.all(made) && ids.all(|id| made(&id))
    }

    /// Says whether a call was made and dropped, and forgets that it was.
    pub(crate) fn take_dropped(&self, id: StepId) -> bool {
        let mut state = self.state();
        let dropped = state.dropped.as_mut();
        dropped.is_some_and(|dropped| dropped.remove(&id))
    }

    /// Gives a waiting call its outcome, and says who is to be woken; nobody if it does not wait any more. By the driver.
    pub(crate) fn deliver(
        &self,
        id: StepId,
        time: Timestamp,
        delivered: Delivered,
    ) -> Option<Woken> {
        let mut state = self.state();
        // In tolerant replay an older outcome can follow a newer one; time goes on all the same.
        self.set_now(self.now().max(time));
        if state.phase != Phase::Replaying
            && let Some(past) = &mut state.past
        {
            past.pass_all();
        }
        match state.calls.get_mut(&id) {
            Some(call) => {
                call.delivered = Some(delivered);
                Some(call.caller.woken())
            }
            None => {
                if let Some(dropped) = &mut state.dropped {
                    dropped.remove(&id);
                }
                None
            }
        }
    }

    /// Asks a waiting call to show its input.
    pub(crate) fn ask_for_input(&self, id: StepId) {
        let waker = {
            let mut state = self.state();
            state.evidence = Some(Box::new((id, None)));
            let call = state.calls.get(&id);
            call.map(|call| call.caller.waker(&self.waker))
        };
        if let Some(waker) = waker {
            wake_by_engine(&waker);
        }
    }

    /// Takes the input that a call showed.
    pub(crate) fn take_input(&self) -> Option<Bytes> {
        self.state().evidence.take().and_then(|evidence| evidence.1)
    }

    /// Takes what is to be written, under one lock: the records in exchange for an empty list, what changes
    /// with them, and whether a sync is wanted that they do not bring.
    pub(crate) fn take_outgoing(&self, empty: &mut Vec<Draft>) -> (Option<Box<Changes>>, bool) {
        let mut state = self.state();
        std::mem::swap(&mut state.outbox, empty);
        let changes = state
            .outside
            .as_mut()
            .and_then(|outside| outside.take_changes());
        (changes, std::mem::take(&mut state.prefix.wanted))
    }

    /// The run only waits: gives back room that it may not need for days.
    pub(crate) fn rest(&self) {
        let mut state = self.state();
        state.outbox.shrink_to_fit();
        state.spare_waker = None;
    }

    /// Whether anything durable is waited for.
    pub(crate) fn waits_on_nothing(&self) -> bool {
        let state = self.state();
        let outside = state.outside.as_ref();
        state.calls.is_empty() && !outside.is_some_and(|outside| outside.waits_for_something())
    }
}
