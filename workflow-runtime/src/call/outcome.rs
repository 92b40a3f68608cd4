//! How an attempt is judged: outcome, retry, or neither.
//!
//! Owns the retry policy and the step from "the body returned this" to "this record is written".
//! It decides and encodes; it neither writes nor waits.

use std::any::Any;
use std::hint::cold_path;
use std::panic::Location;
use std::time::Duration;

use super::advance::Made;
use super::returns::{Decoded, Returns};
use super::{Announced, StepDefinition};
use crate::clock::Timestamp;
use crate::engine::Config;
use crate::engine::Services;
use crate::engine::obstacle::Obstacle;
use crate::error::{Error, Interrupted, Retry};
use crate::ids::StepId;
use crate::journal::{AttemptFailed, Draft, Event, Outcome, Source, StepCompletedParts};
use crate::payload::{PayloadError, Payloads, Place};

/// How much of a panic's message is kept.
const PANIC_MESSAGE_LIMIT: usize = 4096;

/// How an attempt ended.
pub(super) enum AttemptEnd<R> {
    /// The body returned.
    Value {
        value: R,
        /// It said on its way that its work had been done already.
        already_done: bool,
    },
    /// The body panicked.
    Panicked { message: String, misuse: bool },
    /// The attempt was past its deadline.
    TimedOut,
    /// An earlier process was about to begin it, and it is not to be run again.
    Interrupted,
}

/// What is to be done about it.
pub(super) enum Settled<R> {
    /// This is the outcome, and what it gives the workflow.
    Done {
        outcome: Outcome,
        decoded: Decoded<R>,
    },
    /// Record the failure and try again then.
    Retry { event: Event, at: Timestamp },
    /// Nothing can be recorded.
    Park(Obstacle),
}

/// How often, how long and how far apart attempts are; `None` is what the engine says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    pub(super) max_attempts: Option<u32>,
    pub(super) backoff: Option<(Duration, Duration)>,
    pub(super) timeout: Option<Duration>,
    pub(super) at_most_once: bool,
}

/// A policy with nothing left open.
#[derive(Debug, Clone, Copy)]
pub(super) struct FullPolicy {
    max_attempts: u32,
    backoff: (Duration, Duration),
    timeout: Option<Duration>,
    at_most_once: bool,
}

impl Policy {
    pub(super) fn of(definition: &StepDefinition) -> Self {
        let at_most_once = definition.announced == Announced::AtMostOnce;
        Self {
            max_attempts: match at_most_once {
                true => Some(1),
                false => definition.max_attempts,
            },
            backoff: definition.backoff,
            timeout: definition.timeout,
            at_most_once,
        }
    }

    pub(super) fn over(&self, config: &Config) -> FullPolicy {
        FullPolicy {
            max_attempts: self.max_attempts.unwrap_or(config.max_attempts),
            backoff: self.backoff.unwrap_or(config.backoff),
            timeout: self.timeout,
            at_most_once: self.at_most_once,
        }
    }
}

impl FullPolicy {
    /// How long to wait after attempt number `failed`: between the shortest wait and that wait
    /// doubled per failed attempt, never above the longest. Where in between comes from the
    /// step id, so that many steps that failed together do not come back together.
    fn delay(&self, step: StepId, failed: u32) -> Duration {
        let (shortest, longest) = self.backoff;
        let ceiling = shortest
            .saturating_mul(2u32.saturating_pow(failed.min(31)))
            .min(longest);
        let mut hash = blake3::Hasher::new();
        hash.update(step.as_bytes());
        hash.update(&failed.to_le_bytes());
        let mut draw = [0; 8];
        hash.finalize_xof().fill(&mut draw);
        let share = u64::from_le_bytes(draw) as f64 / u64::MAX as f64;
        shortest + ceiling.saturating_sub(shortest).mul_f64(share)
    }
}

/// Judges an attempt that has ended.
pub(super) fn settle<R>(
    returns: &Returns<R>,
    policy: FullPolicy,
    name: &'static str,
    made: &Made<'_>,
    end: AttemptEnd<R>,
    services: &Services,
) -> Settled<R> {
    let payloads = &services.payloads.at(Place::step_outcome(made.id));
    let (retry, outcome) = match end {
        AttemptEnd::Value {
            value,
            already_done,
        } => {
            if let Some(outcome) = returns.already_done(payloads, &value) {
                cold_path();
                return finish(returns, name, payloads, outcome);
            }
            let outcome = returns.encode(payloads, &value);
            match returns.failure(&value) {
                Some(retry) => (retry, outcome),
                None => {
                    let outcome = outcome.map(|outcome| success(outcome, already_done));
                    return finish(returns, name, payloads, outcome);
                }
            }
        }
        AttemptEnd::Panicked { message, misuse } => {
            cold_path();
            let retry = if misuse { Retry::Fatal } else { Retry::Policy };
            let error = Error::new(format!("step `{name}` panicked: {message}"));
            (retry, payloads.encode(&error).map(Outcome::Broken))
        }
        AttemptEnd::Interrupted => (Retry::Fatal, Ok(made.interrupted())),
        // It may go on where nobody sees it, so it may have its effect still.
        AttemptEnd::TimedOut if policy.at_most_once => (Retry::Fatal, Ok(made.interrupted())),
        AttemptEnd::TimedOut => {
            cold_path();
            let limit = policy.timeout.unwrap_or_default();
            let error = Error::new(format!("step `{name}` took longer than its {limit:?}"));
            (Retry::Policy, payloads.encode(&error).map(Outcome::Broken))
        }
    };
    let delay = match retry {
        Retry::Fatal => None,
        _ if made.attempt >= policy.max_attempts => None,
        Retry::After(delay) => Some(delay),
        Retry::Policy => Some(policy.delay(made.id, made.attempt)),
    };
    match (delay, outcome) {
        (Some(delay), Ok(failure)) => {
            let at = services.clock.now().after(delay);
            services.counters.retried();
            let event = Event::AttemptFailed(AttemptFailed {
                step: made.id,
                name: name.into(),
                attempt: made.attempt,
                next_at: at,
                failure,
            });
            Settled::Retry { event, at }
        }
        (_, outcome) => finish(returns, name, payloads, outcome),
    }
}

/// The outcome of a body that succeeded, with what it said on its way.
fn success(outcome: Outcome, already_done: bool) -> Outcome {
    match outcome {
        Outcome::Ok(payload) if already_done => Outcome::AlreadyDone(payload),
        outcome => outcome,
    }
}

/// Makes an outcome final: what is recorded is what can be read back.
pub(super) fn finish<R>(
    returns: &Returns<R>,
    name: &str,
    payloads: &Payloads,
    outcome: Result<Outcome, PayloadError>,
) -> Settled<R> {
    let readable = outcome.and_then(|outcome| {
        let decoded = returns.decode(payloads, &outcome)?;
        Ok((outcome, decoded))
    });
    let problem = match readable {
        Ok((outcome, decoded)) => return Settled::Done { outcome, decoded },
        Err(problem) => problem,
    };
    cold_path();
    let error = Error::fatal(format!(
        "what step `{name}` returned cannot be journaled: {problem}"
    ));
    match payloads.encode(&error) {
        Ok(payload) => Settled::Done {
            outcome: Outcome::Broken(payload),
            decoded: returns.broken(error),
        },
        Err(_) => {
            let what = format!("the outcome of step `{name}`");
            Settled::Park(Obstacle::unreadable(&what, &problem))
        }
    }
}

impl Made<'_> {
    /// The outcome of an attempt of which only its beginning is known.
    fn interrupted(&self) -> Outcome {
        Outcome::Interrupted(Interrupted::since(self.attempt, self.began_at))
    }

    /// The record of the outcome.
    pub(super) fn completed(
        &self,
        name: &'static str,
        site: &'static Location<'static>,
        input: Option<&[u8]>,
        outcome: &Outcome,
    ) -> Draft {
        Draft::step_completed(&StepCompletedParts {
            step: self.id,
            name,
            scope: self.scope.path(),
            source: Source(site),
            input_digest: self.digest,
            input,
            attempts: self.attempt,
            called_at: self.called_at,
            attempt_began_at: self.began_at,
            outcome,
        })
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)");
    text.chars().take(PANIC_MESSAGE_LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_stays_in_its_bounds_and_spreads() {
        let policy = FullPolicy {
            max_attempts: 10,
            backoff: (Duration::from_millis(200), Duration::from_secs(30)),
            timeout: None,
            at_most_once: false,
        };
        let mut seen = std::collections::HashSet::new();
        for n in 0..200u8 {
            let step = StepId::from_bytes([n; 16]);
            for failed in 1..40 {
                let delay = policy.delay(step, failed);
                assert!(
                    delay >= policy.backoff.0 && delay <= policy.backoff.1,
                    "{delay:?}"
                );
                assert_eq!(
                    delay,
                    policy.delay(step, failed),
                    "the same in every process"
                );
                seen.insert(delay);
            }
            assert!(policy.delay(step, 1) <= Duration::from_millis(400));
        }
        assert!(seen.len() > 5000, "{}", seen.len());
    }
}
