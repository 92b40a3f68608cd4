//! Segments and headers: what lies under `s`, `h`, `r`, `l` and `a`, as bytes.
//!
//! Owns the packing of frames into records of at most [`MAX_VALUE`] bytes, one frame
//! alone in a longer one where it does not fit. Never touches the database.

use bytes::Bytes;

use super::bytes::{Census, Malformed, Reader, mix, put_bytes};
use super::keys::{Key, MAX_VALUE};
use crate::codec;
use crate::ids::RunId;
use crate::store::{RunHeader, RunPosition};

/// Bytes of the length before each frame, and of the piece count before each record.
const OVERHEAD: usize = 4;

/// Packs frames into segment records: each with its key.
pub(super) fn pack(at: RunPosition, first_seq: u64, frames: &[Bytes]) -> Vec<(Key, Vec<u8>)> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut record_seq = first_seq;
    for (seq, frame) in (first_seq..).zip(frames) {
        let full = record.len() + frame.len() + OVERHEAD > MAX_VALUE - OVERHEAD;
        if full && !record.is_empty() {
            let done = std::mem::take(&mut record);
            records.push((Key::segment(at, record_seq), done));
        }
        if record.is_empty() {
            record_seq = seq;
        }
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

/// The entry of an ended run under `h`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EndedRun {
    pub(super) header: RunHeader,
    /// How many frames its journal has.
    pub(super) frames: u64,
}

impl EndedRun {
    pub(super) fn encode(header: &RunHeader, frames: u64) -> Vec<u8> {
        let mut out = frames.to_le_bytes().to_vec();
        codec::encode_into(header, &mut out);
        out
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        let frames = reader.u64()?;
        let header = reader.take(reader.len())?;
        let header = codec::decode(header).map_err(|_| "its header cannot be read")?;
        Ok(Self { header, frames })
    }
}

/// The entry of an unfinished run under `l`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LiveRun {
    pub(super) header: RunHeader,
    /// The commit as of which the header is; later blocks may change it.
    pub(super) as_of: u64,
    /// How many frames are in segments; the others are in blocks.
    pub(super) archived: u64,
}

impl LiveRun {
    pub(super) fn encode(header: &RunHeader, as_of: u64, archived: u64) -> Vec<u8> {
        let mut out = as_of.to_le_bytes().to_vec();
        out.extend_from_slice(&archived.to_le_bytes());
        codec::encode_into(header, &mut out);
        out
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        let as_of = reader.u64()?;
        let archived = reader.u64()?;
        let header = reader.take(reader.len())?;
        let header = codec::decode(header).map_err(|_| "its header cannot be read")?;
        Ok(Self {
            header,
            as_of,
            archived,
        })
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
    /// How many runs were archived as ended.
    pub(super) ended: u64,
}

impl Archive {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.as_of.to_le_bytes());
        out.extend_from_slice(&self.log_from.to_le_bytes());
        self.live.write(&mut out);
        out.extend_from_slice(&self.ended.to_le_bytes());
        out
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        let archive = Self {
            number: reader.u64()?,
            as_of: reader.u64()?,
            log_from: reader.u64()?,
            live: Census::read(&mut reader)?,
            ended: reader.u64()?,
        };
        match reader.is_empty() {
            true => Ok(archive),
            false => Err("it is too long"),
        }
    }
}

/// Returns what stands for an `l` entry in the census of them.
pub(super) fn live_member(run: RunId, as_of: u64, archived: u64) -> u64 {
    let run = u128::from_be_bytes(*run.as_bytes());
    let (high, low) = ((run >> 64) as u64, run as u64);
    mix(mix(mix(high) ^ low) ^ as_of) ^ archived
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_frames_come_back_and_records_stay_small() {
        let at = RunPosition {
            created_at: crate::clock::Timestamp::from_micros(9),
            run: RunId::from_bytes([3; 16]),
        };
        let frames: Vec<Bytes> = [0, 10, 3_000, 990, 1, 20_000, 5, 4_000, 3_992, 3_988]
            .iter()
            .map(|len| Bytes::from(vec![7; *len]))
            .collect();
        let records = pack(at, 5, &frames);
        let mut back = Vec::new();
        for (key, record) in &records {
            let (_, seq) = super::super::keys::segment_of(key.as_bytes()).expect("a segment");
            assert_eq!(seq, 5 + back.len() as u64);
            let unpacked = unpack(&Bytes::copy_from_slice(record)).expect("sound");
            assert!(record.len() + 2 <= MAX_VALUE || unpacked.len() == 1);
            back.extend(unpacked);
        }
        assert_eq!(back, frames);
    }

    #[test]
    fn a_length_that_claims_too_much_is_refused() {
        let record = Bytes::from_static(&[255, 255, 255, 255, 1]);
        assert!(unpack(&record).is_err());
        assert!(EndedRun::decode(&[1, 2, 3]).is_err());
        assert!(LiveRun::decode(&[0; 16]).is_err());
        assert!(Archive::decode(&[0; 47]).is_err());
        assert!(Archive::decode(&[0; 49]).is_err());
    }
}
