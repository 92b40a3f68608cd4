//! Accepting events: their rows and what they cause, in one commit.
//!
//! Owns the order of it: the keys of all events are taken, smallest name first, so that two batches never wait for
//! each other; what each causes is looked up; one commit writes all of it, or is refused and looked up
//! again. An event whose cause cannot be is left out, and free again. It runs in a task of its own: a consumer
//! that stops waiting leaves nothing half done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::cause::{Cause, Caused, Creating};
use super::{Accepted, Delivery, InboxError};
use crate::digest::Digest;
use crate::engine::duplicates::{DuplicateBody, DuplicateKind, Source};
use crate::engine::{Engine, EngineError, Shared, letters};
use crate::idempotency::{
    Acquired, Claim, Completing, Done, EngineKeys, EntryState, InFlight, Joined, KeyId, KeyStore,
    OwnerId, Reserve, Ticket, acquire, caused as outcome_of, caused_run, event_key,
};
use crate::ids::RunId;
use crate::key::Key;
use crate::store::Commit;

/// How long an event is held without a sign of life. Between taking it and its commit are only a few reads.
const LEASE: Duration = Duration::from_secs(30);

/// The most events of one commit.
const MAX_EVENTS: usize = 1000;

/// The most bytes of one commit, about: far below what any store takes.
const MAX_BYTES: usize = 8 * 1024 * 1024;

type Answer = Result<Accepted, InboxError>;

/// An event and what it causes.
pub(super) struct Order {
    pub(super) inbox: Arc<str>,
    pub(super) keep_for: Duration,
    pub(super) event: Key,
    pub(super) body: Result<Digest, String>,
    pub(super) cause: Result<Cause, EngineError>,
}

/// Accepts events, and answers in their order.
pub(super) async fn accept(engine: &Engine, orders: Vec<Order>) -> Vec<Answer> {
    let count = orders.len();
    let accepting = tokio::spawn(accept_all(engine.clone(), orders));
    accepting.await.unwrap_or_else(|_| {
        let stopped = || Err(EngineError::Stopped("its runtime goes down".into()).into());
        (0..count).map(|_| stopped()).collect()
    })
}

async fn accept_all(engine: Engine, orders: Vec<Order>) -> Vec<Answer> {
    let mut answers = Vec::with_capacity(orders.len());
    let mut batch = Vec::new();
    let mut bytes = 0;
    for order in orders {
        let more = order.cause.as_ref().map_or(0, Cause::bytes);
        if batch.len() >= MAX_EVENTS || (bytes + more > MAX_BYTES && !batch.is_empty()) {
            answers.extend(accept_batch(&engine, std::mem::take(&mut batch)).await);
            bytes = 0;
        }
        bytes += more;
        batch.push(order);
    }
    answers.extend(accept_batch(&engine, batch).await);
    answers
}

/// An event that is what it can be.
struct Event {
    inbox: Arc<str>,
    keep_for: Duration,
    id: Key,
    body: Digest,
    cause: Cause,
    /// Where its answer goes.
    place: usize,
}

impl Event {
    fn checked(place: usize, order: Order) -> Result<Self, InboxError> {
        letters::check_name("inbox", &order.inbox)?;
        if let Some(problem) = order.event.problem() {
            let inbox = order.inbox.to_string();
            return Err(InboxError::Id { inbox, problem });
        }
        let body = order.body.map_err(|problem| InboxError::Body {
            inbox: order.inbox.to_string(),
            event: order.event.to_string(),
            problem,
        })?;
        Ok(Self {
            inbox: order.inbox,
            keep_for: order.keep_for,
            id: order.event,
            body,
            cause: order.cause?,
            place,
        })
    }

    fn is_known(&self, shared: &Shared, done: &Done) -> Answer {
        let run = caused_run(&done.outcome).ok_or_else(|| InboxError::Handled {
            inbox: self.inbox.to_string(),
            event: self.id.to_string(),
            accepted_at: done.completed_at,
        })?;
        self.count(shared, run, DuplicateBody::Same);
        tracing::debug!(inbox = &*self.inbox, %run, "a duplicate of an event");
        Ok(Accepted {
            run,
            accepted_at: done.completed_at,
            delivery: Delivery::Duplicate,
        })
    }
}

impl Event {
    /// Puts a duplicate of it on the record of its run.
    fn count(&self, shared: &Shared, run: RunId, body: DuplicateBody) {
        let source = Source::named(&format!("inbox {}", self.inbox));
        let kind = DuplicateKind::Event;
        shared.duplicates.saw(run, kind, &source, body);
    }
}

async fn accept_batch(engine: &Engine, orders: Vec<Order>) -> Vec<Answer> {
    let keys = engine.keys();
    let mut answers: Vec<Option<Answer>> = Vec::new();
    // By name: the order in which their keys are taken. One that is there twice comes after itself.
    let mut events: BTreeMap<(KeyId, usize), Event> = BTreeMap::new();
    for (place, order) in orders.into_iter().enumerate() {
        match Event::checked(place, order) {
            Ok(event) => {
                events.insert((event_key(&event.inbox, &event.id), place), event);
                answers.push(None);
            }
            Err(error) => answers.push(Some(Err(error))),
        }
    }
    // What is there twice waits until the first one has its answer.
    while !events.is_empty() {
        let mut last = None;
        let firsts = events
            .extract_if(.., |(key, _), _| last.replace(*key) != Some(*key))
            .map(|((key, _), event)| (key, event));
        for (place, answer) in accept_once(engine, &keys, firsts.collect()).await {
            answers[place] = Some(answer);
        }
    }
    let answered = answers.into_iter().flatten();
    answered.collect()
}

/// Accepts events of different names.
async fn accept_once(
    engine: &Engine,
    keys: &EngineKeys,
    mut events: Vec<(KeyId, Event)>,
) -> Vec<(usize, Answer)> {
    let mut answers = Vec::with_capacity(events.len());
    while !events.is_empty() {
        let mut held = Vec::with_capacity(events.len());
        for (key, event) in events.drain(..) {
            match take(keys, key, &event).await {
                Ok(Taken::Mine(claim, ticket)) => held.push(Held {
                    claim,
                    ticket,
                    event,
                }),
                Ok(Taken::Known(done)) => {
                    answers.push((event.place, event.is_known(engine.shared(), &done)))
                }
                Err(error) => answers.push((event.place, Err(error))),
            }
        }
        // Whoever lost its event to somebody else asks again, with the others of the batch.
        events = commit(engine, held, &mut answers).await;
    }
    answers
}

enum Taken<'k> {
    Mine(Claim<'k>, Ticket),
    Known(Done),
}

/// An event whose key is held.
struct Held<'k> {
    /// Frees it if it comes to nothing.
    claim: Claim<'k>,
    ticket: Ticket,
    event: Event,
}

/// Takes the key of an event, or says what is known of it. Whoever has it is waited for.
async fn take<'k>(
    keys: &'k EngineKeys,
    key: KeyId,
    event: &Event,
) -> Result<Taken<'k>, InboxError> {
    let request = Reserve {
        key,
        body: event.body,
        owner: OwnerId::next(),
        lease: LEASE,
    };
    match acquire(keys, request, InFlight::Wait).await? {
        Acquired::Mine(ticket) => Ok(Taken::Mine(Claim::new(keys, ticket, LEASE), ticket)),
        Acquired::Done(done) => Ok(Taken::Known(done)),
        Acquired::Busy(_) => unreachable!("it is waited for"),
        Acquired::OtherBody { first, since } => {
            let known = keys.look_up(key).await?;
            let run = known.and_then(|known| match known.state {
                EntryState::Done(done) => caused_run(&done.outcome),
                EntryState::InFlight(_) => None,
            });
            if let Some(run) = run {
                event.count(keys.engine().shared(), run, DuplicateBody::Other);
            }
            Err(InboxError::OtherBody {
                inbox: event.inbox.to_string(),
                event: event.id.to_string(),
                accepted_at: since,
                run,
                first,
                now: event.body,
            })
        }
    }
}

/// Makes one commit of all that is held. Returns the events that somebody else has taken meanwhile, with those
/// that were to go with them.
async fn commit(
    engine: &Engine,
    mut held: Vec<Held<'_>>,
    answers: &mut Vec<(usize, Answer)>,
) -> Vec<(KeyId, Event)> {
    let shared = engine.shared();
    held.sort_by_key(|one| one.event.place);
    loop {
        let mut creating = Creating::new();
        let mut planned: Vec<(Held<'_>, Caused)> = Vec::with_capacity(held.len());
        for one in held {
            match one.event.cause.plan(shared, &mut creating).await {
                Ok(caused) => planned.push((one, caused)),
                Err(error) => {
                    answers.push((one.event.place, Err(error.into())));
                    one.claim.release().await;
                }
            }
        }
        if planned.is_empty() {
            return Vec::new();
        }
        let mut with = Commit::default();
        let mut completing = Vec::with_capacity(planned.len());
        for (one, caused) in &mut planned {
            with.guards.append(&mut caused.guards);
            with.changes.create.append(&mut caused.changes.create);
            with.changes.post.append(&mut caused.changes.post);
            with.changes.notes.append(&mut caused.changes.notes);
            completing.push(Completing {
                ticket: one.ticket,
                outcome: outcome_of(caused.run),
                ttl: one.event.keep_for,
            });
        }
        match shared.keys.complete_with(completing, &with).await {
            Ok(Joined::Recorded(accepted_at)) => {
                for (one, caused) in planned {
                    caused.tell(shared);
                    let accepted = Accepted {
                        run: caused.run,
                        accepted_at,
                        delivery: Delivery::First,
                    };
                    answers.push((one.event.place, Ok(accepted)));
                }
                return Vec::new();
            }
            Ok(Joined::Lost) => {
                let lost = planned.into_iter();
                return lost.map(|(one, _)| (one.ticket.key, one.event)).collect();
            }
            // What was looked up is not so any more: look again.
            Ok(Joined::Refused) => held = planned.into_iter().map(|(one, _)| one).collect(),
            Err(error) => {
                let failed = planned.iter().map(|(one, _)| one.event.place);
                answers.extend(failed.map(|place| (place, Err(error.clone().into()))));
                return Vec::new();
            }
        }
    }
}
