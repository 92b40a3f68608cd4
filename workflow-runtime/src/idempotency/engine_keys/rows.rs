//! What is kept of an outcome in the engine's store: a row, an entry that says when it expires, and chunks if it is
//! large.
//!
//! Owns the bytes of these notes, listed in `docs/journal-format.md`. Never decides whether a row is to be
//! written.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::super::{KeyError, KeyId, KeyResult};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::engine::notes;
use crate::store::{NoteChange, NoteKey, Store};

/// The most bytes of an outcome that stand in its row, and in each of its chunks: half of what a note takes.
pub(super) const CHUNK: usize = NoteChange::MAX_VALUE_BYTES / 2;

/// The largest outcome.
pub(super) const MAX_OUTCOME: usize = 16 * 1024 * 1024;

/// The largest one after the payload codec. All its chunks are one write, which takes 64 MiB.
pub(super) const MAX_CODED: usize = 32 * 1024 * 1024;

/// A row. On disk: fields are added at the end of a new format only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) body: Digest,
    /// When the key was taken.
    pub(super) since: Timestamp,
    pub(super) completed_at: Timestamp,
    pub(super) expires_at: Timestamp,
    /// The outcome, or the first chunk of it.
    pub(super) outcome: Bytes,
    /// How many chunks stand behind it.
    pub(super) chunks: u32,
}

impl Row {
    pub(super) fn decode(key: KeyId, bytes: &[u8]) -> KeyResult<Self> {
        notes::decode(bytes).map_err(|problem| KeyError::Unreadable { key, problem })
    }

    /// Reads the whole outcome. `None`: it was replaced or removed meanwhile.
    pub(super) async fn outcome(
        &self,
        store: &dyn Store,
        namespace: &str,
        key: KeyId,
    ) -> KeyResult<Option<Bytes>> {
        if self.chunks == 0 {
            return Ok(Some(self.outcome.clone()));
        }
        let mut whole = BytesMut::from(&*self.outcome);
        for number in 1..=self.chunks {
            let chunk = notes::guarded_chunk(namespace, key.as_bytes(), number);
            match store.note(chunk).await? {
                Some(chunk) => whole.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
        Ok(Some(whole.freeze()))
    }

    /// The changes that remove it.
    pub(super) fn removal(&self, namespace: &str, key: KeyId) -> Vec<NoteChange> {
        let chunks = (1..=self.chunks).map(|n| notes::guarded_chunk(namespace, key.as_bytes(), n));
        let row = notes::guarded_row(namespace, key.as_bytes());
        let expiry = notes::guarded_expiry(namespace, self.expires_at, key.as_bytes());
        let all = [row, expiry].into_iter().chain(chunks);
        all.map(|key| NoteChange { key, value: None }).collect()
    }
}

/// The changes that write a row with its outcome.
pub(super) fn writing(namespace: &str, key: KeyId, mut row: Row) -> Vec<NoteChange> {
    let mut rest = row.outcome.split_off(row.outcome.len().min(CHUNK));
    let mut changes = Vec::with_capacity(2);
    let mut put = |key: NoteKey, value: Bytes| {
        let value = Some(value);
        changes.push(NoteChange { key, value });
    };
    while !rest.is_empty() {
        let chunk = rest.split_to(rest.len().min(CHUNK));
        row.chunks += 1;
        put(
            notes::guarded_chunk(namespace, key.as_bytes(), row.chunks),
            chunk,
        );
    }
    put(
        notes::guarded_expiry(namespace, row.expires_at, key.as_bytes()),
        notes::encode(&()),
    );
    put(
        notes::guarded_row(namespace, key.as_bytes()),
        notes::encode(&row),
    );
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(outcome: Bytes) -> Row {
        Row {
            body: Digest::from_bytes([0xd1; 16]),
            since: Timestamp::from_micros(1),
            completed_at: Timestamp::from_micros(2),
            expires_at: Timestamp::from_micros(300),
            outcome,
            chunks: 0,
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn the_bytes_of_a_row_and_its_expiry_are_frozen() {
        let key = KeyId::from_bytes([0xab; 32]);
        let changes = writing("n", key, row(Bytes::from_static(b"ok")));
        let changes: Vec<_> = changes
            .iter()
            .map(|c| (hex(c.key.as_bytes()), hex(c.value.as_ref().expect("set"))))
            .collect();
        let id = "ab".repeat(32);
        let expiry = "00ff00ff00ff00ff00ff00ff012c";
        assert_eq!(
            changes,
            [
                (format!("716e0001{expiry}0001{id}0001"), "01".to_owned()),
                (
                    format!("706e0001{id}0001"),
                    format!("01{}0102fb2c01026f6b00", "d1".repeat(16))
                ),
            ]
        );
    }

    #[test]
    fn a_large_outcome_has_chunks_and_a_removal_takes_all_of_it() {
        let key = KeyId::from_bytes([0xab; 32]);
        let outcome = Bytes::from(vec![5; 2 * CHUNK + 1]);
        let written = writing("n", key, row(outcome));
        let sizes: Vec<_> = written
            .iter()
            .map(|c| (c.key.as_bytes()[0], c.value.as_ref().map_or(0, Bytes::len)))
            .collect();
        assert_eq!(&sizes[..3], [(0x72, CHUNK), (0x72, 1), (0x71, 1)]);
        assert_eq!(
            hex(written[1].key.as_bytes()),
            format!("726e0001{}000100ff00ff00ff020001", "ab".repeat(32))
        );
        assert!(
            written
                .iter()
                .all(|c| { c.value.as_ref().map_or(0, Bytes::len) <= NoteChange::MAX_VALUE_BYTES })
        );
        let value = written[3].value.as_ref().expect("set");
        let read = Row::decode(key, value).expect("reads");
        assert_eq!(read.chunks, 2);
        let mut gone: Vec<_> = read.removal("n", key).into_iter().map(|c| c.key).collect();
        let mut there: Vec<_> = written.into_iter().map(|c| c.key).collect();
        gone.sort();
        there.sort();
        assert_eq!(gone, there);
    }
}
