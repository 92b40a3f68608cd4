//! Step control: what steps do in a test, and what was asked of them.
//!
//! Owns the rules that a test gives its steps and the list of calls. The rules are read when an attempt begins;
//! the engine then retries, times out and journals what stands in for a body as it does with bodies. No
//! lock is held while code of the test runs.

mod calls;
mod setting;
mod show;
mod standing;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

pub use calls::{Call, CallAttempt, Calls};
pub(super) use show::{in_words, show_payload};
pub use standing::{AsyncAnswer, Fallible};

use self::standing::{Error, Failing, Stub, guarded};
use crate::call::{Step, StepDefinition};
use crate::clock::Timestamp;
use crate::engine::obstacle::Obstacle;
use crate::engine::tested::{Act, ActKind, Plan, PlannedAttempt, Tested};
use crate::ids::{RunId, StepId};
use crate::payload::Payloads;
use crate::store::ParkReason;

/// What a test has in its hands of an engine.
#[derive(Default)]
pub(super) struct Control {
    state: Mutex<State>,
    /// Told whenever a run was driven as far as it goes.
    pub(super) rested: Notify,
    rests: AtomicU64,
}

#[derive(Default)]
struct State {
    rules: HashMap<StepKey, Rule>,
    refuses_unstubbed: bool,
    calls: Vec<Call>,
    /// Where in the list a call is.
    places: HashMap<(RunId, StepId), usize>,
    /// What was wrong with the test itself.
    faults: Vec<String>,
}

/// Which function a step is. Two of one name are told apart by where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct StepKey(&'static str, &'static str, u32);

impl StepKey {
    fn of(definition: &StepDefinition) -> Self {
        Self(definition.name, definition.file, definition.line)
    }
}

/// What a step does in a test.
#[derive(Default)]
struct Rule {
    delay: Duration,
    failing: Option<Failing>,
    then: Then,
}

/// What an attempt does that is not made to fail.
#[derive(Default, Clone)]
enum Then {
    /// What the test says of steps that it says nothing of.
    #[default]
    Unsaid,
    Body,
    Stub(Stub),
    Panic(Arc<str>),
}

impl Control {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the rule of a step.
    fn rule<S: Step>(&self, change: impl FnOnce(&mut Rule)) {
        let key = StepKey::of(S::DEFINITION);
        change(self.state().rules.entry(key).or_default());
    }

    fn refuse_unstubbed(&self) {
        self.state().refuses_unstubbed = true;
    }

    /// How often runs have come to rest.
    pub(super) fn rests(&self) -> u64 {
        self.rests.load(Ordering::Acquire)
    }

    /// What was wrong with the test itself, told once.
    fn take_faults(&self) -> Vec<String> {
        std::mem::take(&mut self.state().faults)
    }

    /// Notes what is wrong with the test, and says why the run cannot go on. Values are in the detail alone.
    fn fault(&self, reason: ParkReason, report: String, detail: Option<String>) -> Obstacle {
        let told = match &detail {
            Some(detail) => format!("{report}\n{detail}"),
            None => report.clone(),
        };
        self.state().faults.push(told);
        Obstacle::new(reason, report).detail(detail)
    }

    /// What an attempt does according to its rule.
    fn act(&self, attempt: &PlannedAttempt, rule: Ruled, payloads: &Payloads) -> Act {
        let definition = attempt.definition;
        match rule.error {
            Error::Not => {}
            Error::Is(value) => return Act::StandIn(Box::pin(async move { Ok(value()) })),
            Error::Ask(ask) => {
                let asked =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ask(attempt.attempt)));
                match asked {
                    Ok(None) => {}
                    Ok(Some(value)) => return Act::StandIn(Box::pin(async move { Ok(value) })),
                    Err(panic) => {
                        let message = crate::call::outcome::panic_message(panic.as_ref());
                        return Act::Refuse(self.at_fault(definition, &message));
                    }
                }
            }
        }
        match rule.then {
            Then::Body => Act::Body,
            Then::Unsaid if !rule.refuses_unstubbed => Act::Body,
            Then::Unsaid => {
                let report = show::unstubbed(attempt);
                Act::Refuse(self.fault(ParkReason::MissingResource, report, None))
            }
            Then::Panic(message) => Act::StandIn(Box::pin(async move {
                // A panic of its own kind: it is not to be reported as one of the test's.
                std::panic::resume_unwind(Box::new(message.to_string()))
            })),
            Then::Stub(stub) => match (stub.answer)(attempt, payloads) {
                Ok(answer) => Act::StandIn(guarded(answer)),
                Err(problem) => {
                    let (report, detail) = show::undecodable(attempt, &stub, &problem, payloads);
                    Act::Refuse(self.fault(ParkReason::Undecodable, report, Some(detail)))
                }
            },
        }
    }
}

/// What the rule of a step says of one attempt.
struct Ruled {
    error: Error,
    then: Then,
    refuses_unstubbed: bool,
}

impl Tested for Control {
    fn plan(&self, attempt: &PlannedAttempt, payloads: &Payloads) -> Plan {
        let (delay, ruled) = {
            let mut state = self.state();
            let refuses_unstubbed = state.refuses_unstubbed;
            let rule = state.rules.entry(StepKey::of(attempt.definition));
            let rule = rule.or_default();
            let ruled = Ruled {
                error: rule.failing.as_mut().map_or(Error::Not, Failing::next),
                then: rule.then.clone(),
                refuses_unstubbed,
            };
            (rule.delay, ruled)
        };
        let act = self.act(attempt, ruled, payloads);
        Plan { delay, act }
    }

    fn began(&self, attempt: PlannedAttempt, act: ActKind, at: Timestamp, payloads: &Payloads) {
        let begun = CallAttempt::new(&attempt, act, at);
        let mut state = self.state();
        let state = &mut *state;
        let id = (attempt.run, attempt.call);
        match state.places.get(&id) {
            Some(place) => state.calls[*place].attempts.push(begun),
            None => {
                state.places.insert(id, state.calls.len());
                state.calls.push(Call::new(attempt, begun, payloads));
            }
        }
    }

    fn at_fault(&self, definition: &StepDefinition, message: &str) -> Obstacle {
        let report = show::stand_in_panicked(definition);
        let detail = format!("  the panic: {message}");
        self.fault(ParkReason::Panicked, report, Some(detail))
    }

    fn rested(&self) {
        self.rests.fetch_add(1, Ordering::AcqRel);
        self.rested.notify_waiters();
    }
}

/// Fails the test when its engine goes, if something was wrong with the test itself that nobody may have seen:
/// the run is parked then, and a test need not look at that.
pub(super) struct TellFaults(pub(super) Arc<Control>);

impl Drop for TellFaults {
    fn drop(&mut self) {
        let faults = self.0.take_faults();
        if faults.is_empty() {
            return;
        }
        let told = faults.join("\n\n");
        if std::thread::panicking() {
            eprintln!("{told}"); // the test fails already, perhaps with a text that is hard to read
        } else {
            panic!("{told}");
        }
    }
}
