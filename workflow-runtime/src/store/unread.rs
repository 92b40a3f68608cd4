//! Letters that wait when a run fails: they were acknowledged, and are kept for the case that it is tried again.
//!
//! Owns the notes that they are kept in: names, order, pieces. A store writes them with the end and never reads them;
//! whoever takes the run up again hands them back ([`Reopening::letters`](super::Reopening::letters)). They belong to the run
//! and are deleted with it.

use bytes::Bytes;

use super::{NoteChange, NoteKey};
use crate::ids::RunId;

/// The notes of letters that waited when a run failed.
#[derive(Debug, Clone, Copy)]
pub struct Unread;

impl Unread {
    /// The prefix of these notes.
    pub fn prefix(run: RunId) -> NoteKey {
        NoteKey::of_run(run, &[b"unread"])
    }

    /// The notes that keep letters, in this order. A letter may be larger than a note: it is cut into pieces.
    pub fn keep(run: RunId, letters: impl IntoIterator<Item = Bytes>) -> Vec<NoteChange> {
        let mut notes = Vec::new();
        for (letter, number) in letters.into_iter().zip(0_u64..) {
            let pieces = letter.len().div_ceil(NoteChange::MAX_VALUE_BYTES).max(1);
            for (place, piece) in (0..pieces).zip(0_u32..) {
                let from = place * NoteChange::MAX_VALUE_BYTES;
                let to = letter.len().min(from + NoteChange::MAX_VALUE_BYTES);
                let (number, piece) = (number.to_be_bytes(), piece.to_be_bytes());
                notes.push(NoteChange {
                    key: NoteKey::of_run(run, &[b"unread", &number, &piece]),
                    value: Some(letter.slice(from..to)),
                });
            }
        }
        notes
    }

    /// The letters that notes keep, which come in the order of their keys.
    pub fn letters(notes: &[(NoteKey, Bytes)]) -> Vec<Bytes> {
        let mut letters: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (key, piece) in notes {
            let parts = key.parts().unwrap_or_default();
            let Some(number) = parts.get(2).cloned() else {
                continue; // none of these
            };
            match letters.last_mut().filter(|(last, _)| *last == number) {
                Some((_, letter)) => letter.extend_from_slice(piece),
                None => letters.push((number, piece.to_vec())),
            }
        }
        letters
            .into_iter()
            .map(|(_, letter)| letter.into())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_found_in_their_order_whatever_their_size() {
        let run = RunId::from_bytes([7; 16]);
        let most = NoteChange::MAX_VALUE_BYTES;
        let sizes = [0, 1, most - 1, most, most + 1, 3 * most, 5];
        let letters: Vec<Bytes> = sizes
            .iter()
            .zip(1_u8..)
            .map(|(size, byte)| vec![byte; *size].into())
            .chain((0..300).map(|n: u32| n.to_be_bytes().to_vec().into()))
            .collect();
        let kept = Unread::keep(run, letters.clone());
        assert!(kept.iter().all(|note| note.check().is_ok()));
        let prefix = Unread::prefix(run);
        let mut found: Vec<(NoteKey, Bytes)> = kept
            .into_iter()
            .map(|note| (note.key, note.value.expect("kept")))
            .collect();
        found.sort();
        assert!(
            found
                .iter()
                .all(|(key, _)| key.as_bytes().starts_with(prefix.as_bytes()))
        );
        assert_eq!(Unread::letters(&found), letters);
    }
}
