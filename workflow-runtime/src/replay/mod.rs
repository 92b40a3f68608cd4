//! Replay: what a recorded journal asks of the code, decided without any I/O.
//!
//! Owns the reading of records as *history* (outcomes to be delivered again, in order, and what is
//! known of calls without one) and the verdict on each delivery: does the code that runs now
//! wait for what the journal holds next? It never runs, writes or wakes anything; the driver
//! does what the verdict says.

mod fresh;
mod made;
mod mismatch;
mod past;
mod step;
mod unmade;

use std::collections::{HashSet, VecDeque};
use std::panic::Location;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::digest::InputDigest;
use crate::id_map::{IdMap, IdSet};
use crate::ids::{CallKind, RunId, StepId};
use crate::journal::{
    CancelRequested, Checkpoint, ChildFinished, ChildStarted, Closing, End, Entry, Event,
    RunStarted, RunSucceeds, Says, SignalReceived, StepIntent, UndoCarried,
};

pub use fresh::{FreshFor, OnStale};
pub(crate) use made::MadeCalls;
#[cfg(feature = "testing")]
pub(crate) use mismatch::show as show_value;
pub(crate) use mismatch::{Asked, ChildMismatch, Difference, Mismatch, Told, tell_apart};
#[cfg(feature = "testing")]
pub(crate) use mismatch::{REDACTED, compare_inputs, describe_call, show_differences};
pub(crate) use past::{Fork, Past, Patch};
pub(crate) use step::RecordedStep;

/// A journal as replay needs it.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) started: RunStarted,
    pub(crate) started_at: Timestamp,
    pub(crate) deliveries: VecDeque<Delivery>,
    pub(crate) known: IdMap<StepId, Known>,
    /// Steps that were about to run and have no outcome, and steps that ran and whose outcome counts no more: whoever runs
    /// one of them is to give it the same.
    pub(crate) intents: IdMap<StepId, Delivery>,
    pub(crate) past: Past,
    /// Where the workflow began anew, if it did: nothing before that is in here.
    pub(crate) checkpoint: Option<Box<(Checkpoint, u64)>>,
    /// What it was left by the run that it continues, if it continues one and no checkpoint came since.
    pub(crate) succeeds: Option<Box<RunSucceeds>>,
    /// What the passes before it did and may have to be undone.
    pub(crate) owed: Option<Owed>,
    /// What the record before this one says of that: it counts if this one is a checkpoint.
    announced: Option<Owed>,
    /// If the run was tried again since: children whose failure no longer counts.
    voided_children: Option<Box<IdSet<StepId>>>,
    pub(crate) last_time: Timestamp,
    pub(crate) end: Option<End>,
}

/// What a run that was tried again has not heard of.
pub(crate) struct WasReopened {
    /// Children that were started, in the order of their ids.
    pub(crate) unfinished: Vec<Unfinished>,
}

/// A child whose end is not in its parent's journal, or no longer counts.
pub(crate) struct Unfinished {
    pub(crate) call: StepId,
    pub(crate) child: RunId,
    /// It failed, and that no longer counts.
    pub(crate) voided: bool,
}

/// What earlier passes of a run did and is to be undone if it does not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owed {
    /// The newest record that has such steps.
    pub(crate) newest: u64,
    /// How many there are in all.
    pub(crate) steps: u64,
}

impl Owed {
    /// What a record of that sequence number says.
    fn of(carried: &UndoCarried, seq: u64) -> Option<Self> {
        let newest = match carried.steps.is_empty() {
            true => carried.before?,
            false => seq,
        };
        let steps = carried.owed;
        Some(Self { newest, steps })
    }
}

/// One recorded outcome, to be delivered again.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) seq: u64,
    pub(crate) time: Timestamp,
    pub(crate) what: Recorded,
}

/// What was recorded.
#[derive(Debug)]
pub(crate) enum Recorded {
    /// A step's outcome.
    Step(RecordedStep),
    /// A timer that fired.
    Timer(StepId),
    /// A signal.
    Signal(Box<SignalReceived>),
    /// A child's end.
    Child(Box<ChildFinished>),
    /// A request to cancel.
    Cancel(Box<CancelRequested>),
    /// The beginning of the run's undoing: not delivered, but it has its place in the order.
    Closing(Box<Closing>),
    /// A step that was about to run. It is compared with the code, and never delivered.
    Intent(Box<StepIntent>),
}

impl Recorded {
    /// What a step was given, where it is kept.
    pub(crate) fn kept_input(&self) -> Option<Bytes> {
        match self {
            Self::Step(step) => step.whole().input.clone(),
            Self::Intent(intent) => intent.input.clone(),
            _ => None,
        }
    }
}

impl Delivery {
    /// The call that it belongs to; none for what is sent to the run as a whole.
    pub(crate) fn id(&self) -> Option<StepId> {
        match &self.what {
            Recorded::Step(step) => Some(step.id()),
            Recorded::Timer(timer) => Some(*timer),
            Recorded::Child(child) => Some(child.call),
            Recorded::Signal(_) | Recorded::Cancel(_) | Recorded::Closing(_) => None,
            Recorded::Intent(intent) => Some(intent.step),
        }
    }

    /// Says whether it is no outcome: a step was about to run, and nobody knows more.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.what, Recorded::Intent(_))
    }
}

/// Attempts that failed, and the time at which the next may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailedAttempts {
    pub(crate) attempts: u32,
    pub(crate) next_at: Timestamp,
}

/// What the journal says of a call that has no outcome yet.
#[derive(Debug)]
pub(crate) enum Known {
    /// So many attempts failed, and the next may begin then.
    Failed(FailedAttempts),
    /// It ran before, and that outcome counts no more; so many attempts may have failed since.
    Tried(Box<Delivery>, Option<FailedAttempts>),
    /// The timer is due then.
    Timer { deadline: Timestamp },
    /// The child run was created.
    Child(Box<ChildStarted>),
}

/// A call that the code made and waits for.
#[derive(Debug, Clone)]
pub(crate) struct WaitingCall {
    pub(crate) id: StepId,
    pub(crate) kind: CallKind,
    pub(crate) name: &'static str,
    pub(crate) site: &'static Location<'static>,
    pub(crate) digest: Option<InputDigest>,
    /// How long its outcome may be relied on by a resumed run.
    pub(crate) fresh_for: Option<FreshFor>,
}

/// What is to be done with the next recorded outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Deliver it.
    Deliver,
    /// Deliver it, and warn: the input differs only in the order of a sequence.
    DeliverReordered,
    /// The call was made and dropped: nobody wants it.
    Swallow,
    /// The call waits, but with another input: it has to be looked at.
    OtherInput,
    /// The code does not wait for it.
    Diverged,
}

impl History {
    /// Reads records as history. `None` if they do not begin with the start of a run.
    pub(crate) fn read<E>(
        mut records: impl Iterator<Item = Result<impl Into<Entry>, E>>,
    ) -> Result<Option<Self>, E> {
        let first = records.next().transpose()?.map(Into::into);
        let Some(Entry {
            time,
            says: Says::Event(Event::RunStarted(started)),
            ..
        }) = first
        else {
            return Ok(None);
        };
        let mut history = Self {
            started,
            started_at: time,
            deliveries: VecDeque::new(),
            known: IdMap::default(),
            intents: IdMap::default(),
            past: Past::default(),
            checkpoint: None,
            succeeds: None,
            owed: None,
            announced: None,
            voided_children: None,
            last_time: time,
            end: None,
        };
        for record in records {
            history.add(record?.into());
        }
        Ok(Some(history))
    }

    fn add(&mut self, entry: Entry) {
        let Entry { seq, time, says } = entry;
        self.last_time = time;
        let announced = self.announced.take();
        let event = match says {
            Says::Step(step) => return self.add_step(seq, time, RecordedStep::Framed(step)),
            Says::Event(event) => event,
        };
        let what = match event {
            Event::StepCompleted(step) => {
                return self.add_step(seq, time, RecordedStep::Whole(Box::new(step)));
            }
            Event::TimerFired(fired) => Recorded::Timer(fired.timer),
            Event::AttemptFailed(failed) => {
                if seeded!(AttemptsForgotten) {
                    return;
                }
                let known = Known::Failed(FailedAttempts {
                    attempts: failed.attempt,
                    next_at: failed.next_at,
                });
                self.known.insert(failed.step, known);
                self.past.add(failed.step, seq, false);
                return;
            }
            Event::TimerSet(set) => {
                let known = Known::Timer {
                    deadline: set.deadline,
                };
                self.known.insert(set.timer, known);
                self.past.add(set.timer, seq, false);
                return;
            }
            Event::SignalReceived(signal) => Recorded::Signal(Box::new(signal)),
            Event::RunClosing(closing) => Recorded::Closing(Box::new(closing)),
            Event::CancelRequested(cancel) => Recorded::Cancel(Box::new(cancel)),
            Event::ChildFinished(child) => {
                // What is known of a child is needed when its call is made again.
                self.past.add(child.call, seq, true);
                let what = Recorded::Child(Box::new(child));
                self.deliveries.push_back(Delivery { seq, time, what });
                return;
            }
            Event::ChildStarted(started) => {
                let call = started.call;
                self.known.insert(call, Known::Child(Box::new(started)));
                self.past.add(call, seq, false);
                return;
            }
            Event::StepIntent(intent) => {
                let (step, what) = (intent.step, Recorded::Intent(Box::new(intent)));
                self.past.add(step, seq, false);
                self.intents.insert(step, Delivery { seq, time, what });
                return;
            }
            Event::StaleOutcomeDiscarded(stale) => {
                self.past.forget(stale.step);
                self.deliveries
                    .retain(|delivery| delivery.seq != stale.discarded);
                return;
            }
            Event::RunRecovered(recovered) => {
                for call in recovered.in_flight {
                    self.past.add(call, seq, false);
                }
                return;
            }
            Event::RunReopened(reopened) => {
                self.void(&reopened.voided);
                return;
            }
            Event::Checkpoint(checkpoint) => {
                self.begin_anew(checkpoint, seq);
                self.owed = announced;
                return;
            }
            Event::UndoCarried(carried) => {
                self.announced = Owed::of(&carried, seq);
                return;
            }
            Event::PatchMarker(patch) => {
                self.past.add_patch(patch.name);
                return;
            }
            Event::MessagePushed(pushed) => {
                self.past.add_pushed(pushed.call);
                return;
            }
            Event::RunForked(fork) => {
                self.past_of(fork.origin);
                return;
            }
            Event::RunSucceeds(succeeds) => {
                self.succeeds = Some(Box::new(succeeds));
                return;
            }
            Event::RunStarted(_) => return,
            Event::RunCompleted(_)
            | Event::RunFailed(_)
            | Event::RunAborted(_)
            | Event::RunCancelled(_)
            | Event::RunContinued(_) => {
                self.end = End::of(event);
                return;
            }
        };
        let delivery = Delivery { seq, time, what };
        if let Some(id) = delivery.id() {
            self.has_outcome(id, seq);
        }
        self.deliveries.push_back(delivery);
    }

    fn add_step(&mut self, seq: u64, time: Timestamp, step: RecordedStep) {
        let id = step.id();
        // Not all of them: if it is the last one, its step runs again.
        if seeded!(StepRunAgain) && id.as_bytes()[0] < 64 {
            return;
        }
        self.has_outcome(id, seq);
        let what = Recorded::Step(step);
        self.deliveries.push_back(Delivery { seq, time, what });
    }

    /// A record has the outcome of a call: what was known of it before counts no more.
    fn has_outcome(&mut self, call: StepId, seq: u64) {
        if !self.known.is_empty() {
            self.known.remove(&call);
        }
        if !self.intents.is_empty() {
            self.intents.remove(&call);
        }
        self.past.add(call, seq, true);
    }
}

#[cfg(feature = "testing")]
impl History {
    /// How many outcomes of steps are to be delivered.
    pub(crate) fn steps(&self) -> usize {
        let deliveries = self.deliveries.iter();
        deliveries
            .filter(|delivery| matches!(delivery.what, Recorded::Step(_)))
            .count()
    }

    /// Why the run aborted, if it did or is about to.
    pub(crate) fn aborted(&self) -> Option<Box<str>> {
        let closing = self
            .deliveries
            .iter()
            .find_map(|delivery| match &delivery.what {
                Recorded::Closing(closing) => Some(&closing.cause),
                _ => None,
            });
        match closing.or(self.end.as_ref()) {
            Some(End::Aborted(aborted)) => Some(aborted.reason.clone()),
            _ => None,
        }
    }
}

impl History {
    /// The children that a run has not heard of, if it was tried again: what they had to say while it had ended was
    /// lost.
    pub(crate) fn was_reopened(&self) -> Option<WasReopened> {
        let voided = self.voided_children.as_ref()?;
        let heard: IdSet<StepId> = self.deliveries.iter().filter_map(Delivery::id).collect();
        let unheard = self.known.values().filter_map(|known| match known {
            Known::Child(started) if !heard.contains(&started.call) => Some(Unfinished {
                call: started.call,
                child: started.child,
                voided: voided.contains(&started.call),
            }),
            _ => None,
        });
        let mut unfinished: Vec<_> = unheard.collect();
        unfinished.sort_by_key(|child| child.call); // a table has no order of its own
        Some(WasReopened { unfinished })
    }

    /// All until now was copied from another run. Attempts that failed there without an outcome are
    /// not this run's; the deadlines of its timers are.
    fn past_of(&mut self, origin: RunId) {
        let outcomes: IdSet<StepId> = self.deliveries.iter().filter_map(Delivery::id).collect();
        self.known.retain(|call, known| match known {
            Known::Timer { .. } => true,
            Known::Child(_) => outcomes.contains(call),
            Known::Failed(_) | Known::Tried(..) => false,
        });
        // Nor are steps that were about to run there: whatever runs here has an id of its own.
        self.intents.clear();
        let shared = outcomes.into_iter().chain(self.known.keys().copied());
        let shared = shared.chain(self.past.pushed()).collect();
        let last = self.deliveries.back().map(|delivery| delivery.seq);
        self.past.fork(origin, shared, last);
        if let Some(succeeds) = &mut self.succeeds {
            // What belongs to the line stays with it: the fork neither cancels its children nor holds its tokens.
            succeeds.tokens.clear();
            let children = succeeds.children.iter_mut();
            children.for_each(|child| child.detached = true);
        }
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.0.tokens.clear();
            let children = checkpoint.0.children.iter_mut();
            children.for_each(|child| child.detached = true);
        }
        // Whoever waits for the origin hears how that ends, and not of this one.
        self.started.parent = None;
    }

    /// Forgets what came before a checkpoint, but for what it carries over.
    fn begin_anew(&mut self, checkpoint: Checkpoint, seq: u64) {
        self.deliveries.clear();
        self.known.clear();
        self.intents.clear();
        self.voided_children = None;
        self.past.begin_anew();
        for (name, taken) in &checkpoint.patches {
            self.past.decide_patch(name.clone(), *taken);
        }
        self.checkpoint = Some(Box::new((checkpoint, seq)));
        self.succeeds = None;
    }

    /// Takes records out that no longer count. Attempts at what they were the outcomes of begin anew.
    fn void(&mut self, voided: &[u64]) {
        for call in self.take_out(voided) {
            if self.past.is_copied(call) {
                // It ran elsewhere: here it is made as this run's own, under another id.
                self.past.forget(call);
                self.intents.remove(&call);
                self.known.remove(&call);
            }
        }
    }

    /// The same, for a replay that is only tried: calls keep their ids, so that two replays can be compared.
    pub(crate) fn without(&mut self, voided: &[u64]) {
        self.take_out(voided);
    }

    /// Takes records out, and gives the calls that they were the outcomes of.
    fn take_out(&mut self, voided: &[u64]) -> Vec<StepId> {
        let voided: HashSet<u64> = voided.iter().copied().collect();
        let children = self.voided_children.get_or_insert_default();
        let mut calls = Vec::new();
        for delivery in std::mem::take(&mut self.deliveries) {
            if !voided.contains(&delivery.seq) {
                self.deliveries.push_back(delivery);
                continue;
            }
            let Some(call) = delivery.id() else { continue };
            calls.push(call);
            self.past.void_outcome(call);
            match delivery.what {
                Recorded::Child(_) => drop(children.insert(call)),
                Recorded::Step(_) => drop(self.intents.insert(call, delivery)),
                _ => {}
            }
        }
        self.end = None;
        calls
    }
}

/// Judges the next recorded outcome against what the code waits for.
pub(crate) fn judge(
    recorded: &Recorded,
    waiting: Option<&WaitingCall>,
    was_dropped: bool,
) -> Verdict {
    let Some(call) = waiting else {
        return if was_dropped {
            Verdict::Swallow
        } else {
            Verdict::Diverged
        };
    };
    let (same_name, digest) = match recorded {
        Recorded::Step(step) => (step.is_named(call.name), step.input_digest()),
        Recorded::Intent(intent) => (*intent.name == *call.name, intent.input_digest),
        _ => return Verdict::Deliver,
    };
    if !same_name {
        return Verdict::Diverged; // ids are derived from names, so this is a forged journal
    }
    match call.digest {
        Some(now) => judge_input(&digest, &now),
        None => Verdict::OtherInput,
    }
}

/// Judges the child that the journal knows of a call against the one that the code asks for.
pub(crate) fn judge_child(recorded: &ChildStarted, now: &ChildStarted) -> Verdict {
    if recorded.workflow != now.workflow || recorded.child != now.child {
        return Verdict::Diverged; // both are derived from the call, so this is a forged journal
    }
    judge_input(&recorded.input_digest, &now.input_digest)
}

fn judge_input(recorded: &InputDigest, now: &InputDigest) -> Verdict {
    if now.strict == recorded.strict {
        Verdict::Deliver
    } else if now.unordered.is_some() && now.unordered == recorded.unordered {
        Verdict::DeliverReordered
    } else {
        Verdict::OtherInput
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn digests(strict: u8, unordered: Option<u8>) -> InputDigest {
        InputDigest {
            strict: Digest::from_bytes([strict; 16]),
            unordered: unordered.map(|byte| Digest::from_bytes([byte; 16])),
        }
    }

    #[test]
    fn an_input_fits_if_it_is_the_same_or_the_same_in_another_order() {
        let recorded = digests(1, Some(5));
        let judged = |now| judge_input(&recorded, &now);
        assert_eq!(judged(digests(1, Some(5))), Verdict::Deliver);
        assert_eq!(judged(digests(1, None)), Verdict::Deliver);
        assert_eq!(judged(digests(2, Some(5))), Verdict::DeliverReordered);
        assert_eq!(judged(digests(2, Some(6))), Verdict::OtherInput);
        assert_eq!(judged(digests(2, None)), Verdict::OtherInput);
        let without = digests(1, None);
        assert_eq!(
            judge_input(&without, &digests(2, None)),
            Verdict::OtherInput
        );
    }

    #[test]
    fn a_child_of_another_name_or_another_id_is_another_child() {
        let started = |workflow: &str, child: u8, digest| ChildStarted {
            call: StepId::from_bytes([1; 16]),
            child: RunId::from_bytes([child; 16]),
            workflow: workflow.into(),
            scope: "".into(),
            source: "".into(),
            input_digest: digests(digest, None),
            input: None,
            detached: false,
        };
        let recorded = started("ship", 1, 1);
        let judged = |now| judge_child(&recorded, &now);
        assert_eq!(judged(started("ship", 1, 1)), Verdict::Deliver);
        assert_eq!(judged(started("ship", 1, 2)), Verdict::OtherInput);
        assert_eq!(judged(started("bill", 1, 1)), Verdict::Diverged);
        assert_eq!(judged(started("ship", 2, 1)), Verdict::Diverged);
        assert_eq!(judged(started("bill", 2, 1)), Verdict::Diverged);
    }
}
