//! Keyed calls: `.idempotency_key(k)` within a run, `.shared(ttl)` across the runs of a namespace.
//!
//! Owns what a call with an idempotency key does before its body may run: it runs it, waits for the call that does,
//! or gives what that one gave. Whatever comes out is recorded as the call's own outcome, so a replay
//! asks nobody. Who has a key is known by the run's core, or by the engine's keys if runs share it.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::Announced;
use super::advance::Made;
use super::home::Home;
use super::outcome::{Settled, finish};
use super::returns::Decoded;
use super::step::{Doing, Stage, StepCall};
use crate::context::Scope;
use crate::digest::Digest;
use crate::engine::core::{KeyedTurn, RunCore, Trouble};
use crate::engine::obstacle::Obstacle;
use crate::engine::signal::CallWaker;
use crate::error::Error;
use crate::idempotency::{Held, KeyError, KeyId, KeyResult, Obtained, Wanted};
use crate::ids::{RunId, StepId};
use crate::journal::{Companion, Outcome};
use crate::key::Key;
use crate::payload::Place;
use crate::store::{BoxFuture, ParkReason};

/// The key of a call.
pub(super) struct Keyed {
    key: Key,
    /// For how long its outcome is shared with other runs; `None`: with none.
    shared: Option<Duration>,
    claim: Claim,
}

/// What a call has of a key that runs share.
enum Claim {
    None,
    Asking(BoxFuture<'static, KeyResult<Obtained>>, Arc<CallWaker>),
    Held(Held),
    /// It cannot be asked for: the call stays where it is.
    Stuck,
}

/// What a call's key says.
pub(super) enum Consulted {
    /// Its body may run.
    Run,
    /// Something else comes first; it is woken.
    Wait,
    /// It has an outcome without running.
    Answer(Answer),
}

/// An outcome that a key gives.
pub(super) struct Answer {
    /// The run that used the key before.
    first: RunId,
    gives: Gives,
}

enum Gives {
    /// What another call gave, as a payload that stands there.
    Value { value: Bytes, from: Place },
    /// That another call has the key for another input.
    Conflict(Error),
}

impl<R> StepCall<'_, R> {
    /// Gives this call an idempotency key: of all calls of the step under the key, in any scope of the run, one
    /// runs its body, and the others give what it gave.
    ///
    /// A call that is made while another one runs waits for it. One that failed, after its attempts, frees the key: the
    /// next call runs. In the body, [`step_id`](crate::StepMetadata::step_id) is the same for all of them. A call with
    /// another input is a conflict: a fatal error that names both calls.
    ///
    /// A [`checkpoint`](crate::checkpoint) begins anew with keys too. [`shared`](Self::shared) makes the key known to other
    /// runs.
    ///
    /// ```
    /// # use workflow_runtime::{step, workflow, Result};
    /// # #[step] async fn fetch_user(_id: u32) -> Result<String> { Ok("Ada".into()) }
    /// #[workflow]
    /// async fn greet(id: u32) -> Result<String> {
    ///     let name = fetch_user(id).idempotency_key(format!("user-{id}")).await?;
    ///     let again = fetch_user(id).idempotency_key(format!("user-{id}")).await?; // not run again
    ///     Ok(format!("{name} {again}"))
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the call was polled already, or if the step is `at_most_once`: its promise is about one call, and another
    /// one under the key would be a second run.
    #[track_caller]
    pub fn idempotency_key(mut self, key: impl Into<Key>) -> Self {
        let name = self.definition.name;
        assert!(
            matches!(self.stage, Stage::Made),
            "step `{name}` at {} is given an idempotency key after it was polled: give it before",
            self.site
        );
        assert!(
            self.definition.announced != Announced::AtMostOnce,
            "step `{name}` at {} is given `.idempotency_key()`, but it is `at_most_once`: what is on record before \
             its body starts is of one call, and another call under the key would run it again; remove one of the two",
            self.site
        );
        let key = key.into();
        if let (Some(problem), Home::Run { scope, .. }) = (key.problem(), &self.home) {
            let problem = format!("step `{name}` at {}: {problem}", self.site);
            self.home = Home::BadKey(scope.clone(), problem);
            return self;
        }
        self.keyed = Some(Box::new(Keyed {
            key,
            shared: None,
            claim: Claim::None,
        }));
        self
    }

    /// Shares the idempotency key with all runs of the namespace: one call runs its body, and the others, in whatever
    /// run, give what it gave, until `ttl` after it did.
    ///
    /// A call that is made while another one runs waits for it. One that failed, after its attempts, or whose run was
    /// stopped frees the key: the next call runs, with the same [`step_id`](crate::StepMetadata::step_id), which is derived
    /// from namespace, step, key and generation. After `ttl` the next call runs with an id of the next generation.
    /// A call with another input is a conflict: a fatal error that names both calls.
    ///
    /// The first execution costs one durable write, that of the call's own record; a repetition costs its own record.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use workflow_runtime::{step, workflow, Result};
    /// # #[step] async fn exchange_rate(_pair: &str) -> Result<f64> { Ok(1.1) }
    /// #[workflow]
    /// async fn quote(cents: u64) -> Result<f64> {
    ///     let an_hour = Duration::from_secs(3600);
    ///     let rate = exchange_rate("EURUSD").idempotency_key("EURUSD").shared(an_hour).await?;
    ///     Ok(cents as f64 * rate)
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the call has no idempotency key, or if the step has an `undo`: one run would take back what the others
    /// rely on.
    #[track_caller]
    pub fn shared(mut self, ttl: Duration) -> Self {
        let name = self.definition.name;
        assert!(
            self.definition.undo.is_none(),
            "step `{name}` at {} is given `.shared()`, but it has an `undo`: a run that fails would take back what \
             other runs were given; remove one of the two, or undo it by a step of its own",
            self.site
        );
        match &mut self.keyed {
            Some(keyed) => keyed.shared = Some(ttl),
            None if matches!(self.home, Home::BadKey(..)) => {}
            None => panic!(
                "step `{name}` at {} is given `.shared()` without a key: say what is shared with \
                 `.idempotency_key(key)` before it",
                self.site
            ),
        }
        self
    }

    /// Makes the key known when the call is first polled. `false` if the call is not the first one of its key in the run.
    pub(super) fn register_key(&self, scope: &Scope, id: StepId, input: Digest) -> bool {
        match &self.keyed {
            Some(keyed) if keyed.shared.is_none() => {
                let key = keyed.within(scope, self.definition.name);
                scope.core().register_keyed(id, key, self.site, input)
            }
            _ => true,
        }
    }

    /// The id that the body is given: the call's own, or that of its key.
    pub(super) fn outside_id(&self, scope: &Scope, id: StepId) -> StepId {
        let name = self.definition.name;
        let Some(keyed) = self.keyed.as_deref() else {
            if seeded!(AnotherIdOutside) {
                return id.for_effect("another");
            }
            return id;
        };
        match (keyed.shared, &keyed.claim) {
            (None, _) => keyed.within(scope, name),
            (Some(_), Claim::Held(held)) => {
                let namespace = &scope.core().services.namespace;
                StepId::shared(namespace, name, keyed.key.as_str(), held.generation())
            }
            (Some(_), _) => unreachable!("no body begins without its key"),
        }
    }

    /// Asks the call's key what is to be done.
    pub(super) fn consult(&mut self, made: &Made<'_>, cx: &Context<'_>) -> Consulted {
        let (name, site) = (self.definition.name, self.site);
        let Some(keyed) = &mut self.keyed else {
            return Consulted::Run;
        };
        let core = made.scope.core();
        if !core.may_begin() {
            keyed.claim = Claim::None; // others may
            return Consulted::Wait;
        }
        let input = made.digest.strict;
        if keyed.shared.is_none() {
            let key = keyed.within(made.scope, name);
            return match core.keyed_turn(made.id, key, input, cx.waker()) {
                KeyedTurn::Run => Consulted::Run,
                KeyedTurn::Wait => Consulted::Wait,
                KeyedTurn::Known { value, by } => {
                    Consulted::known(core.run(), value, Place::step_outcome(by))
                }
                KeyedTurn::OtherInput { first, site } => {
                    let first = format!("at {site} in this run with input {first}");
                    self.conflict(core.run(), &first, input)
                }
            };
        }
        let wanted = Wanted {
            key: KeyId::derive("step", name, &keyed.key),
            input,
            run: core.run(),
            site,
        };
        match keyed.ask(core, wanted, cx.waker()) {
            None => Consulted::Wait,
            Some(Ok(Obtained::Mine(held))) => {
                keyed.claim = Claim::Held(held);
                Consulted::Run
            }
            Some(Ok(Obtained::Known { run, value })) => {
                Consulted::known(run, value, Place::shared_outcome())
            }
            Some(Ok(Obtained::OtherInput { first, origin })) => match origin {
                Some(origin) => {
                    let first =
                        format!("at {} in {} with input {first}", origin.source, origin.run);
                    self.conflict(origin.run, &first, input)
                }
                None => self.conflict(core.run(), &format!("with input {first}"), input),
            },
            Some(Err(error)) => {
                keyed.claim = Claim::Stuck;
                self.key_failed(core, &error);
                Consulted::Wait
            }
        }
    }

    fn conflict(&self, run: RunId, first: &str, input: Digest) -> Consulted {
        let key = self.keyed.as_ref().map(|keyed| keyed.key.to_string());
        let error = Error::fatal(format!(
            "step `{}` was called under the idempotency key {:?} first {first}, and again at {} with input {input}: \
             a key stands for one input; use another key, or call it with the same input",
            self.definition.name,
            key.unwrap_or_default(),
            self.site,
        ));
        Consulted::Answer(Answer {
            first: run,
            gives: Gives::Conflict(error),
        })
    }

    /// A key cannot be asked for. That is never an outcome.
    fn key_failed(&self, core: &RunCore, error: &KeyError) {
        match error {
            KeyError::Stopped => return, // the engine is stopping, and the run leaves
            KeyError::Store(failed) => match core.services.step_keys() {
                Some(keys) if keys.store_works() => {}
                Some(_) => return core.trouble(Trouble::Store(failed.clone())),
                None => return, // the engine is gone
            },
            _ => {}
        }
        let report = format!(
            "step `{}` at {}: what is kept under its idempotency key cannot be had: {error}; mend that, then \
             `engine.resume(run)`",
            self.definition.name, self.site
        );
        let obstacle = Obstacle::new(ParkReason::Undecodable, report);
        core.trouble(Trouble::Park(obstacle));
    }

    /// Takes what the key gives as the call's own outcome.
    pub(super) fn take_answer(&mut self, made: &Made<'_>, answer: Answer) {
        let core = made.scope.core();
        let payloads = &core.services.payloads.at(Place::step_outcome(made.id));
        let name = self.definition.name;
        let Answer { first, gives } = answer;
        let conflict = matches!(gives, Gives::Conflict(_));
        let settled = match gives {
            Gives::Value { value, from } => {
                let decoded = payloads.moved_from(from, &value).and_then(|value| {
                    let outcome = Outcome::Ok(value);
                    let decoded = self.returns.decode(payloads, &outcome)?;
                    Ok((outcome, decoded))
                });
                match decoded {
                    Ok((outcome, decoded)) => Settled::Done { outcome, decoded },
                    Err(problem) => {
                        let what = format!(
                            "what is kept under the idempotency key of step `{name}` at {}",
                            self.site
                        );
                        Settled::Park(Obstacle::unreadable(&what, &problem))
                    }
                }
            }
            Gives::Conflict(error) => {
                let outcome = payloads.encode(&error).map(Outcome::Broken);
                finish(&self.returns, name, payloads, outcome)
            }
        };
        match settled {
            Settled::Done { outcome, decoded } => {
                core.saw_duplicate_step(first, self.site, !conflict);
                tracing::debug!(
                    run = %core.run(), step = %made.id, name, conflict, "step answered by its key"
                );
                self.hand_in(made, &outcome, None, Vec::new(), None);
                self.set_doing(Doing::HandedIn(decoded));
            }
            Settled::Park(obstacle) => core.trouble(Trouble::Park(obstacle)),
            Settled::Retry { .. } => unreachable!("nothing was attempted"),
        }
    }

    /// Lets a call's key know its outcome. What is shared is written with the call's record.
    pub(super) fn settle_key(
        &mut self,
        made: &Made<'_>,
        outcome: &mut Outcome,
        decoded: &mut Decoded<R>,
    ) -> Option<Box<dyn Companion>> {
        let keyed = self.keyed.as_deref_mut()?;
        let core = made.scope.core();
        let Some(ttl) = keyed.shared else {
            core.keyed_outcome(made.id, outcome);
            return None;
        };
        let Claim::Held(held) = std::mem::replace(&mut keyed.claim, Claim::None) else {
            return None;
        };
        let Some(value) = outcome.value() else {
            return None; // dropped, the key is free
        };
        let shared = core.services.payloads.at(Place::shared_outcome());
        let value = shared.moved_from(Place::step_outcome(made.id), value);
        let settled = match value {
            Ok(value) => held.complete(value, ttl),
            Err(_) => Err(KeyError::Codec),
        };
        match settled {
            Ok(settlement) => Some(Box::new(settlement)),
            Err(problem) => {
                let name = self.definition.name;
                let error = Error::fatal(format!(
                    "what step `{name}` returned cannot be shared: {problem}"
                ));
                let payloads = core.services.payloads.at(Place::step_outcome(made.id));
                if let Ok(payload) = payloads.encode(&error) {
                    *outcome = Outcome::Broken(payload);
                    *decoded = self.returns.broken(error);
                }
                None
            }
        }
    }

    /// The run begins no body now: a key that other runs wait for is not kept from them.
    pub(super) fn let_go_key(&mut self) {
        if let Some(keyed) = &mut self.keyed {
            keyed.claim = Claim::None;
        }
    }
}

impl Consulted {
    fn known(first: RunId, value: Bytes, from: Place) -> Self {
        let gives = Gives::Value { value, from };
        Self::Answer(Answer { first, gives })
    }
}

impl Keyed {
    /// The id of a key that one run has for itself.
    fn within(&self, scope: &Scope, name: &str) -> StepId {
        StepId::keyed(scope.core().run(), scope.pass(), name, self.key.as_str())
    }

    /// Asks for a key that runs share. `None`: the call is woken.
    fn ask(
        &mut self,
        core: &RunCore,
        wanted: Wanted,
        waker: &Waker,
    ) -> Option<KeyResult<Obtained>> {
        if let Claim::None = self.claim {
            let keys = core.services.step_keys()?; // without an engine nobody is woken
            let asking = keys.obtain(wanted);
            self.claim = Claim::Asking(Box::pin(asking), CallWaker::new(waker));
        }
        match std::mem::replace(&mut self.claim, Claim::None) {
            Claim::Asking(mut asking, own) => {
                own.follow(waker);
                let polled = {
                    let waker = Waker::from(own.clone());
                    asking.as_mut().poll(&mut Context::from_waker(&waker))
                };
                match polled {
                    Poll::Ready(obtained) => Some(obtained),
                    Poll::Pending => {
                        self.claim = Claim::Asking(asking, own);
                        None
                    }
                }
            }
            Claim::Held(held) => Some(Ok(Obtained::Mine(held))),
            claim @ (Claim::None | Claim::Stuck) => {
                self.claim = claim;
                None
            }
        }
    }
}
