//! How what was seen gets on record: by a task, in batches, after the answer was given.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Duplicates, Pending, note};
use crate::engine::{EngineError, Shared, handle};
use crate::ids::RunId;
use crate::store::{Commit, Committed, Guard, NoteChange, NoteKey};

/// The least time between two writes.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs that are written in one commit.
const BATCH: usize = 256;

/// Starts the task.
pub(in crate::engine) fn serve(shared: &Arc<Shared>) {
    let recorder = shared.duplicates.clone();
    let weak = Arc::downgrade(shared);
    shared.plan.spawn(async move {
        loop {
            recorder.seen.notified().await;
            tokio::time::sleep(PAUSE).await;
            let Some(shared) = weak.upgrade().filter(|shared| !shared.is_closing()) else {
                return;
            };
            match flush(&shared).await {
                Ok(()) => {}
                Err(error) if shared.store.failure().is_some() => {
                    tracing::debug!(%error, "duplicates are not written any more: the store has stopped");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "duplicates could not be written: trying again");
                    recorder.seen.notify_one();
                }
            }
        }
    });
}

/// Writes what was seen and is not written yet.
pub(in crate::engine) async fn flush(shared: &Shared) -> Result<(), EngineError> {
    let recorder = &shared.duplicates;
    let _turn = recorder.turn().await;
    loop {
        let taken: Vec<(RunId, Pending)> = {
            let mut pending = recorder.pending();
            let some: Vec<_> = pending.keys().take(BATCH).copied().collect();
            let take = |run: RunId| {
                let taken = pending.remove(&run)?;
                Some((run, taken))
            };
            some.into_iter().filter_map(take).collect()
        };
        if taken.is_empty() {
            return Ok(());
        }
        if let Err(error) = write(shared, &taken).await {
            let mut pending = recorder.pending();
            for (run, mut taken) in taken {
                taken.then(pending.remove(&run).unwrap_or_default());
                pending.insert(run, taken);
            }
            return Err(error);
        }
    }
}

async fn write(shared: &Shared, seen: &[(RunId, Pending)]) -> Result<(), EngineError> {
    loop {
        let mut commit = Commit::default();
        for (run, pending) in seen {
            if shared.store.header(*run).await?.is_none() {
                continue; // it was deleted, and its notes with it
            }
            let key = note_key(*run);
            let expected = shared.store.note(key.clone()).await?;
            let mut duplicates = read(expected.as_ref());
            duplicates.then(pending.read());
            commit.changes.notes.push(NoteChange {
                key: key.clone(),
                value: Some(note::encode(&duplicates)),
            });
            commit.guards.push(Guard { key, expected });
        }
        // Refused if another process has written since: its counts are read again.
        if commit.changes.is_empty() || shared.store.commit(commit).await? == Committed::Done {
            return Ok(());
        }
    }
}

/// Reads a note. One that cannot be read is begun anew: it is no reason to stop anything.
fn read(bytes: Option<&Bytes>) -> Duplicates {
    let Some(bytes) = bytes else {
        return Duplicates::default();
    };
    note::decode(bytes).unwrap_or_else(|problem| {
        tracing::warn!(%problem, "what was kept of duplicates cannot be read: counting anew");
        Duplicates::default()
    })
}

fn note_key(run: RunId) -> NoteKey {
    NoteKey::of_run(run, &[b"duplicates"])
}

/// Returns what was seen of a run, written or not.
pub(in crate::engine) async fn of_run(
    shared: &Shared,
    run: RunId,
) -> Result<Duplicates, EngineError> {
    handle::header(shared, run).await?;
    // Nothing is on its way from memory to the note meanwhile.
    let _turn = shared.duplicates.turn().await;
    let noted = shared.store.note(note_key(run)).await?;
    let mut duplicates = read(noted.as_ref());
    let pending = shared.duplicates.pending();
    if let Some(pending) = pending.get(&run) {
        duplicates.then(pending.read());
    }
    Ok(duplicates)
}
