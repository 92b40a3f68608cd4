//! Segments and headers: what lies under `s`, `h`, `r`, `l`, `x` and `a`, as bytes.
//!
//! Owns the packing of frames into records of at most [`SEGMENT_BYTES`], one frame
//! alone in a longer one where it does not fit. Never touches the database.

use bytes::Bytes;

use super::bytes::{Census, Malformed, Reader, mix, put_bytes};
use super::keys::Key;
use super::table::Entry;
use crate::clock::Timestamp;
use crate::codec;
use crate::ids::RunId;
use crate::store::{NoteKey, RunHeader, RunPosition};

/// Bytes of the length before each frame.
const OVERHEAD: usize = 4;

/// The most bytes of a segment of several frames: what a run has in memory when it is archived for its length. Reading one
/// frame reads all of its segment; for every segment there is a key in sled.
const SEGMENT_BYTES: usize = 16 * 1024;

/// Added to the number of frames of a run that forgot some: the number of the first one behind those follows then.
const FORGETFUL: u64 = 1 << 63;

/// Packs frames into segment records: each with its key.
pub(super) fn pack<'a>(
    at: RunPosition,
    first_seq: u64,
    frames: impl ExactSizeIterator<Item = &'a Bytes>,
) -> Vec<(Key, Vec<u8>)> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut record_seq = first_seq;
    let mut left = frames.len();
    for (seq, frame) in (first_seq..).zip(frames) {
        let full = record.len() + frame.len() + OVERHEAD > SEGMENT_BYTES;
        if full && !record.is_empty() {
            let done = std::mem::take(&mut record);
            records.push((Key::segment(at, record_seq), done));
        }
        if record.is_empty() {
            record_seq = seq;
            // As much as it takes if all that is left is as long as this one.
            record.reserve(((frame.len() + OVERHEAD) * left).min(SEGMENT_BYTES));
        }
        left -= 1;
        put_bytes(&mut record, frame);
    }
    if !record.is_empty() {
        records.push((Key::segment(at, record_seq), record));
    }
    records
}

/// Takes a segment record apart.
pub(super) fn unpack(record: &Bytes) -> Result<Vec<Bytes>, Malformed> {
    let mut reader = Reader::new(record);
    let mut frames = Vec::new();
    while !reader.is_empty() {
        frames.push(record.slice_ref(reader.bytes()?));
    }
    Ok(frames)
}

/// A run as the database has it: the record under `h` or `l`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) header: RunHeader,
    /// The commit as of which it is; later blocks may change it.
    pub(super) as_of: u64,
    /// The number behind the last frame in segments.
    pub(super) frames: u64,
    /// Records from 2 up to this number were forgotten. 0: none.
    pub(super) kept_from: u64,
    /// Letters below this number were taken.
    pub(super) taken: u64,
    /// The number of the next letter. Those from `taken` on wait under `m`.
    pub(super) next_letter: u64,
}

impl Stored {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        let frames = match self.kept_from {
            0 => self.frames,
            _ => self.frames | FORGETFUL,
        };
        for number in [self.as_of, frames, self.taken, self.next_letter] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if self.kept_from > 0 {
            out.extend_from_slice(&self.kept_from.to_le_bytes());
        }
        codec::encode_into(&self.header, &mut out);
        out
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        let as_of = reader.u64()?;
        let frames = reader.u64()?;
        let taken = reader.u64()?;
        let next_letter = reader.u64()?;
        let kept_from = match frames & FORGETFUL {
            0 => 0,
            _ => reader.u64()?,
        };
        let frames = frames & !FORGETFUL;
        let header = reader.take(reader.len())?;
        let header = codec::decode(header).map_err(|_| "its header cannot be read")?;
        if taken > next_letter {
            return Err("it took more letters than there were");
        }
        if kept_from > frames {
            return Err("it forgot more records than there were");
        }
        Ok(Self {
            header,
            as_of,
            frames,
            kept_from,
            taken,
            next_letter,
        })
    }
}

/// The way from a run's id to its header: the record under `r`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) created_at: Timestamp,
    /// The commit as of which the header is.
    pub(super) as_of: u64,
}

impl Pointer {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut out = self.created_at.as_micros().to_le_bytes().to_vec();
        out.extend_from_slice(&self.as_of.to_le_bytes());
        out
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        let pointer = Self {
            created_at: Timestamp::from_micros(reader.u64()?),
            as_of: reader.u64()?,
        };
        whole(&reader, pointer)
    }
}

/// What is left of a deleted run while the log may tell of it: the record under `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tombstone {
    /// What blocks up to this commit say of the run is of no account.
    pub(super) as_of: u64,
    /// When the run was created, if segments of it are still to be removed.
    pub(super) segments_of: Option<Timestamp>,
}

impl Tombstone {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut out = self.as_of.to_le_bytes().to_vec();
        if let Some(created_at) = self.segments_of {
            out.extend_from_slice(&created_at.as_micros().to_le_bytes());
        }
        out
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        let as_of = reader.u64()?;
        let segments_of = match reader.is_empty() {
            true => None,
            false => Some(Timestamp::from_micros(reader.u64()?)),
        };
        let tombstone = Self { as_of, segments_of };
        whole(&reader, tombstone)
    }
}

fn whole<T>(reader: &Reader<'_>, value: T) -> Result<T, Malformed> {
    match reader.is_empty() {
        true => Ok(value),
        false => Err("it is too long"),
    }
}

/// What the newest archive left: the record under `a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Archive {
    /// How many archives there were.
    pub(super) number: u64,
    /// The newest commit it knew of, synced before.
    pub(super) as_of: u64,
    /// The log is needed from the file on that begins with this commit.
    pub(super) log_from: u64,
    /// The `l` entries that are there.
    pub(super) live: Census,
    /// How many `h` entries are there.
    pub(super) shelved: u64,
    /// The `w` entries that are there.
    pub(super) asleep: Census,
    /// The notes that are there.
    pub(super) notes: Census,
    /// The tombstones that are there.
    pub(super) deleted: Census,
    /// The counts of files of the annex that are there. Stores that have no annex do not say so.
    pub(super) annex: Census,
}

impl Archive {
    /// Returns how many entries of sled are known of; what is annexed is not counted here.
    pub(super) fn entries(&self) -> u64 {
        let counted = [self.live, self.asleep, self.notes, self.deleted, self.annex];
        // Each has a header and the way to it.
        2 * self.shelved + counted.iter().map(Census::count).sum::<u64>()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(104);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.as_of.to_le_bytes());
        out.extend_from_slice(&self.log_from.to_le_bytes());
        self.live.write(&mut out);
        out.extend_from_slice(&self.shelved.to_le_bytes());
        self.asleep.write(&mut out);
        self.notes.write(&mut out);
        self.deleted.write(&mut out);
        if self.annex != Census::default() {
            self.annex.write(&mut out);
        }
        out
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        let mut archive = Self {
            number: reader.u64()?,
            as_of: reader.u64()?,
            log_from: reader.u64()?,
            live: Census::read(&mut reader)?,
            shelved: reader.u64()?,
            asleep: Census::read(&mut reader)?,
            notes: Census::read(&mut reader)?,
            deleted: Census::read(&mut reader)?,
            annex: Census::default(),
        };
        if !reader.is_empty() {
            archive.annex = Census::read(&mut reader)?;
        }
        whole(&reader, archive)
    }
}

/// Returns what stands for a `w` entry in the census of them.
pub(super) fn sleeper_member(run: RunId, wake_at: Option<Timestamp>) -> u64 {
    let time = wake_at.unwrap_or_default().as_micros();
    member(run, &[u64::from(wake_at.is_none()), time])
}

/// Returns what stands for a tombstone in the census of them.
pub(super) fn deleted_member(run: RunId, as_of: u64) -> u64 {
    member(run, &[as_of])
}

/// Returns what stands for a note in the census of them.
pub(super) fn note_member(key: &NoteKey, value: &[u8]) -> u64 {
    let mut hash = blake3::Hasher::new();
    hash.update(&(key.as_bytes().len() as u64).to_le_bytes());
    hash.update(key.as_bytes()).update(value);
    let hash = hash.finalize();
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("32 bytes"))
}

/// Returns what stands for an `l` entry in the census of them.
pub(super) fn live_member(run: RunId, entry: &Entry) -> u64 {
    let (taken, next) = entry.letters;
    let numbers = [entry.as_of, entry.archived, taken, next, entry.kept_from];
    // Without a gap as before there were any.
    member(run, &numbers[..4 + usize::from(entry.kept_from > 0)])
}

fn member(run: RunId, numbers: &[u64]) -> u64 {
    let run = u128::from_be_bytes(*run.as_bytes());
    let (high, low) = ((run >> 64) as u64, run as u64);
    let start = mix(mix(high) ^ low);
    numbers.iter().fold(start, |sum, number| mix(sum ^ number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_frames_come_back_and_records_stay_small() {
        let at = RunPosition {
            created_at: Timestamp::from_micros(9),
            run: RunId::from_bytes([3; 16]),
        };
        let frames: Vec<Bytes> = [0, 10, 9_000, 7_350, 1, 20_000, 5, 16_384, 16_380, 16_376]
            .iter()
            .map(|len| Bytes::from(vec![7; *len]))
            .collect();
        let records = pack(at, 5, frames.iter());
        let mut back = Vec::new();
        for (key, record) in &records {
            let (_, seq) = super::super::keys::segment_of(key.as_bytes()).expect("a segment");
            assert_eq!(seq, 5 + back.len() as u64);
            let unpacked = unpack(&Bytes::copy_from_slice(record)).expect("sound");
            assert!(record.len() <= SEGMENT_BYTES || unpacked.len() == 1);
            back.extend(unpacked);
        }
        assert_eq!(back, frames);
        assert_eq!(records[0].1.len(), 16_381, "five fit");
    }

    fn stored(kept_from: u64) -> Stored {
        use crate::digest::Digest;
        use crate::store::RunState;
        Stored {
            header: RunHeader {
                run: RunId::from_bytes([1; 16]),
                namespace: "n".into(),
                workflow: "w".into(),
                version: 1,
                key: None,
                input_digest: Digest::from_bytes([3; 16]),
                created_at: Timestamp::from_micros(7),
                origin: None,
                state: RunState::Active,
            },
            as_of: 5,
            frames: 300,
            kept_from,
            taken: 1,
            next_letter: 2,
        }
    }

    /// A run that forgot nothing is stored as before there was forgetting.
    #[test]
    fn a_header_says_what_was_forgotten_only_if_something_was() {
        let (without, with) = (stored(0).encode(), stored(258).encode());
        let numbers = |bytes: &[u8]| -> Vec<u64> {
            let chunks = bytes.as_chunks::<8>().0.iter();
            chunks.map(|chunk| u64::from_le_bytes(*chunk)).collect()
        };
        assert_eq!(numbers(&without)[..4], [5, 300, 1, 2]);
        assert_eq!(numbers(&with)[..5], [5, 300 | 1 << 63, 1, 2, 258]);
        assert_eq!(without[32..], with[40..], "the header follows");
        assert_eq!(Stored::decode(&without), Ok(stored(0)));
        assert_eq!(Stored::decode(&with), Ok(stored(258)));
        assert!(Stored::decode(&stored(301).encode()).is_err());
    }

    /// A store without an annex has the record that it had in format 1.
    #[test]
    fn an_archive_counts_the_annex_only_if_there_is_one() {
        let mut archive = Archive {
            number: 7,
            ..Archive::default()
        };
        let without = archive.encode();
        assert_eq!(without.len(), 96);
        assert_eq!(Archive::decode(&without), Ok(archive));
        archive.annex.add(5);
        let with = archive.encode();
        assert_eq!(with[..96], without);
        assert_eq!(with[96..104], 1_u64.to_le_bytes());
        assert_eq!(with[104..], mix(5).to_le_bytes());
        assert_eq!(Archive::decode(&with), Ok(archive));
        assert!(Archive::decode(&with[..104]).is_err());
    }

    #[test]
    fn a_length_that_claims_too_much_is_refused() {
        let record = Bytes::from_static(&[255, 255, 255, 255, 1]);
        assert!(unpack(&record).is_err());
        assert!(Stored::decode(&[1, 2, 3]).is_err());
        assert!(Stored::decode(&[0; 32]).is_err());
        assert!(Pointer::decode(&[0; 17]).is_err());
        assert!(Tombstone::decode(&[0; 9]).is_err());
        assert!(Tombstone::decode(&[0; 17]).is_err());
        assert!(Archive::decode(&[0; 95]).is_err());
        assert!(Archive::decode(&[0; 97]).is_err());
    }
}
