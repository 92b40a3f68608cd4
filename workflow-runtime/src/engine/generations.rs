//! Generations of keys: a key that its run no longer holds names a new run, never the old one again.
//!
//! Owns the note of the generation that a key is in, which is there for ever once it is not the first. It is
//! written in the commit that creates the next run, or before a run is deleted. Were a generation given twice, run and step ids would repeat, and a payment API would
//! answer with the old charge.

use bytes::Bytes;

use super::notes::{self, Space};
use super::{EngineError, Shared};
use crate::ids::RunId;
use crate::store::{Guard, NoteChange, NoteKey};

/// Names the note of a key's generation. Keys are of any length; their note holds the id of their first run instead,
/// which is derived from namespace, workflow and key.
pub(super) fn note_key(namespace: &str, workflow: &str, key: &str) -> NoteKey {
    let first = RunId::derive(namespace, workflow, key, 0);
    notes::key(Space::Generation, namespace, &[first.as_bytes()])
}

/// The generation that a key is in, as its note says.
#[derive(Debug, Clone)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) guard: Guard,
}

impl Generation {
    /// Looks a key's generation up.
    pub(super) async fn of(
        shared: &Shared,
        workflow: &str,
        key: &str,
    ) -> Result<Self, EngineError> {
        let note = note_key(&shared.services.namespace, workflow, key);
        let found = shared.store.note(note.clone()).await?;
        let number = match &found {
            None => 0,
            Some(bytes) => notes::decode(bytes).map_err(|problem| {
                EngineError::Key(format!(
                    "the generation of the key {key:?} cannot be read: {problem}"
                ))
            })?,
        };
        let guard = Guard {
            key: note,
            expected: found,
        };
        Ok(Self { number, guard })
    }

    /// The value of the note once this generation is over.
    fn tombstone(&self) -> Bytes {
        notes::encode(&(self.number + 1))
    }

    /// The change after which the key is in its next generation.
    pub(super) fn moves_on(&self) -> NoteChange {
        NoteChange {
            key: self.guard.key.clone(),
            value: Some(self.tombstone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_tombstone_are_frozen() {
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let key = note_key("n", "w", "k");
        let generation = Generation {
            number: 299,
            guard: Guard {
                key: key.clone(),
                expected: None,
            },
        };
        assert_eq!(hex(&generation.tombstone()), "01fb2c01");
        let first = hex(RunId::derive("n", "w", "k", 0).as_bytes());
        assert!(!first.contains("00"), "a zero byte would be escaped");
        assert_eq!(hex(key.as_bytes()), format!("606e0001{first}0001"));
    }
}
