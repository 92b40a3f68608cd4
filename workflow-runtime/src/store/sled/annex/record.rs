//! What lies in a file of the annex, and what sled has of it, as bytes.
//!
//! Owns the bytes of a record in a file, of a pointer under a record's key, and of a file's count. A record in a file says
//! itself what it is: which key points to it, which archive wrote it, and a hash of all of that. Never touches a file.

use super::super::bytes::{Malformed, Reader, mix};
use crate::hashing::HashContext;

/// The context of the hash of a record.
static CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 store annex");

/// Bytes of a record's hash.
const CHECK: usize = 16;

/// Bytes of the hash that a pointer repeats.
const REPEATED: usize = 8;

/// What a pointer begins with, where all other records say how many pieces they have.
const NO_PIECES: [u8; 2] = [0, 0];

/// Bytes before a record's name: length, hash, archive, length of the name.
pub(super) const HEAD: usize = 4 + CHECK + 8 + 2;

/// Where a record lies: the value under its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Pointer {
    pub(in super::super) file: u64,
    pub(in super::super) offset: u32,
    /// All its bytes in the file.
    pub(in super::super) len: u32,
    check: [u8; REPEATED],
}

impl Pointer {
    pub(in super::super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 + 8 + 4 + 4 + REPEATED);
        out.extend_from_slice(&NO_PIECES);
        out.extend_from_slice(&self.file.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.check);
        out
    }

    /// Reads the value of a first piece. `None`: it is no pointer, but the record itself.
    pub(in super::super) fn decode(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value.strip_prefix(&NO_PIECES)?);
        let pointer = Self {
            file: reader.u64().ok()?,
            offset: reader.u32().ok()?,
            len: reader.u32().ok()?,
            check: reader.array().ok()?,
        };
        reader.is_empty().then_some(pointer)
    }

    /// Says whether a record that should begin here can be the one that is meant with one wrong bit: of what is known of it
    /// beforehand, more is not wrong.
    pub(in super::super) fn is_near(&self, name: &[u8], bytes: &[u8]) -> bool {
        let body = self.len.wrapping_sub(4).to_le_bytes();
        let Ok(name_len) = u16::try_from(name.len()) else {
            return false;
        };
        let name_len = name_len.to_le_bytes();
        let known = [
            (0, &body[..]),
            (4, &self.check),
            (HEAD - 2, &name_len),
            (HEAD, name),
        ];
        let mut wrong = 0;
        for (at, known) in known {
            let Some(found) = bytes.get(at..at + known.len()) else {
                return false;
            };
            let bits = found.iter().zip(known).map(|(a, b)| (a ^ b).count_ones());
            wrong += bits.sum::<u32>();
        }
        wrong <= 1
    }

    /// Says whether a record is the one that was meant.
    pub(in super::super) fn fits(&self, entry: &Entry<'_>) -> bool {
        self.len as usize == entry.len && entry.check[..REPEATED] == self.check
    }
}

/// A record as it lies in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Entry<'a> {
    /// The key that points to it, without a piece number.
    pub(in super::super) name: &'a [u8],
    pub(in super::super) record: &'a [u8],
    /// The archive that wrote it first.
    pub(in super::super) archive: u64,
    /// All its bytes in the file.
    pub(in super::super) len: usize,
    check: [u8; CHECK],
}

impl<'a> Entry<'a> {
    /// Reads the record that `bytes` begin with, and checks it.
    pub(in super::super) fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let body = reader.bytes()?;
        let len = 4 + body.len();
        let mut reader = Reader::new(body);
        let check: [u8; CHECK] = reader.array()?;
        if check != hash(reader.clone().take(reader.len())?) {
            return Err("its bytes in the annex are damaged");
        }
        let archive = reader.u64()?;
        let name_len = u16::from_le_bytes(reader.array()?);
        Ok(Self {
            name: reader.take(usize::from(name_len))?,
            record: reader.take(reader.len())?,
            archive,
            len,
            check,
        })
    }

    /// Says where it lies.
    pub(in super::super) fn at(&self, file: u64, offset: u32) -> Pointer {
        Pointer {
            file,
            offset,
            len: u32::try_from(self.len).expect("its length is in four bytes"),
            check: self.check[..REPEATED].try_into().expect("eight of sixteen"),
        }
    }
}

fn hash(bytes: &[u8]) -> [u8; CHECK] {
    let hash = CONTEXT.hash(bytes);
    hash[..CHECK].try_into().expect("sixteen of thirty-two")
}

/// Adds a record to bytes that go into a file, and returns where it will lie if these begin at `start`.
pub(in super::super) fn encode(
    out: &mut Vec<u8>,
    name: &[u8],
    record: &[u8],
    archive: u64,
    (file, start): (u64, u64),
) -> Pointer {
    let begin = out.len();
    let len = HEAD + name.len() + record.len();
    let body = u32::try_from(len - 4).expect("records are far below 4 GiB");
    out.extend_from_slice(&body.to_le_bytes());
    out.extend_from_slice(&[0; CHECK]);
    out.extend_from_slice(&archive.to_le_bytes());
    let name_len = u16::try_from(name.len()).expect("keys are far below 64 KiB");
    out.extend_from_slice(&name_len.to_le_bytes());
    out.extend_from_slice(name);
    out.extend_from_slice(record);
    let check = hash(&out[begin + 4 + CHECK..]);
    out[begin + 4..begin + 4 + CHECK].copy_from_slice(&check);
    Pointer {
        file,
        offset: u32::try_from(start + begin as u64).expect("files are far below 4 GiB"),
        len: body + 4,
        check: check[..REPEATED].try_into().expect("eight of sixteen"),
    }
}

/// How much of a file is needed: the record under `f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) struct Tally {
    /// How many records of it sled points to.
    pub(in super::super) records: u64,
    /// And their bytes.
    pub(in super::super) bytes: u64,
    /// Where the last record ends that was ever pointed to.
    pub(in super::super) end: u64,
}

impl Tally {
    pub(in super::super) fn encode(self) -> Vec<u8> {
        let numbers = [self.records, self.bytes, self.end];
        numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    pub(in super::super) fn decode(record: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        let tally = Self {
            records: reader.u64()?,
            bytes: reader.u64()?,
            end: reader.u64()?,
        };
        match reader.is_empty() {
            true => Ok(tally),
            false => Err("it is too long"),
        }
    }

    pub(super) fn add(&mut self, pointer: &Pointer) {
        // A count may be anything that somebody wrote to a disk.
        self.records = self.records.saturating_add(1);
        self.bytes = self.bytes.saturating_add(u64::from(pointer.len));
        self.end = self
            .end
            .max(u64::from(pointer.offset) + u64::from(pointer.len));
    }

    /// Takes a record out. `None`: there are fewer than that.
    #[must_use]
    pub(super) fn without(mut self, pointer: &Pointer) -> Option<Self> {
        self.records = self.records.checked_sub(1)?;
        self.bytes = self.bytes.checked_sub(u64::from(pointer.len))?;
        Some(self)
    }

    /// Says whether so little of the file is needed that the rest is worth moving.
    pub(super) fn is_sparse(&self) -> bool {
        self.bytes < self.end / 4
    }
}

/// Returns what stands for an `f` entry in the census of them.
pub(in super::super) fn tally_member(number: u64, tally: &Tally) -> u64 {
    let counts = mix(tally.records ^ mix(tally.bytes ^ mix(tally.end)));
    number ^ counts
}
