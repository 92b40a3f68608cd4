//! Looking after an outbox: who relays it, what waits, what was set aside.

use std::fmt;
use std::sync::{Arc, Weak};

use super::note::{self, AsideNote, MessageNote};
use super::relay::{Relay, serve};
use super::{Message, RelayOptions};
use crate::clock::Timestamp;
use crate::engine::{EngineError, Shared, notes};
use crate::error::Result;
use crate::ids::MessageId;
use crate::payload::Place;
use crate::store::{Changes, Commit, Committed, Guard, NoteChange};

/// Notes that are read at a time.
const PAGE: usize = 256;

/// A handle to one outbox, by its name; see [`Engine::outbox`](crate::Engine::outbox). It does not keep the engine
/// alive.
#[derive(Clone)]
pub struct OutboxHandle {
    shared: Weak<Shared>,
    name: Box<str>,
}

impl fmt::Debug for OutboxHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutboxHandle({})", self.name)
    }
}

/// A message that no attempt could deliver.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SetAside {
    /// The message; its `attempt` is the last one.
    pub message: Message,
    /// Since when it is aside.
    pub since: Timestamp,
    /// What the last attempt failed with. It may quote the message.
    pub problem: String,
}

impl OutboxHandle {
    pub(super) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            name: name.into(),
        }
    }

    /// Relays the messages of the outbox, those that wait already first, for as long as the engine lives.
    ///
    /// **At least once**: a message is removed, durably, after the handler returned `Ok`. If the process dies in between, it is
    /// relayed again, under the same id. **In order per run**: the messages of one run are handed over one at a time, in
    /// the order of its journal; those of different runs at once, in no order. A handler that fails, panics or takes too
    /// long is asked again after a while ([`Error::retry_after`](crate::Error::retry_after) says when), and the run's later
    /// messages wait for that; after the last attempt, or a fatal error, the message is [set
    /// aside](Self::set_aside) and the next one goes on.
    ///
    /// A handler that keeps an [`Engine`](crate::Engine) keeps it open: stop it with
    /// [`shutdown`](crate::Engine::shutdown).
    ///
    /// ```
    /// # use workflow_runtime::{Engine, Message, Result};
    /// # async fn send(_key: String, _text: String) -> Result<()> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().open_in_memory().await?;
    /// engine.outbox("mail").relay(|message| async move {
    ///     send(message.id.to_string(), message.decode()?).await // the mail API knows the key
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the outbox is relayed already, the name cannot be one, or the engine has stopped.
    pub fn relay<H, F>(&self, handler: H) -> Result<(), EngineError>
    where
        H: Fn(Message) -> F + Send + Sync + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.relay_with(RelayOptions::default(), handler)
    }

    /// Relays the messages of the outbox with limits of its own.
    ///
    /// # Errors
    ///
    /// As [`relay`](Self::relay).
    pub fn relay_with<H, F>(&self, options: RelayOptions, handler: H) -> Result<(), EngineError>
    where
        H: Fn(Message) -> F + Send + Sync + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        serve(&self.shared()?, Relay::new(&self.name, options, handler))
    }

    /// Counts the messages that wait to be relayed; those set aside are not among them.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn pending(&self) -> Result<u64, EngineError> {
        let shared = self.shared()?;
        let prefix = note::messages(&shared.services.namespace, &self.name);
        let (mut count, mut after) = (0, None);
        loop {
            let page = shared.store.notes(prefix.clone(), after, PAGE).await?;
            count += page.len() as u64;
            match page.into_iter().last() {
                Some((last, _)) => after = Some(last),
                None => return Ok(count),
            }
        }
    }

    /// Lists up to so many messages that were set aside, by their ids.
    ///
    /// # Errors
    ///
    /// If one cannot be read or the store fails.
    pub async fn set_aside(&self, limit: usize) -> Result<Vec<SetAside>, EngineError> {
        let shared = self.shared()?;
        let prefix = note::all_aside(&shared.services.namespace, &self.name);
        let found = shared.store.notes(prefix, None, limit).await?;
        let read = found.into_iter().map(|(_, bytes)| {
            let AsideNote {
                place,
                message,
                failed,
                since,
                problem,
            } = self.decode(&bytes)?;
            let payloads = &shared.services.payloads;
            let MessageNote {
                id,
                pushed_at,
                payload,
            } = message;
            Ok(SetAside {
                message: Message {
                    id,
                    run: place.run,
                    pushed_at,
                    attempt: failed,
                    payload,
                    payloads: payloads.at(Place::message(place.run)),
                },
                since,
                problem: payloads
                    .at(Place::message_problem(place.run))
                    .decode(&problem)
                    .unwrap_or_default(),
            })
        });
        read.collect()
    }

    /// Has a message that was set aside relayed again, with all its attempts, before the later ones of its run that
    /// wait still.
    ///
    /// # Errors
    ///
    /// If no message of that id was set aside, or the store fails.
    pub async fn retry(&self, message: MessageId) -> Result<(), EngineError> {
        let shared = self.shared()?;
        self.take(&shared, message, true).await?;
        shared.relays.nudge();
        Ok(())
    }

    /// Forgets a message that was set aside: it is never relayed.
    ///
    /// # Errors
    ///
    /// If no message of that id was set aside, or the store fails.
    pub async fn discard(&self, message: MessageId) -> Result<(), EngineError> {
        self.take(&*self.shared()?, message, false).await
    }

    /// Takes a message from those set aside, and puts it back among those that wait, or not.
    async fn take(
        &self,
        shared: &Shared,
        message: MessageId,
        back: bool,
    ) -> Result<(), EngineError> {
        let namespace = &shared.services.namespace;
        let key = note::aside(namespace, &self.name, message);
        let Some(found) = shared.store.note(key.clone()).await? else {
            return Err(self.refuse(format!("no message {message} was set aside")));
        };
        let aside: AsideNote = self.decode(&found)?;
        let mut notes = vec![NoteChange {
            key: key.clone(),
            value: None,
        }];
        if back {
            notes.push(NoteChange {
                key: aside.place.message(namespace, &self.name),
                value: Some(notes::encode(&aside.message)),
            });
        }
        let commit = Commit {
            guards: vec![Guard {
                key,
                expected: Some(found),
            }],
            changes: Changes {
                notes,
                ..Changes::default()
            },
        };
        match shared.store.commit(commit).await? {
            Committed::Done => Ok(()),
            Committed::Refused(_) => {
                Err(self.refuse(format!("no message {message} is set aside any more")))
            }
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<AsideNote, EngineError> {
        notes::decode(bytes).map_err(|problem| {
            self.refuse(format!("a message set aside cannot be read: {problem}"))
        })
    }

    fn refuse(&self, problem: String) -> EngineError {
        EngineError::Outbox {
            name: self.name.to_string(),
            problem,
        }
    }

    fn shared(&self) -> Result<Arc<Shared>, EngineError> {
        let shared = self.shared.upgrade();
        shared.ok_or_else(|| EngineError::Stopped("it was dropped".into()))
    }
}
