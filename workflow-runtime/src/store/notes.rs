//! Notes: small named values beside the journals, changed in the same atomic writes.
//!
//! Owns the keys of notes, which sort by their parts, so that all notes below some leading
//! parts are one range. What a note says is the engine's business.

use std::fmt;

use bytes::Bytes;

use super::{StoreError, StoreResult};
use crate::ids::RunId;

/// The space of notes that belong to one run and are deleted with it.
const OF_RUN: u8 = 0;

/// The name of a note: a space, and parts. Sorted by them, in order.
///
/// Encoded so that the encoding of leading parts is a prefix of the whole, and no two lists of
/// parts have the same encoding: every part ends with `00 01`, and a zero byte in it is `00 ff`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoteKey(Bytes);

impl NoteKey {
    /// Names a note in a space of its own kind; 0 is for notes of runs.
    ///
    /// # Panics
    ///
    /// If the space is 0.
    pub fn new(space: u8, parts: &[&[u8]]) -> Self {
        assert_ne!(space, OF_RUN, "space 0 is for notes of runs");
        Self::encode(space, parts)
    }

    /// Names a note that belongs to a run and is deleted with it. Without parts it is the prefix of
    /// all of them.
    pub fn of_run(run: RunId, parts: &[&[u8]]) -> Self {
        let mut all: Vec<&[u8]> = Vec::with_capacity(1 + parts.len());
        all.push(run.as_bytes());
        all.extend_from_slice(parts);
        Self::encode(OF_RUN, &all)
    }

    /// Returns the run to which the note belongs, if it belongs to one.
    pub fn run(&self) -> Option<RunId> {
        if self.0.first() != Some(&OF_RUN) {
            return None;
        }
        let run = self.parts()?.into_iter().next()?;
        Some(RunId::from_bytes(run.try_into().ok()?))
    }

    fn encode(space: u8, parts: &[&[u8]]) -> Self {
        let mut key =
            Vec::with_capacity(1 + parts.iter().map(|part| part.len() + 2).sum::<usize>());
        key.push(space);
        for part in parts {
            for byte in *part {
                key.push(*byte);
                if *byte == 0 {
                    key.push(0xff);
                }
            }
            key.extend_from_slice(&[0, 1]);
        }
        Self(key.into())
    }

    /// Rebuilds a key from its bytes.
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Returns the key's bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Takes the key apart into its parts; `None` if it is not well-formed.
    pub fn parts(&self) -> Option<Vec<Vec<u8>>> {
        let (_, mut rest) = self.0.split_first()?;
        let mut parts = Vec::new();
        let mut part = Vec::new();
        while let Some((byte, behind)) = rest.split_first() {
            rest = behind;
            if *byte != 0 {
                part.push(*byte);
                continue;
            }
            let (mark, behind) = rest.split_first()?;
            rest = behind;
            match mark {
                0xff => part.push(0),
                1 => parts.push(std::mem::take(&mut part)),
                _ => return None,
            }
        }
        part.is_empty().then_some(parts)
    }
}

impl fmt::Debug for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NoteKey({})", self.0.escape_ascii())
    }
}

/// One note to be written, or with `None` removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteChange {
    /// Which one.
    pub key: NoteKey,
    /// Its new value.
    pub value: Option<Bytes>,
}

impl NoteChange {
    /// The most bytes a key has.
    pub const MAX_KEY_BYTES: usize = 1024;

    /// The most bytes a value has. Larger things belong into journals, or elsewhere.
    pub const MAX_VALUE_BYTES: usize = 256 * 1024;

    /// Refuses a note that is too large.
    pub(super) fn check(&self) -> StoreResult<()> {
        let value = self.value.as_ref().map_or(0, Bytes::len);
        let key = self.key.as_bytes().len();
        let (what, bytes, limit) = match key > Self::MAX_KEY_BYTES {
            true => ("the key of a note", key, Self::MAX_KEY_BYTES),
            false => ("a note", value, Self::MAX_VALUE_BYTES),
        };
        if bytes <= limit {
            return Ok(());
        }
        Err(StoreError::Io {
            operation: format!("writing {what}"),
            message: format!("{bytes} bytes are more than the limit of {limit}"),
        })
    }
}

/// What a note must say for a commit to be made; `None`: it must not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// Which one.
    pub key: NoteKey,
    /// What it must say, to the byte.
    pub expected: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_apart_and_sort_by_their_parts() {
        let lists: [&[&[u8]]; 7] = [
            &[],
            &[b""],
            &[b"", b"b"],
            &[b"\0"],
            &[b"a"],
            &[b"a", b"b"],
            &[b"ab"],
        ];
        let keys: Vec<_> = lists.iter().map(|parts| NoteKey::new(3, parts)).collect();
        for (key, parts) in keys.iter().zip(lists) {
            assert_eq!(key.parts().as_deref().map(|p| p.len()), Some(parts.len()));
            assert!(key.parts().is_some_and(|found| found == parts));
        }
        assert!(keys.is_sorted(), "{keys:?}");
    }

    #[test]
    fn a_note_knows_the_run_that_it_belongs_to() {
        let run = RunId::from_bytes([0; 16]);
        assert_eq!(NoteKey::of_run(run, &[b"progress"]).run(), Some(run));
        assert_eq!(NoteKey::of_run(run, &[]).run(), Some(run));
        assert_eq!(NoteKey::new(1, &[run.as_bytes()]).run(), None);
    }

    #[test]
    fn leading_parts_are_a_prefix_and_half_a_part_is_not() {
        let whole = NoteKey::new(3, &[b"ab", b"c"]);
        assert!(
            whole
                .as_bytes()
                .starts_with(NoteKey::new(3, &[b"ab"]).as_bytes())
        );
        assert!(
            !whole
                .as_bytes()
                .starts_with(NoteKey::new(3, &[b"a"]).as_bytes())
        );
        assert!(
            !whole
                .as_bytes()
                .starts_with(NoteKey::new(4, &[]).as_bytes())
        );
    }
}
