//! Sending to runs: signals and requests to cancel.
//!
//! Owns the sender's side: what is refused, what is written, and who is told. The sender is
//! acknowledged when the letter is durable in the run's mailbox; the run's own driver moves it into
//! the journal. Never touches a journal itself.

use std::future::IntoFuture;
use std::panic::Location;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::duplicates::{DuplicateBody, DuplicateKind, Source};
use super::lines::{self, Line};
use super::writer::News;
use super::{EngineError, Shared, notes, task, tokens, waking};
use crate::digest::{Digest, digest};
use crate::ids::RunId;
use crate::journal::{CancelRequested, Event, SignalReceived};
use crate::key::Key;
use crate::payload::{PayloadError, Payloads, Place};
use crate::store::{BoxFuture, Commit, Committed, Guard, Letter, NoteChange, NoteKey, Refusal};

/// The longest name of a signal, a published value or a hook's token.
const MAX_NAME: usize = 256;

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
    to: To,
    body: Body,
    key: Option<Key>,
    source: Source,
}

/// What a signal carries.
#[derive(Clone)]
pub(super) struct Body {
    /// Before the codec, which binds it to the line that it is sent to.
    payload: Result<Bytes, PayloadError>,
    /// Tells a repeated signal from another one under the same key.
    digest: Option<Digest>,
}

impl Body {
    pub(super) fn of<T: Serialize + ?Sized>(payloads: &Payloads, value: &T) -> Self {
        let payload = payloads.without_codec().encode(value);
        // A value that is refused may be too large to be looked at.
        let digest = match payload {
            Ok(_) => digest(value).ok().map(|digest| digest.strict),
            Err(_) => None,
        };
        Self { payload, digest }
    }
}

/// Where a signal goes.
enum To {
    Run { run: RunId, name: Box<str> },
    Token(Box<str>),
}

impl SendSignal {
    pub(super) fn new(
        shared: Result<Arc<Shared>, EngineError>,
        run: RunId,
        name: &str,
        body: Body,
        line: &'static Location<'static>,
    ) -> Self {
        let name = name.into();
        Self {
            shared,
            to: To::Run { run, name },
            body,
            key: None,
            source: Source::Line(line),
        }
    }

    pub(super) fn to_token(
        shared: Arc<Shared>,
        token: &str,
        body: Body,
        line: &'static Location<'static>,
    ) -> Self {
        Self {
            shared: Ok(shared),
            to: To::Token(token.into()),
            body,
            key: None,
            source: Source::Line(line),
        }
    }

    /// Says who sends, for the record if this turns out to be a duplicate; the line of code otherwise. At most
    /// 128 bytes are kept. See [`Engine::duplicates`](super::Engine::duplicates).
    pub fn origin(mut self, origin: &str) -> Self {
        self.source = Source::named(origin);
        self
    }

    /// Names the sending: of all signals with this name and key to this run, only the first counts.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    async fn send(self) -> Result<Sent, EngineError> {
        let shared = self.shared?;
        if let Some(problem) = self.key.as_ref().and_then(Key::problem) {
            return Err(EngineError::Key(problem));
        }
        let mut parcel = Parcel {
            shared: &shared,
            body: self.body,
            key: self.key,
            source: self.source,
        };
        let token = match self.to {
            To::Run { run, name } => {
                check_name("signal", &name)?;
                return match parcel.send(run, &name, None).await? {
                    Some(sent) => Ok(sent),
                    None => Err(EngineError::UnknownRun(run)), // it has no guard that could refuse
                };
            }
            To::Token(token) => token,
        };
        check_name("token", &token)?;
        let name = tokens::signal_name(&token);
        loop {
            let (run, guard) = tokens::find(&shared, &token).await?;
            match parcel.send(run, &name, Some(guard)).await {
                Ok(Some(sent)) => return Ok(sent),
                // The token went to another run, or its run has just ended: look again.
                Ok(None) | Err(EngineError::Ended(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What is to be sent, whoever gets it.
struct Parcel<'a> {
    shared: &'a Arc<Shared>,
    body: Body,
    key: Option<Key>,
    source: Source,
}

impl Parcel<'_> {
    /// Sends it to a run. `None` if the guard refused.
    async fn send(
        &mut self,
        run: RunId,
        name: &str,
        guard: Option<Guard>,
    ) -> Result<Option<Sent>, EngineError> {
        let unfit = |problem| EngineError::Signal {
            name: name.to_owned(),
            run,
            problem,
        };
        let plain = self.body.payload.clone().map_err(unfit)?;
        let shared = self.shared;
        let line = Line::of(shared, run).await?; // it may be of another namespace
        // Whoever waits for it in memory says what it must be: better told to the sender than to it.
        let check = shared
            .entry(line.newest)
            .and_then(|entry| entry.core())
            .and_then(|core| core.signal_check(name));
        if let Some(check) = check {
            check(&shared.services.payloads.without_codec(), &plain).map_err(unfit)?;
        }
        let payloads = shared.services.payloads.at(Place::signal(line.first));
        let payload = payloads.encode_bytes(&plain).map_err(unfit)?;
        let mut commit = Commit::default();
        let guarded = guard.is_some();
        commit.guards.extend(guard);
        if let Some(key) = &self.key {
            let note = notes::signal_key(line.first, name, key.as_str());
            check_key(name, key, &note)?;
            commit.guards.push(Guard {
                key: note.clone(),
                expected: None,
            });
            commit.changes.notes.push(NoteChange {
                key: note,
                value: Some(match &self.body.digest {
                    Some(digest) => Bytes::copy_from_slice(digest.as_bytes()),
                    None => Bytes::new(),
                }),
            });
        }
        let event = Event::SignalReceived(SignalReceived {
            name: name.into(),
            key: self.key.as_ref().map(|key| key.as_str().into()),
            sent_at: shared.services.clock.now(),
            payload,
        });
        match post(shared, line.newest, commit, &event).await? {
            Posted::Done => Ok(Some(Sent::Accepted)),
            Posted::Refused { guard: 0, .. } if guarded => Ok(None),
            Posted::Refused { found, .. } => {
                let body = match (&self.body.digest, found.as_deref()) {
                    (Some(now), Some(first)) if !first.is_empty() => {
                        DuplicateBody::same(now.as_bytes() == first)
                    }
                    _ => DuplicateBody::Unknown, // an older release kept no digest
                };
                let (run, kind) = (line.newest, DuplicateKind::Signal);
                shared.duplicates.saw(run, kind, &self.source, body);
                Ok(Some(Sent::Duplicate))
            }
        }
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
            let shared = self.shared?;
            let event = Event::CancelRequested(CancelRequested {
                reason: self.reason,
                sent_at: shared.services.clock.now(),
            });
            let run = lines::newest(&shared, self.run).await?; // it may be of another namespace
            post(&shared, run, Commit::default(), &event).await?;
            Ok(())
        })
    }
}

/// Refuses a name that cannot be one.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), EngineError> {
    let problem = match name.len() {
        0 => "it is empty".to_owned(),
        1..=MAX_NAME => return Ok(()),
        long => format!("it has {long} bytes, {MAX_NAME} are the most"),
    };
    Err(EngineError::Name { what, problem })
}

/// Refuses a key that is too long for the note that remembers it.
fn check_key(name: &str, key: &Key, note: &NoteKey) -> Result<(), EngineError> {
    let (bytes, most) = (note.as_bytes().len(), NoteChange::MAX_KEY_BYTES);
    if bytes <= most {
        return Ok(());
    }
    Err(EngineError::Key(format!(
        "the key of {} bytes is too long for the signal `{name}`: with the name it takes {} too many; make it with \
         `Key::hash`",
        key.as_str().len(),
        bytes - most
    )))
}

/// What became of a letter.
enum Posted {
    Done,
    /// A guard of this number refused it.
    Refused {
        guard: usize,
        found: Option<Bytes>,
    },
}

/// Puts a letter into the mailbox of the newest run of a line and tells that run.
async fn post(
    shared: &Arc<Shared>,
    run: RunId,
    mut commit: Commit,
    event: &Event,
) -> Result<Posted, EngineError> {
    let is_signal = matches!(event, Event::SignalReceived(_));
    let copies = match is_signal {
        true if seeded!(LostSignal) => 0,
        true if seeded!(SignalTwice) => 2,
        _ => 1,
    };
    for _ in 0..copies {
        commit.changes.post.push(Letter {
            to: run,
            body: event.to_letter(),
        });
    }
    match shared.store.commit(commit).await? {
        Committed::Done => {
            waking::mail_arrived(shared, run);
            Ok(Posted::Done)
        }
        Committed::Refused(Refusal::Note { guard, found }) => Ok(Posted::Refused { guard, found }),
        Committed::Refused(Refusal::Ended(run)) => Err(EngineError::Ended(run)),
        Committed::Refused(Refusal::Unknown(_) | Refusal::Exists(_)) => {
            Err(EngineError::UnknownRun(run))
        }
    }
}

impl Shared {
    /// Tells others what an append has changed for them.
    pub(super) fn spread(self: &Arc<Self>, news: News) {
        // An engine that stops leaves what it created to the next one.
        for run in news.created.into_iter().filter(|_| !self.is_closing()) {
            task::take_up(self, run, false);
        }
        for run in news.mail {
            waking::mail_arrived(self, run);
        }
        if news.messages {
            self.relays.nudge();
        }
        if news.published {
            self.published.notify_waiters();
        }
    }
}
