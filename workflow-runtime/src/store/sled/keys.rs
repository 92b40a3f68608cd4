//! Every key of the sled tree, and how a value is cut into pieces.
//!
//! Owns the one-byte prefixes and the two-byte piece number at the end of every key. Never
//! interprets a value. Numbers are big-endian, so that keys sort as numbers do.

use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::store::{NoteKey, RunPosition};

/// What the newest archive left: one record.
pub(super) const ARCHIVE: u8 = b'a';
/// Segments of journals: creation time, run, first sequence number. The time comes first so
/// that runs of one age lie together: archiving under random ids alone would touch a cold
/// page for every run.
pub(super) const SEGMENT: u8 = b's';
/// Headers of runs that left memory, newest first: inverted time, inverted run.
pub(super) const HEADER: u8 = b'h';
/// Runs that left memory, by id: run.
pub(super) const RUN: u8 = b'r';
/// Runs in memory that have something in the database: run.
pub(super) const LIVE: u8 = b'l';
/// Letters that wait for a run in memory: run, number.
pub(super) const MAIL: u8 = b'm';
/// Sleeping runs in the order in which they are to be woken: whether there is no time, time, run.
pub(super) const WAKE: u8 = b'w';
/// Notes, by their keys.
pub(super) const NOTE: u8 = b'n';
/// Deleted runs of which the log may still tell: run.
pub(super) const DELETED: u8 = b'x';
/// How much is needed of the files of the annex: number.
pub(super) const ANNEX: u8 = b'f';
/// Entries that mean nothing, written so that sled collects.
const FILLER: u8 = b'z';

/// The most bytes a value has. Pages hold up to some 27 entries before sled splits them and
/// spill into files that sled never syncs from 256 KiB on: 27 × 4 KiB stays well below.
pub(super) const MAX_VALUE: usize = 4_000;

/// What the name of a note ends with: it sorts before anything that could follow, so that the
/// pieces of a note lie together although its key may be the beginning of another's.
const NOTE_END: [u8; 2] = [0, 0];

/// What follows a zero byte inside a note's key.
const ZERO_FOLLOWS: u8 = 0xff;

/// Bytes of the piece number at the end of every key.
const PIECE_LEN: usize = 2;

/// Bytes of the piece count at the beginning of every first piece.
const COUNT_LEN: usize = 2;

/// The most bytes a record of any kind has: 65,535 pieces.
pub(super) const MAX_RECORD: usize = (u16::MAX as usize) * MAX_VALUE - COUNT_LEN;

/// A key without its piece number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key(Vec<u8>);

impl Key {
    fn new(prefix: u8, parts: &[&[u8]]) -> Self {
        let mut key = Vec::with_capacity(1 + 8 + 16 + 8 + PIECE_LEN);
        key.push(prefix);
        for part in parts {
            key.extend_from_slice(part);
        }
        Self(key)
    }

    pub(super) fn archive() -> Self {
        Self::new(ARCHIVE, &[])
    }

    pub(super) fn segment(at: RunPosition, first_seq: u64) -> Self {
        let time = at.created_at.as_micros().to_be_bytes();
        let parts: [&[u8]; 3] = [&time, at.run.as_bytes(), &first_seq.to_be_bytes()];
        Self::new(SEGMENT, &parts)
    }

    /// What the keys of all segments of a run begin with.
    pub(super) fn segments(at: RunPosition) -> Vec<u8> {
        Self::segment(at, 0).0[..1 + 8 + 16].to_vec()
    }

    pub(super) fn header(position: RunPosition) -> Self {
        let time = !position.created_at.as_micros();
        let run = !u128::from_be_bytes(*position.run.as_bytes());
        Self::new(HEADER, &[&time.to_be_bytes(), &run.to_be_bytes()])
    }

    pub(super) fn run(run: RunId) -> Self {
        Self::new(RUN, &[run.as_bytes()])
    }

    pub(super) fn live(run: RunId) -> Self {
        Self::new(LIVE, &[run.as_bytes()])
    }

    pub(super) fn letter(run: RunId, number: u64) -> Self {
        Self::new(MAIL, &[run.as_bytes(), &number.to_be_bytes()])
    }

    /// What the keys of all letters to a run begin with.
    pub(super) fn letters(run: RunId) -> Vec<u8> {
        Self::new(MAIL, &[run.as_bytes()]).0
    }

    pub(super) fn wake(wake_at: Option<Timestamp>, run: RunId) -> Self {
        let time = wake_at.unwrap_or_default().as_micros().to_be_bytes();
        let timeless = [u8::from(wake_at.is_none())];
        Self::new(WAKE, &[&timeless, &time, run.as_bytes()])
    }

    pub(super) fn note(key: &NoteKey) -> Self {
        let mut name = Self::notes(key);
        name.extend_from_slice(&NOTE_END);
        Self(name)
    }

    /// What the keys of all notes begin with whose own keys begin with this one.
    pub(super) fn notes(prefix: &NoteKey) -> Vec<u8> {
        let mut name = Vec::with_capacity(1 + prefix.as_bytes().len() + 8);
        name.push(NOTE);
        for byte in prefix.as_bytes() {
            name.push(*byte);
            if *byte == 0 {
                name.push(ZERO_FOLLOWS);
            }
        }
        name
    }

    pub(super) fn deleted(run: RunId) -> Self {
        Self::new(DELETED, &[run.as_bytes()])
    }

    pub(super) fn annex(number: u64) -> Self {
        Self::new(ANNEX, &[&number.to_be_bytes()])
    }

    /// Returns the full key of one piece.
    pub(super) fn piece(&self, number: u16) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.0.len() + PIECE_LEN);
        key.extend_from_slice(&self.0);
        key.extend_from_slice(&number.to_be_bytes());
        key
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Takes a full key apart: what it names, and the piece number.
pub(super) fn split_piece(key: &[u8]) -> Option<(&[u8], u16)> {
    let (name, piece) = key.split_last_chunk::<PIECE_LEN>()?;
    Some((name, u16::from_be_bytes(*piece)))
}

/// Returns the full key of a filler.
pub(super) fn filler(number: u16) -> Vec<u8> {
    Key::new(FILLER, &[]).piece(number)
}

/// Returns the full key of the first piece of what is named.
pub(super) fn first_key(name: &[u8]) -> Vec<u8> {
    [name, &[0; PIECE_LEN]].concat()
}

/// Reads the number of an `f` key without its piece number.
pub(super) fn annex_of(name: &[u8]) -> Option<u64> {
    let number = name.strip_prefix(&[ANNEX])?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

/// Reads the run of a `r`, `l` or `x` key without its piece number.
pub(super) fn run_of(name: &[u8]) -> Option<RunId> {
    Some(RunId::from_bytes(name.get(1..)?.try_into().ok()?))
}

/// Reads the run and first sequence number of a segment key without its piece number.
pub(super) fn segment_of(name: &[u8]) -> Option<(RunId, u64)> {
    let rest = name.strip_prefix(&[SEGMENT])?;
    let (run, seq) = rest.get(8..)?.split_at_checked(16)?;
    let run = RunId::from_bytes(run.try_into().ok()?);
    Some((run, u64::from_be_bytes(seq.try_into().ok()?)))
}

/// Reads the time and the run of a wake key without its piece number.
pub(super) fn wake_of(name: &[u8]) -> Option<(Option<Timestamp>, RunId)> {
    let (timeless, rest) = name.strip_prefix(&[WAKE])?.split_first()?;
    let (time, run) = rest.split_at_checked(8)?;
    let time = Timestamp::from_micros(u64::from_be_bytes(time.try_into().ok()?));
    let run = RunId::from_bytes(run.try_into().ok()?);
    Some(((*timeless == 0).then_some(time), run))
}

/// Reads the run and the number of a letter's key without its piece number.
pub(super) fn letter_of(name: &[u8]) -> Option<(RunId, u64)> {
    let (run, number) = name.strip_prefix(&[MAIL])?.split_at_checked(16)?;
    let run = RunId::from_bytes(run.try_into().ok()?);
    Some((run, u64::from_be_bytes(number.try_into().ok()?)))
}

/// Says whether a full key has the length that keys of its kind have. `None`: they have any.
pub(super) fn has_its_length(key: &[u8]) -> Option<bool> {
    let parts = match key.first()? {
        &ARCHIVE => 0,
        &SEGMENT => 8 + 16 + 8,
        &HEADER => 8 + 16,
        &RUN | &LIVE | &DELETED => 16,
        &MAIL => 16 + 8,
        &ANNEX => 8,
        &WAKE => 1 + 8 + 16,
        &NOTE => return None,
        _ => return Some(false),
    };
    Some(key.len() == 1 + parts + PIECE_LEN)
}

/// Reads the key of a note from the name of its record.
pub(super) fn note_of(name: &[u8]) -> Option<NoteKey> {
    let mut rest = name.strip_prefix(&[NOTE])?.strip_suffix(&NOTE_END)?;
    let mut key = Vec::with_capacity(rest.len());
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        key.push(*byte);
        if *byte == 0 {
            rest = rest.strip_prefix(&[ZERO_FOLLOWS])?;
        }
    }
    Some(NoteKey::from_bytes(key.into()))
}

/// Reads the place of a header key without its piece number.
pub(super) fn position_of(name: &[u8]) -> Option<RunPosition> {
    let rest = name.strip_prefix(&[HEADER])?;
    let (time, run) = rest.split_at_checked(8)?;
    let time = !u64::from_be_bytes(time.try_into().ok()?);
    let run = !u128::from_be_bytes(run.try_into().ok()?);
    Some(RunPosition {
        created_at: Timestamp::from_micros(time),
        run: RunId::from_bytes(run.to_be_bytes()),
    })
}

/// Returns how many pieces a record has.
pub(super) fn pieces_of(record: impl AsRef<[u8]>) -> u16 {
    let rest = record.as_ref().len().saturating_sub(MAX_VALUE - COUNT_LEN);
    let count = 1 + rest.div_ceil(MAX_VALUE);
    u16::try_from(count).expect("callers refuse records above MAX_RECORD")
}

/// Cuts a record into pieces. The first one says how many there are.
pub(super) fn cut(record: &[u8]) -> Vec<Vec<u8>> {
    let head = record.len().min(MAX_VALUE - COUNT_LEN);
    let (head, rest) = record.split_at(head);
    let count = pieces_of(record);
    let mut first = Vec::with_capacity(COUNT_LEN + head.len());
    first.extend_from_slice(&count.to_be_bytes());
    first.extend_from_slice(head);
    let mut pieces = Vec::with_capacity(usize::from(count));
    pieces.push(first);
    pieces.extend(rest.chunks(MAX_VALUE).map(<[u8]>::to_vec));
    pieces
}

/// Returns how many pieces the record has whose first piece this is, and the piece's share.
pub(super) fn first_piece(value: &[u8]) -> Option<(u16, &[u8])> {
    let (count, rest) = value.split_first_chunk::<COUNT_LEN>()?;
    let count = u16::from_be_bytes(*count);
    (count > 0).then_some((count, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(pieces: &[Vec<u8>]) -> Vec<u8> {
        let (count, head) = first_piece(&pieces[0]).expect("a first piece");
        assert_eq!(usize::from(count), pieces.len());
        let mut whole = head.to_vec();
        for piece in &pieces[1..] {
            whole.extend_from_slice(piece);
        }
        whole
    }

    #[test]
    fn a_record_of_any_length_is_put_together_again() {
        for len in [0, 1, 3_997, 3_998, 3_999, 7_998, 7_999, 100_000] {
            let record: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let pieces = cut(&record);
            assert!(pieces.iter().all(|piece| piece.len() <= MAX_VALUE));
            assert_eq!(join(&pieces), record);
        }
    }

    #[test]
    fn keys_come_apart_into_what_they_were_made_of() {
        let run = RunId::from_bytes([9; 16]);
        let place = RunPosition {
            created_at: Timestamp::from_micros(5),
            run,
        };
        let full = Key::segment(place, 258).piece(3);
        let (name, piece) = split_piece(&full).expect("a key");
        assert_eq!((segment_of(name), piece), (Some((run, 258)), 3));
        assert!(full.len() < 64);
        let full = Key::archive().piece(0);
        assert_eq!(split_piece(&full), Some((&[ARCHIVE][..], 0)));
        assert_eq!(run_of(Key::live(run).as_bytes()), Some(run));
        assert_eq!(position_of(Key::header(place).as_bytes()), Some(place));
    }

    #[test]
    fn sleepers_sort_by_time_and_those_without_one_come_last() {
        let run = |n| RunId::from_bytes([n; 16]);
        let at = |time| Some(Timestamp::from_micros(time));
        let places = [
            (at(0), run(9)),
            (at(5), run(1)),
            (at(5), run(2)),
            (at(u64::MAX), run(0)),
            (None, run(0)),
            (None, run(3)),
        ];
        let keys = places.map(|(time, run)| Key::wake(time, run));
        assert!(keys.is_sorted_by_key(Key::as_bytes));
        for (key, place) in keys.iter().zip(places) {
            assert_eq!(wake_of(key.as_bytes()), Some(place));
        }
    }

    #[test]
    fn notes_sort_by_their_keys_and_their_pieces_lie_together() {
        let raw = |bytes: &'static [u8]| NoteKey::from_bytes(bytes::Bytes::from_static(bytes));
        let mut notes = vec![
            raw(b""),
            raw(b"\x01a"),
            raw(b"\x01a\0"),
            raw(b"\x01a\0\0"),
            raw(b"\x01a\0\x01"),
            raw(b"\x01a\0\xff"),
            raw(b"\x01ab"),
            NoteKey::new(1, &[b"a"]),
            NoteKey::new(1, &[b"a", b""]),
            NoteKey::new(1, &[b"a", b"b"]),
        ];
        notes.sort();
        notes.dedup();
        let mut pieces = Vec::new();
        for note in &notes {
            let key = Key::note(note);
            assert_eq!(note_of(key.as_bytes()).as_ref(), Some(note));
            assert!(key.as_bytes().starts_with(&Key::notes(note)));
            pieces.extend([0, 1, 2, 256].map(|number| key.piece(number)));
        }
        assert!(pieces.is_sorted());
    }

    #[test]
    fn header_keys_sort_newest_first_and_ties_by_descending_run() {
        let at = |time, run| RunPosition {
            created_at: Timestamp::from_micros(time),
            run: RunId::from_bytes([run; 16]),
        };
        let mut places = [at(1, 9), at(3, 1), at(3, 2), at(2, 5)];
        places.sort_by_key(|place| Key::header(*place).as_bytes().to_vec());
        assert_eq!(places, [at(3, 2), at(3, 1), at(2, 5), at(1, 9)]);
    }
}
