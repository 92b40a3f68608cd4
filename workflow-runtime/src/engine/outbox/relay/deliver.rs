//! What happens to one message: an attempt, and what is noted after it.
//!
//! Owns the writes of the relay. A message goes only after its handler said `Ok`, or to those set aside.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use bytes::Bytes;

use super::super::Message;
use super::super::note::{self, AsideNote, MessageNote, Place, TriesNote};
use super::{AFTER_TROUBLE, Relay};
use crate::call::outcome::panic_message;
use crate::clock::Timestamp;
use crate::engine::{Shared, notes};
use crate::error::{Error, Result, Retry};
use crate::ids::RunId;
use crate::payload::Place as PayloadPlace;
use crate::store::{Changes, Commit, Guard, NoteChange, NoteKey, StoreResult};

/// The most of a problem that is kept, in characters.
const PROBLEM_LIMIT: usize = 1024;

/// What comes after an attempt.
pub(super) enum After {
    /// The run's next message.
    Next,
    /// The same one, then.
    Wait(Timestamp),
}

/// The oldest message of a run.
pub(super) enum Found {
    Message(Box<Parcel>),
    /// It cannot be read; look again then.
    Not(Timestamp),
}

/// A message with what is kept of it.
pub(super) struct Parcel {
    place: Place,
    bytes: Bytes,
    message: MessageNote,
    tries: TriesNote,
}

impl Parcel {
    pub(super) fn due_at(&self) -> Timestamp {
        self.tries.next_at
    }
}

/// Reads the oldest message of a run.
pub(super) async fn find(shared: &Shared, relay: &Relay, run: RunId) -> StoreResult<Option<Found>> {
    let (namespace, outbox) = (&shared.services.namespace, &*relay.name);
    let prefix = note::messages_of(namespace, outbox, run);
    let Some((key, bytes)) = shared.store.notes(prefix, None, 1).await?.pop() else {
        return Ok(None);
    };
    let read = async {
        let place = Place::of(&key).ok_or("its key is malformed")?;
        let message = notes::decode(&bytes)?;
        Ok::<_, String>((place, message))
    };
    let (place, message) = match read.await {
        Ok(read) => read,
        Err(problem) => {
            tracing::error!(outbox, %run, problem, "a message cannot be read: those behind it wait");
            let later = shared.services.clock.now().after(relay.options.backoff.1);
            return Ok(Some(Found::Not(later)));
        }
    };
    let tries = shared.store.note(place.tries(namespace, outbox)).await?;
    let tries = tries.and_then(|bytes| notes::decode(&bytes).ok());
    Ok(Some(Found::Message(Box::new(Parcel {
        place,
        bytes,
        message,
        tries: tries.unwrap_or_default(), // at worst it is tried more often
    }))))
}

/// Hands a message to its handler, and notes what became of it.
pub(super) async fn deliver(engine: Weak<Shared>, relay: Relay, parcel: Parcel) -> After {
    let Some(shared) = engine.upgrade() else {
        return After::Next; // nobody hears it
    };
    let attempt = parcel.tries.failed.saturating_add(1);
    let run = parcel.place.run;
    let message = Message {
        id: parcel.message.id,
        run,
        pushed_at: parcel.message.pushed_at,
        attempt,
        payload: parcel.message.payload.clone(),
        payloads: shared.services.payloads.at(PayloadPlace::message(run)),
    };
    let limit = shared.services.clock.pace(relay.options.timeout);
    drop(shared); // a handler may take its time, and does not keep the engine
    let handler = relay.handler.clone();
    let handled = unwinding(async move { handler(message).await });
    let handled = tokio::time::timeout(limit, handled)
        .await
        .unwrap_or_else(|_| {
            let limit = relay.options.timeout;
            Err(Error::new(format!(
                "the handler took longer than its {limit:?}"
            )))
        });
    let Some(shared) = engine.upgrade() else {
        return After::Next;
    };
    let noted = match handled {
        Ok(()) => remove(&shared, &relay, &parcel).await.map(|()| After::Next),
        Err(error) => note_failure(&shared, &relay, &parcel, attempt, &error).await,
    };
    noted.unwrap_or_else(|error| {
        // It is relayed again, under the same id.
        tracing::warn!(outbox = &*relay.name, message = %parcel.message.id, %error, "an attempt is not on record");
        After::Wait(shared.services.clock.now().after(AFTER_TROUBLE))
    })
}

/// Takes a handler's panic for an error.
async fn unwinding(handling: impl Future<Output = Result<()>>) -> Result<()> {
    let mut handling = pin!(handling);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| {
            let message = panic_message(panic.as_ref());
            Poll::Ready(Err(Error::new(format!("the handler panicked: {message}"))))
        })
    })
    .await
}

async fn remove(shared: &Shared, relay: &Relay, parcel: &Parcel) -> StoreResult<()> {
    let (namespace, outbox) = (&shared.services.namespace, &*relay.name);
    let mut keys = vec![parcel.place.message(namespace, outbox)];
    if parcel.tries.failed > 0 {
        keys.push(parcel.place.tries(namespace, outbox));
    }
    let removals = keys.into_iter().map(|key| NoteChange { key, value: None });
    write(shared, Vec::new(), removals.collect()).await
}

/// Notes a failed attempt: the next one, or that the message is set aside.
async fn note_failure(
    shared: &Arc<Shared>,
    relay: &Relay,
    parcel: &Parcel,
    failed: u32,
    error: &Error,
) -> StoreResult<After> {
    let (namespace, outbox) = (&shared.services.namespace, &*relay.name);
    let (id, now) = (parcel.message.id, shared.services.clock.now());
    let tries_key = parcel.place.tries(namespace, outbox);
    let delay = match error.retry() {
        Retry::Fatal => None,
        _ if failed >= relay.options.max_attempts => None,
        Retry::After(delay) => Some(delay),
        Retry::Policy => Some(relay.options.delay(id, failed)),
    };
    if let Some(delay) = delay {
        let next_at = now.after(delay);
        tracing::warn!(outbox, message = %id, attempt = failed, %next_at, "a message was not taken");
        let tries = notes::encode(&TriesNote { failed, next_at });
        write(shared, Vec::new(), vec![set(tries_key, tries)]).await?;
        return Ok(After::Wait(next_at));
    }
    tracing::error!(outbox, message = %id, attempts = failed, "a message was set aside: `engine.outbox(..).set_aside()` has it");
    let problem: String = format!("{error:#}").chars().take(PROBLEM_LIMIT).collect();
    let note = AsideNote {
        place: parcel.place,
        message: parcel.message.clone(),
        failed,
        since: now,
        problem: shared
            .services
            .payloads
            .at(PayloadPlace::message_problem(parcel.place.run))
            .encode(&problem)
            .unwrap_or_default(),
    };
    let key = parcel.place.message(namespace, outbox);
    let guard = Guard {
        key: key.clone(),
        expected: Some(parcel.bytes.clone()),
    };
    let changes = vec![
        NoteChange { key, value: None },
        NoteChange {
            key: tries_key,
            value: None,
        },
        set(note::aside(namespace, outbox, id), notes::encode(&note)),
    ];
    write(shared, vec![guard], changes).await?;
    Ok(After::Next)
}

fn set(key: NoteKey, value: Bytes) -> NoteChange {
    NoteChange {
        key,
        value: Some(value),
    }
}

/// Writes. If a guard refuses, somebody else has relayed the message: nothing is left to do.
async fn write(shared: &Shared, guards: Vec<Guard>, notes: Vec<NoteChange>) -> StoreResult<()> {
    let changes = Changes {
        notes,
        ..Changes::default()
    };
    shared.store.commit(Commit { guards, changes }).await?;
    Ok(())
}
