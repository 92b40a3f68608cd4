//! Runs that replace others: created in the write that asks the old one to cancel, begun when it has ended.
//!
//! Owns the note that says for whom a new run waits, and the task that lets it begin. The note is there until the
//! new run has something on record, so that no crash between the old run's end and the new one's first
//! poll loses it. It never ends a run itself: the old one is cancelled in its own time, with its undo steps.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::keyed::Terms;
use super::notes::{self, Space};
use super::prepared::{EncodedCall, Prepared};
use super::queues::{self, Place};
use super::{EngineError, Shared, lines, waking};
use crate::ids::RunId;
use crate::journal::{CancelRequested, Event};
use crate::store::{
    Changes, Commit, Committed, Guard, Letter, NoteChange, NoteKey, RunHeader, RunState,
};

/// How often the notes are looked at while somebody waits, for what another process did.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often they are looked at while nobody does.
const IDLE: Duration = Duration::from_secs(30);

/// Notes that are read at a time.
const PAGE: usize = 256;

/// For whom a run waits. The order of fields is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Waiting {
    /// It begins when all of these have ended.
    after: Vec<RunId>,
    /// The queue that it joins then.
    place: Option<Place>,
}

fn note_key(namespace: &str, run: RunId) -> NoteKey {
    notes::key(Space::Successor, namespace, &[run.as_bytes()])
}

/// Creates a run in the place of another one, which is asked to cancel. `None`: the key does not stand as it
/// did, look again.
pub(super) async fn replace(
    shared: &Arc<Shared>,
    call: &EncodedCall,
    terms: Terms,
    old: RunId,
    place: Option<Place>,
) -> Result<Option<RunId>, EngineError> {
    let namespace = &shared.services.namespace;
    let mut after = vec![old];
    // One that waits itself ends at once, and those that it waited for may go on.
    if let Some(bytes) = shared.store.note(note_key(namespace, old)).await? {
        for earlier in read(&bytes)?.after {
            if goes_on(shared, earlier).await?.is_some() {
                after.push(earlier);
            }
        }
    }
    let asleep = RunState::Asleep { wake_at: None };
    let new = Prepared::new(&shared.services, call, terms.naming, asleep).new;
    let run = new.header.run;
    let request = Event::CancelRequested(CancelRequested {
        reason: format!("replaced by {run}: its key was started with other input").into(),
        sent_at: shared.services.clock.now(),
    });
    let mut notes = terms.notes;
    notes.push(NoteChange {
        key: note_key(namespace, run),
        value: Some(notes::encode(&Waiting { after, place })),
    });
    notes.push(queues::awaits_its_turn(run));
    let commit = Commit {
        guards: terms.guards,
        changes: Changes {
            create: vec![new],
            post: vec![Letter {
                to: old,
                body: request.to_letter(),
            }],
            notes,
        },
    };
    if shared.store.commit(commit).await? != Committed::Done {
        return Ok(None);
    }
    tracing::info!(%old, %run, "a run is replaced");
    waking::mail_arrived(shared, old);
    shared.plan.successors.ring();
    Ok(Some(run))
}

/// Starts the task.
pub(super) fn serve(shared: &Arc<Shared>) {
    let weak = Arc::downgrade(shared);
    let bell = shared.plan.successors.clone();
    shared.plan.spawn(async move {
        let mut adopts = true;
        loop {
            let Some(shared) = weak.upgrade().filter(|shared| !shared.is_closing()) else {
                return;
            };
            // Before looking: who ends meanwhile is not missed.
            bell.await_runs(true);
            let nap = match look(&shared, adopts).await {
                Ok(waiting) => {
                    adopts = false;
                    bell.await_runs(waiting);
                    if waiting { LOOK_AGAIN } else { IDLE }
                }
                Err(error) if shared.store.failure().is_some() => {
                    tracing::debug!(%error, "replaced runs are not followed any more: the store has stopped");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "runs that replace others wait: trying again");
                    LOOK_AGAIN
                }
            };
            let clock = &shared.services.clock;
            let nap = clock.pace(clock.nap(nap));
            drop(shared);
            bell.wait(nap).await;
        }
    });
}

/// Lets begin whoever may. Returns whether somebody waits still.
async fn look(shared: &Arc<Shared>, adopts: bool) -> Result<bool, EngineError> {
    let prefix = notes::key(Space::Successor, &shared.services.namespace, &[]);
    let (mut after, mut waiting) = (None, false);
    loop {
        let page = shared.store.notes(prefix.clone(), after, PAGE).await?;
        let full = page.len() == PAGE;
        after = page.last().map(|(key, _)| key.clone());
        for (key, bytes) in page {
            let Some(run) = run_of(&key) else {
                continue;
            };
            waiting |= serve_one(shared, run, key, bytes, adopts).await?;
        }
        if !full {
            return Ok(waiting);
        }
    }
}

/// Lets one run begin if it may. Returns whether its note is needed still.
async fn serve_one(
    shared: &Arc<Shared>,
    run: RunId,
    key: NoteKey,
    bytes: Bytes,
    adopts: bool,
) -> Result<bool, EngineError> {
    let Waiting { after, place } = read(&bytes)?;
    let remove = |key: NoteKey| NoteChange { key, value: None };
    let mut commit = Commit {
        guards: vec![Guard {
            key: key.clone(),
            expected: Some(bytes),
        }],
        changes: Changes::default(),
    };
    let Some(header) = goes_on(shared, run).await? else {
        commit.changes.notes.push(remove(key));
        shared.store.commit(commit).await?;
        return Ok(false);
    };
    for old in after {
        if goes_on(shared, old).await?.is_some() {
            return Ok(true);
        }
    }
    if shared.store.note(notes::queued(run)).await?.is_none() {
        // It had its turn. Until something of it is on record, a crash may have lost that it was woken.
        if shared.store.frames(run, 1, 1).await?.is_empty() {
            if adopts && matches!(header.state, RunState::Asleep { .. }) {
                waking::wake(shared, run);
            }
            return Ok(true);
        }
        commit.changes.notes.push(remove(key));
        shared.store.commit(commit).await?;
        return Ok(false);
    }
    match &place {
        // It is the queue's from now on.
        Some(place) => {
            commit.changes.notes.push(remove(key));
            commit.changes.notes.push(place.entry(shared, run));
        }
        None => commit.changes.notes.push(remove(notes::queued(run))),
    }
    if shared.store.commit(commit).await? == Committed::Done {
        match place {
            Some(_) => shared.plan.queues.nudge(),
            None => waking::wake(shared, run),
        }
    }
    Ok(true)
}

fn read(bytes: &[u8]) -> Result<Waiting, EngineError> {
    notes::decode(bytes).map_err(|problem| {
        EngineError::Key(format!(
            "what is kept of a run that replaces another cannot be read: {problem}"
        ))
    })
}

fn run_of(key: &NoteKey) -> Option<RunId> {
    let run = key.parts()?.into_iter().nth(1)?;
    Some(RunId::from_bytes(run.try_into().ok()?))
}

/// Returns the header of a run, or of the one that continues it, that is there and has not ended.
async fn goes_on(shared: &Shared, run: RunId) -> Result<Option<RunHeader>, EngineError> {
    let header = lines::newest_header(shared, run).await?;
    Ok(header.filter(|header| header.end().is_none()))
}

/// Hands hostile bytes to the readers of its notes; see `hostile`.
#[cfg(feature = "testing")]
pub(super) fn hostile(bytes: &[u8]) {
    let _ = read(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_run_that_waits_are_frozen() {
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let run = |n| RunId::from_bytes([n; 16]);
        let waiting = Waiting {
            after: vec![run(3), run(4)],
            place: Some(Place {
                queue: "q".into(),
                queue_key: Some("k".into()),
                priority: -1,
                delay_micros: Some(300),
            }),
        };
        let bytes = notes::encode(&waiting);
        assert_eq!(
            hex(&bytes),
            "0102030303030303030303030303030303030404040404040404040404040404040401017101016b0101fb2c01"
        );
        assert_eq!(read(&bytes).expect("reads"), waiting);
        let key = note_key("n", run(5));
        assert_eq!(
            hex(key.as_bytes()),
            "616e0001050505050505050505050505050505050001"
        );
        assert_eq!(run_of(&key), Some(run(5)));
    }
}
