//! What one event causes, as changes in the store.
//!
//! Owns what is looked up for that and the guards that it stays so. Never writes: `accept` does, with the event's
//! own row.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::digest::Digest;
use crate::engine::generations::Generation;
use crate::engine::letters::check_name;
use crate::engine::prepared::{EncodedCall, Naming, Prepared};
use crate::engine::queues::{Placing, joining};
use crate::engine::{EngineError, Shared, handle, tokens, waking};
use crate::ids::RunId;
use crate::journal::{Event, SignalReceived};
use crate::key::Key;
use crate::payload::PayloadError;
use crate::store::{Changes, Guard, Letter, RunHeader, RunState};

/// What an event causes.
pub(super) enum Cause {
    Start {
        call: Box<EncodedCall>,
        key: Option<Key>,
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
            return Err(EngineError::Stopped("it is shutting down".into()));
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
    key: Option<&Key>,
    placing: &Placing,
    creating: &mut Creating,
) -> Result<Caused, EngineError> {
    if let Some(problem) = key.and_then(Key::problem) {
        return Err(EngineError::Key(problem));
    }
    let queue = placing.queue()?;
    let (naming, guards) = match look(shared, call, key).await? {
        Look::Free(naming, guards) => (naming, guards),
        Look::Held(header, guards) => {
            let first = (header.input_digest, header.created_at);
            fits(call, key, header.run, first)?;
            return Ok(Caused {
                run: header.run,
                guards,
                changes: Changes::default(),
                told: Told::Nobody,
            });
        }
    };
    let run = naming.run;
    if let Some(first) = creating.get(&run) {
        // An event before this one in the same commit creates it.
        fits(call, key, run, (*first, shared.services.clock.now()))?;
        return Ok(Caused {
            run,
            guards,
            changes: Changes::default(),
            told: Told::Nobody,
        });
    }
    let mut changes = Changes::default();
    let (state, told) = match queue {
        None => (RunState::Active, Told::NewRun),
        Some(queue) => {
            changes.notes = joining(shared, queue, placing, run).await?.into();
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
    })
}

/// What a start finds under its key.
enum Look {
    /// A run has it.
    Held(Box<RunHeader>, Vec<Guard>),
    /// A run of that name may be created.
    Free(Naming, Vec<Guard>),
}

/// Looks at what a key names now.
async fn look(shared: &Shared, call: &EncodedCall, key: Option<&Key>) -> Result<Look, EngineError> {
    let Some(key) = key else {
        let naming = Naming::unkeyed(shared.services.new_run_id());
        return Ok(Look::Free(naming, Vec::new()));
    };
    let generation = Generation::of(shared, &call.workflow, key.as_str()).await?;
    let (namespace, number) = (&shared.services.namespace, generation.number);
    let naming = Naming::keyed(namespace, &call.workflow, key.as_str(), number);
    let guards = vec![generation.guard];
    Ok(match shared.store.header(naming.run).await? {
        Some(header) => Look::Held(Box::new(header), guards),
        None => Look::Free(naming, guards),
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
    let payload = payload.clone().map_err(unfit)?;
    let header = handle::header(shared, run).await?; // it may be of another namespace
    if header.end().is_some() {
        return Err(EngineError::Ended(run));
    }
    // Whoever waits for it in memory says what it must be: better told to the sender than to it.
    let check = shared
        .entry(run)
        .and_then(|entry| entry.core())
        .and_then(|core| core.signal_check(name));
    if let Some(check) = check {
        check(&shared.services.payloads, &payload).map_err(unfit)?;
    }
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
    })
}

impl Caused {
    /// It is durable: tells whom it concerns.
    pub(super) fn tell(&self, shared: &Arc<Shared>) {
        match self.told {
            Told::Nobody => {}
            Told::NewRun => waking::wake(shared, self.run),
            Told::Queue => shared.plan.queues.nudge(),
            Told::Mailbox => waking::mail_arrived(shared, self.run),
        }
    }
}
