//! What one event causes, as changes in the store.
//!
//! Owns what is looked up for that and the guards that it stays so. Never writes: `accept` does, with the event's
//! own row.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::digest::Digest;
use crate::engine::keyed::{self, Asked, Look, Promise, Terms};
use crate::engine::letters::check_name;
use crate::engine::lines::Line;
use crate::engine::prepared::{EncodedCall, Prepared};
use crate::engine::queues::{Placing, joining};
use crate::engine::{EngineError, Shared, handle, tokens, waking};
use crate::ids::RunId;
use crate::journal::{Event, SignalReceived};
use crate::key::Key;
use crate::payload::{PayloadError, Place};
use crate::store::{Changes, Guard, Letter, RunState};

/// What an event causes.
pub(super) enum Cause {
    Start {
        call: Box<EncodedCall>,
        /// Its key, and what is promised for it.
        key: Option<(Key, Promise)>,
        placing: Placing,
    },
    Signal {
        run: RunId,
        name: Box<str>,
        payload: Result<Bytes, PayloadError>,
    },
    Token {
        token: Box<str>,
        payload: Result<Bytes, PayloadError>,
    },
}

/// What it changes.
pub(super) struct Caused {
    /// The run that it causes, or that gets its letter.
    pub(super) run: RunId,
    pub(super) guards: Vec<Guard>,
    pub(super) changes: Changes,
    told: Told,
    /// The first run of a key that goes on to its next generation with it.
    moved: Option<RunId>,
}

/// Who is told once it is durable.
enum Told {
    Nobody,
    NewRun,
    Queue,
    Mailbox,
}

/// The runs that a commit creates: a key may be that of several of its events.
pub(super) type Creating = HashMap<RunId, Digest>;

impl Cause {
    /// About how many bytes it takes in a commit.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Start { call, .. } => call.input.len(),
            Self::Signal { payload, .. } | Self::Token { payload, .. } => {
                payload.as_ref().map_or(0, Bytes::len)
            }
        }
    }

    /// Looks up what it changes now.
    pub(super) async fn plan(
        &self,
        shared: &Arc<Shared>,
        creating: &mut Creating,
    ) -> Result<Caused, EngineError> {
        if shared.is_closing() {
            return Err(shared.refusal("it is shutting down"));
        }
        match self {
            Self::Start { call, key, placing } => {
                start(shared, call, key.as_ref(), placing, creating).await
            }
            Self::Signal { run, name, payload } => {
                check_name("signal", name)?;
                letter(shared, *run, name, payload, None).await
            }
            Self::Token { token, payload } => {
                check_name("token", token)?;
                let (run, guard) = tokens::find(shared, token).await?;
                let name = tokens::signal_name(token);
                letter(shared, run, &name, payload, Some(guard)).await
            }
        }
    }
}

async fn start(
    shared: &Arc<Shared>,
    call: &EncodedCall,
    key: Option<&(Key, Promise)>,
    placing: &Placing,
    creating: &mut Creating,
) -> Result<Caused, EngineError> {
    if let Some(problem) = key.and_then(|(key, _)| key.problem()) {
        return Err(EngineError::Key(problem));
    }
    let queue = placing.queue()?;
    let asked = key.map(|(key, promise)| Asked::strictly(key, *promise));
    let look = match &asked {
        None => Look::Free(Terms::unkeyed(shared)),
        Some(asked) => keyed::look(shared, call, asked).await?,
    };
    let key = key.map(|(key, _)| key);
    let Terms {
        naming,
        guards,
        notes,
        ..
    } = match look {
        Look::Free(terms) => terms,
        Look::Held { header, newest, .. } => {
            let first = (header.input_digest, header.created_at);
            fits(call, key, header.run, first)?;
            return Ok(Caused {
                run: newest,
                guards: Vec::new(),
                changes: Changes::default(),
                told: Told::Nobody,
                moved: None,
            });
        }
    };
    let run = naming.run;
    let moved = asked.filter(|_| naming.generation > 0);
    let moved = moved.map(|asked| asked.first(shared, &call.workflow));
    if let Some(first) = creating.get(&run) {
        // An event before this one in the same commit creates it.
        fits(call, key, run, (*first, shared.services.clock.now()))?;
        return Ok(Caused {
            run,
            guards,
            changes: Changes::default(),
            told: Told::Nobody,
            moved,
        });
    }
    let mut changes = Changes {
        notes,
        ..Changes::default()
    };
    let (state, told) = match queue {
        None => (RunState::Active, Told::NewRun),
        Some(queue) => {
            let joining = joining(shared, queue, placing, run).await?;
            changes.notes.extend(joining);
            (RunState::Asleep { wake_at: None }, Told::Queue)
        }
    };
    let prepared = Prepared::new(&shared.services, call, naming, state);
    changes.create.push(prepared.new);
    creating.insert(run, call.input_digest);
    Ok(Caused {
        run,
        guards,
        changes,
        told,
        moved,
    })
}

/// Refuses a run of another input under the same key.
fn fits(
    call: &EncodedCall,
    key: Option<&Key>,
    run: RunId,
    (first, started_at): (Digest, crate::clock::Timestamp),
) -> Result<(), EngineError> {
    if first == call.input_digest {
        return Ok(());
    }
    Err(EngineError::Conflict {
        key: key.map(ToString::to_string).unwrap_or_default(),
        run,
        workflow: call.workflow.to_string(),
        started_at,
        first,
        now: call.input_digest,
    })
}

async fn letter(
    shared: &Arc<Shared>,
    run: RunId,
    name: &str,
    payload: &Result<Bytes, PayloadError>,
    guard: Option<Guard>,
) -> Result<Caused, EngineError> {
    let unfit = |problem| EngineError::Signal {
        name: name.to_owned(),
        run,
        problem,
    };
    let plain = payload.clone().map_err(unfit)?;
    let line = Line::of(shared, run).await?; // it may be of another namespace
    let run = line.newest;
    if handle::header(shared, run).await?.end().is_some() {
        return Err(EngineError::Ended(run));
    }
    // Whoever waits for it in memory says what it must be: better told to the sender than to it.
    let check = shared
        .entry(run)
        .and_then(|entry| entry.core())
        .and_then(|core| core.signal_check(name));
    if let Some(check) = check {
        check(&shared.services.payloads.without_codec(), &plain).map_err(unfit)?;
    }
    let payloads = shared.services.payloads.at(Place::signal(line.first));
    let payload = payloads.encode_bytes(&plain).map_err(unfit)?;
    let event = Event::SignalReceived(SignalReceived {
        name: name.into(),
        key: None,
        sent_at: shared.services.clock.now(),
        payload,
    });
    let letter = Letter {
        to: run,
        body: event.to_letter(),
    };
    Ok(Caused {
        run,
        guards: guard.into_iter().collect(),
        changes: Changes {
            post: vec![letter],
            ..Changes::default()
        },
        told: Told::Mailbox,
        moved: None,
    })
}

impl Caused {
    /// It is durable: tells whom it concerns.
    pub(super) fn tell(&self, shared: &Arc<Shared>) {
        if let Some(first) = self.moved {
            shared.known_keys.moved_on(first);
        }
        match self.told {
            Told::Nobody => {}
            Told::NewRun => waking::wake(shared, self.run),
            Told::Queue => shared.plan.queues.nudge(),
            Told::Mailbox => waking::mail_arrived(shared, self.run),
        }
    }
}
