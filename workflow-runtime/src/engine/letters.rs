//! Sending to runs: signals and requests to cancel.
//!
//! Owns the sender's side: what is refused, what is written, and who is told. The sender is
//! acknowledged when the letter is durable in the run's mailbox; the run's own driver moves it into
//! the journal. Never touches a journal itself.

use std::future::IntoFuture;
use std::sync::Arc;

use bytes::Bytes;

use super::writer::News;
use super::{EngineError, Shared, task};
use crate::clock::wall_clock;
use crate::ids::RunId;
use crate::journal::{CancelRequested, Event, SignalReceived};
use crate::key::Key;
use crate::payload::PayloadError;
use crate::store::{BoxFuture, Commit, Committed, Guard, Letter, NoteChange, NoteKey, Refusal};

/// The longest name of a signal or a published value.
const MAX_NAME: usize = 256;

/// The part of a note's key that says that it remembers a signal's key.
const SIGNAL_KEY: &[u8] = b"signal";

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is in the run's mailbox, durably.
    Accepted,
    /// A signal of the same name and key was accepted before; this one is not needed.
    Duplicate,
}

/// A signal about to be sent; see [`Engine::signal`](super::Engine::signal).
#[must_use = "nothing is sent until this is awaited"]
pub struct SendSignal {
    shared: Result<Arc<Shared>, EngineError>,
    run: RunId,
    name: Box<str>,
    payload: Result<Bytes, PayloadError>,
    key: Option<Key>,
}

impl SendSignal {
    pub(super) fn new(
        shared: Result<Arc<Shared>, EngineError>,
        run: RunId,
        name: &str,
        payload: Result<Bytes, PayloadError>,
    ) -> Self {
        Self {
            shared,
            run,
            name: name.into(),
            payload,
            key: None,
        }
    }

    /// Names the sending: of all signals with this name and key to this run, only the first counts.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    async fn send(self) -> Result<Sent, EngineError> {
        let (shared, run) = (self.shared?, self.run);
        check_name("signal", &self.name)?;
        if let Some(problem) = self.key.as_ref().and_then(Key::problem) {
            return Err(EngineError::Key(problem));
        }
        let unfit = |problem| EngineError::Signal {
            name: self.name.to_string(),
            run,
            problem,
        };
        let payload = self.payload.map_err(unfit)?;
        // Whoever waits for it in memory says what it must be: better told to the sender than to it.
        let check = shared
            .entry(run)
            .and_then(|entry| entry.core())
            .and_then(|core| core.signal_check(&self.name));
        if let Some(check) = check {
            check(&shared.services.payloads, &payload).map_err(unfit)?;
        }
        let mut commit = Commit::default();
        if let Some(key) = &self.key {
            let parts: [&[u8]; 3] = [SIGNAL_KEY, self.name.as_bytes(), key.as_str().as_bytes()];
            let note = NoteKey::of_run(run, &parts);
            commit.guards.push(Guard {
                key: note.clone(),
                expected: None,
            });
            commit.changes.notes.push(NoteChange {
                key: note,
                value: Some(Bytes::new()),
            });
        }
        let event = Event::SignalReceived(SignalReceived {
            name: self.name,
            key: self.key.as_ref().map(|key| key.as_str().into()),
            sent_at: wall_clock(),
            payload,
        });
        post(&shared, run, commit, &event).await
    }
}

impl IntoFuture for SendSignal {
    type Output = Result<Sent, EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// A run about to be cancelled; see [`Engine::cancel`](super::Engine::cancel).
#[must_use = "nothing is cancelled until this is awaited"]
pub struct Cancel {
    shared: Result<Arc<Shared>, EngineError>,
    run: RunId,
    reason: Box<str>,
}

impl Cancel {
    pub(super) fn new(shared: Result<Arc<Shared>, EngineError>, run: RunId) -> Self {
        Self {
            shared,
            run,
            reason: "no reason given".into(),
        }
    }

    /// Says why; it is kept in the journal.
    pub fn reason(mut self, reason: &str) -> Self {
        self.reason = reason.into();
        self
    }
}

impl IntoFuture for Cancel {
    type Output = Result<(), EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let event = Event::CancelRequested(CancelRequested {
                reason: self.reason,
                sent_at: wall_clock(),
            });
            let shared = self.shared?;
            post(&shared, self.run, Commit::default(), &event).await?;
            Ok(())
        })
    }
}

/// Refuses a name that cannot be one.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), EngineError> {
    let problem = match name.len() {
        0 => "it is empty".to_owned(),
        1..=MAX_NAME => return Ok(()),
        long => format!("it has {long} bytes, {MAX_NAME} are the most"),
    };
    Err(EngineError::Name { what, problem })
}

/// Puts a letter into a run's mailbox and tells the run.
async fn post(
    shared: &Arc<Shared>,
    run: RunId,
    mut commit: Commit,
    event: &Event,
) -> Result<Sent, EngineError> {
    super::handle::status(shared, run).await?; // it may be of another namespace
    commit.changes.post.push(Letter {
        to: run,
        body: event.to_letter(),
    });
    match shared.store.commit(commit).await? {
        Committed::Done => {
            task::mail_arrived(shared, run);
            Ok(Sent::Accepted)
        }
        Committed::Refused(Refusal::Note { .. }) => Ok(Sent::Duplicate),
        Committed::Refused(Refusal::Ended(run)) => Err(EngineError::Ended(run)),
        Committed::Refused(Refusal::Unknown(_) | Refusal::Exists(_)) => {
            Err(EngineError::UnknownRun(run))
        }
    }
}

impl Shared {
    /// Tells others what an append has changed for them.
    pub(super) fn spread(self: &Arc<Self>, news: News) {
        for run in news.created {
            task::take_up(self, run, false);
        }
        for run in news.mail {
            task::mail_arrived(self, run);
        }
        if news.published {
            self.published.notify_waiters();
        }
    }
}
