//! Removes outcomes whose time is over, a batch at a time, soonest first.
//!
//! Owns the walk over the entries of expiry. Never removes a row that was written anew meanwhile.

use super::super::{KeyError, KeyId, KeyResult};
use super::book::Book;
use super::rows::Row;
use crate::clock::Timestamp;
use crate::engine::notes;
use crate::store::{Commit, Committed, Guard, NoteChange, NoteKey};

/// Rows that are removed in one write.
const BATCH: usize = 100;

/// Chunks that are removed in one write: 8 MiB of outcomes.
const CHUNKS: u32 = 64;

/// Removes what expired, and says how much it was.
pub(crate) async fn sweep(book: &Book) -> KeyResult<u64> {
    let now = book.clock().now();
    let mut removed = 0;
    loop {
        let (commit, rows) = next_batch(book, now).await?;
        if commit.changes.is_empty() {
            return Ok(removed);
        }
        // Refused if a row was written anew: then its entry is gone, and the next look does not find it.
        if book.store().commit(commit).await? == Committed::Done {
            removed += rows;
        }
        tokio::task::yield_now().await;
    }
}

/// Gathers what one write removes.
async fn next_batch(book: &Book, now: Timestamp) -> KeyResult<(Commit, u64)> {
    let (store, namespace) = (book.store(), book.namespace());
    let mut commit = Commit::default();
    let (mut rows, mut chunks) = (0, 0);
    let prefix = notes::guarded_expiries(namespace);
    for (entry, _) in store.notes(prefix, None, BATCH).await? {
        let (expires_at, key) = parts_of(&entry)?;
        if expires_at > now || chunks > CHUNKS {
            break;
        }
        let name = notes::guarded_row(namespace, key.as_bytes());
        let found = store.note(name.clone()).await?;
        let row = match &found {
            Some(found) => Some(Row::decode(key, found)?),
            None => None,
        };
        match row.filter(|row| row.expires_at == expires_at) {
            Some(row) => {
                commit.changes.notes.extend(row.removal(namespace, key));
                rows += 1;
                chunks += row.chunks;
            }
            // Of a row that is not this one's only the entry goes.
            None => commit.changes.notes.push(NoteChange {
                key: entry,
                value: None,
            }),
        }
        commit.guards.push(Guard {
            key: name,
            expected: found,
        });
    }
    Ok((commit, rows))
}

/// The time and the key of an entry.
fn parts_of(entry: &NoteKey) -> KeyResult<(Timestamp, KeyId)> {
    let parts = entry.parts().and_then(|parts| {
        let [_, at, key] = <[Vec<u8>; 3]>::try_from(parts).ok()?;
        let at = u64::from_be_bytes(at.try_into().ok()?);
        let key = KeyId::from_bytes(key.try_into().ok()?);
        Some((Timestamp::from_micros(at), key))
    });
    parts.ok_or_else(|| KeyError::Backend {
        place: "the sweep of expired keys",
        message: format!("{entry:?} is malformed"),
    })
}
