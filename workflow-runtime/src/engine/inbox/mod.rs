//! Inboxes: each event of an at-least-once source is acted on once, in one write with what it causes.
//!
//! Owns what a consumer says: which inbox, which event, what it causes. The files: `cause` is what one event changes in
//! the store, `accept` makes one commit of it and of the events' rows, `error` says what went wrong. That an
//! event was accepted is an outcome under a key of the engine's own ([`idempotency`](crate::idempotency)), so
//! duplicates meet there, and old events are swept there. Never drives a run.

mod accept;
mod cause;
mod error;

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::accept::Order;
use self::cause::Cause;
use super::keyed::{KeyOptions, Promise};
use super::prepared::EncodedCall;
use super::queues::Placing;
use super::{Engine, EngineError};
use crate::call::{Workflow, WorkflowCall};
use crate::clock::Timestamp;
use crate::digest::{self, Digest};
use crate::idempotency::{KEEP_FOR, Once, OnceError};
use crate::ids::RunId;
use crate::key::Key;
use crate::store::BoxFuture;

pub use error::InboxError;

impl Engine {
    /// Returns an inbox: each event id that is accepted there is acted on once.
    ///
    /// For consumers of what delivers at least once: webhooks, queues, streams. The event and the run or signal that
    /// it causes are one durable write; a duplicate, at the same time, out of order or after a restart,
    /// causes nothing and is told what the first one caused.
    ///
    /// ```
    /// # use workflow_runtime::{Delivery, Engine, Result, workflow};
    /// # #[workflow] async fn fulfil(order: u64) -> Result<u64> { Ok(order) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().register::<fulfil>().open_in_memory().await?;
    /// let inbox = engine.inbox("stripe");
    /// let first = inbox.accept("evt_1").start(fulfil(7)).await?;
    /// let again = inbox.accept("evt_1").start(fulfil(7)).await?;
    /// assert_eq!((first.run, Delivery::Duplicate), (again.run, again.delivery));
    /// # Ok(())
    /// # }
    /// ```
    pub fn inbox(&self, name: &str) -> Inbox {
        Inbox {
            engine: self.clone(),
            name: name.into(),
            keep_for: KEEP_FOR,
        }
    }
}

/// Where the events of one source are accepted; see [`Engine::inbox`].
#[derive(Clone)]
pub struct Inbox {
    engine: Engine,
    name: Arc<str>,
    keep_for: Duration,
}

impl Inbox {
    /// Sets how long an event is remembered after it was accepted; 30 days otherwise.
    ///
    /// Choose it longer than the source delivers again. **An event that is delivered after that is new**: it causes
    /// what it causes once more. A run's key ([`AcceptStart::key`]) still protects from a second run then, for as
    /// long as the key names its run.
    #[must_use]
    pub fn keep_for(mut self, time: Duration) -> Self {
        self.keep_for = time;
        self
    }

    /// Takes an event by the id that its source gave it: the same in every delivery, and used for no other event.
    pub fn accept(&self, event: impl Into<Key>) -> InboxEvent {
        InboxEvent {
            inbox: self.clone(),
            id: event.into(),
            body: digest_of(&()),
        }
    }

    /// Accepts a batch in one durable write (in several, if it is more than 1,000 events or 8 MiB), and answers for
    /// each event, in order.
    ///
    /// One event's duplicate or error is no other one's: what is new is accepted. An event that is
    /// there twice is accepted once. Events of other inboxes of the same engine may be among them.
    ///
    /// ```
    /// # use workflow_runtime::{Engine, Result, workflow};
    /// # #[workflow] async fn fulfil(order: u64) -> Result<u64> { Ok(order) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().register::<fulfil>().open_in_memory().await?;
    /// let inbox = engine.inbox("orders");
    /// let delivered = [("evt_1", 7), ("evt_2", 8), ("evt_1", 7)];
    /// let events = delivered.map(|(event, order)| inbox.accept(event).start(fulfil(order)));
    /// for answer in inbox.accept_all(events).await {
    ///     println!("caused {}", answer?.run);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn accept_all<A: Into<Acceptance>>(
        &self,
        events: impl IntoIterator<Item = A>,
    ) -> Vec<Result<Accepted, InboxError>> {
        let orders = events.into_iter().map(|event| event.into().order);
        accept::accept(&self.engine, orders.collect()).await
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inbox({})", self.name)
    }
}

/// An event that is about to be accepted: say what it causes.
#[must_use = "nothing is accepted until it is said what the event causes, and that is awaited"]
pub struct InboxEvent {
    inbox: Inbox,
    id: Key,
    body: Result<Digest, String>,
}

impl InboxEvent {
    /// Compares what the event says: another body under the same id is refused with [`InboxError::OtherBody`]. By
    /// content: the order of a map's entries does not count. Leave out what differs from delivery to delivery.
    pub fn body<B: Serialize + ?Sized>(mut self, body: &B) -> Self {
        self.body = digest_of(body);
        self
    }

    /// Starts a run, with or without a key, at once or in a queue.
    pub fn start<W: Workflow>(self, call: WorkflowCall<W>) -> AcceptStart {
        let shared = self.inbox.engine.shared();
        AcceptStart {
            key: call.key.clone(),
            promise: KeyOptions::default().promise::<W>(shared),
            call: EncodedCall::new::<W>(&shared.services, &call.input),
            event: self,
            placing: Placing::default(),
        }
    }

    /// Sends a run a signal; see [`Engine::signal`].
    pub fn signal<T: Serialize + ?Sized>(self, run: RunId, name: &str, value: &T) -> Acceptance {
        let payloads = &self.inbox.engine.shared().services.payloads;
        let payload = payloads.without_codec().encode(value); // bound to its run when that is known
        let name = name.into();
        self.causing(Ok(Cause::Signal { run, name, payload }))
    }

    /// Sends a value to whichever run holds a token; see [`Engine::signal_token`].
    pub fn signal_token<T: Serialize + ?Sized>(self, token: &str, value: &T) -> Acceptance {
        let payloads = &self.inbox.engine.shared().services.payloads;
        let payload = payloads.without_codec().encode(value); // bound to its run when that is known
        let token = token.into();
        self.causing(Ok(Cause::Token { token, payload }))
    }

    /// Does a piece of work that is no workflow, and keeps its outcome for duplicates: see [`Engine::once`]. *At least
    /// once*: work whose process died before its outcome was recorded is done again.
    ///
    /// # Errors
    ///
    /// As [`Once::run`].
    pub async fn run<F, W, T, E>(self, work: F) -> Result<T, OnceError<E>>
    where
        F: FnOnce() -> W,
        W: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
    {
        let Inbox {
            engine,
            name,
            keep_for,
        } = &self.inbox;
        let once: Once<'static> = engine.once(self.id).of_event(name).ttl(*keep_for);
        once.of_body(self.body).run(work).await
    }

    fn causing(self, cause: Result<Cause, EngineError>) -> Acceptance {
        let Inbox {
            engine,
            name,
            keep_for,
        } = self.inbox;
        Acceptance {
            engine,
            order: Order {
                inbox: name,
                keep_for,
                event: self.id,
                body: self.body,
                cause,
            },
        }
    }
}

/// An event that starts a run; see [`InboxEvent::start`].
#[must_use = "nothing is accepted until this is awaited"]
pub struct AcceptStart {
    event: InboxEvent,
    call: Result<EncodedCall, EngineError>,
    key: Option<Key>,
    /// What the workflow or the engine promises for its key.
    promise: Promise,
    placing: Placing,
}

impl AcceptStart {
    /// Names the run by a business key, as [`Start::key`](crate::Start::key) does: if the key has a run of the same
    /// input, the event is accepted with that one; another input is an error, and the event is not accepted.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Puts the run into a queue; see [`Start::queue`](crate::Start::queue).
    pub fn queue(mut self, name: &str) -> Self {
        self.placing.queue = Some(name.into());
        self
    }

    /// Counts the run among those of this key; see [`Start::queue_key`](crate::Start::queue_key).
    pub fn queue_key(mut self, key: impl Into<Key>) -> Self {
        self.placing.queue_key = Some(key.into());
        self
    }

    /// Sets the run's priority in its queue; see [`Start::priority`](crate::Start::priority).
    pub fn priority(mut self, priority: i32) -> Self {
        self.placing.priority = Some(priority);
        self
    }

    /// Has the run join its queue only after this time; see [`Start::delay`](crate::Start::delay).
    pub fn delay(mut self, delay: Duration) -> Self {
        self.placing.delay = Some(delay);
        self
    }
}

impl From<AcceptStart> for Acceptance {
    fn from(start: AcceptStart) -> Self {
        let AcceptStart {
            event,
            call,
            key,
            promise,
            placing,
        } = start;
        let key = key.map(|key| (key, promise));
        let call = call.map(Box::new);
        event.causing(call.map(|call| Cause::Start { call, key, placing }))
    }
}

impl IntoFuture for AcceptStart {
    type Output = Result<Accepted, InboxError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Acceptance::from(self).into_future()
    }
}

/// An event and what it causes, whatever that is: await it, or give it to [`Inbox::accept_all`].
///
/// # Errors
///
/// Awaiting it fails if what the event causes cannot be (an unknown workflow, a key with other input, a run that
/// has ended): then the event is not accepted either, and may be delivered again. Also with
/// [`InboxError::OtherBody`], or if the store fails.
#[must_use = "nothing is accepted until this is awaited"]
pub struct Acceptance {
    engine: Engine,
    order: Order,
}

impl IntoFuture for Acceptance {
    type Output = Result<Accepted, InboxError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let answers = accept::accept(&self.engine, vec![self.order]).await;
            let stopped = || Err(EngineError::Stopped("it was dropped".into()).into());
            answers.into_iter().next().unwrap_or_else(stopped)
        })
    }
}

/// What an accepted event is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepted {
    /// The run that the event caused, or that got its signal.
    pub run: RunId,
    /// When the event was accepted: of a duplicate, when the first one was.
    pub accepted_at: Timestamp,
    /// Whether it was new.
    pub delivery: Delivery,
}

/// Whether an event was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It was: it has caused what it causes.
    First,
    /// It was accepted before, and has caused nothing more.
    Duplicate,
}

fn digest_of<B: Serialize + ?Sized>(body: &B) -> Result<Digest, String> {
    match digest::digest(body) {
        Ok(digest) => Ok(digest.strict),
        Err(problem) => Err(problem.to_string()),
    }
}
