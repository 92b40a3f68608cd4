//! Blocks: what one group commit wrote, as bytes.
//!
//! Owns the layout of a block and the chain that links each to the one before. Never
//! touches a file.
//!
//! ```text
//! length                 4   bytes of the block after these four; never zero
//! commit                 8   its number
//! previous chain value  32
//! chain value           32   BLAKE3 of (previous, commit number, all that follows)
//! archive                8   the newest archive that was known to be on the disk
//! synced                 8   the newest commit that was known to be on the disk
//! items                      until the end
//! ```

use bytes::Bytes;

use super::bytes::{Malformed, Reader, put_bytes, put_encoded};
use crate::codec;
use crate::hashing::HashContext;
use crate::ids::RunId;
use crate::store::{NoteKey, Parking, RunEnd, RunHeader};

/// A value of the store-wide chain.
pub(super) type Chain = [u8; 32];

/// The chain value before the first block.
pub(super) const GENESIS: Chain = [0; 32];

/// Bytes of the length at the beginning of a block.
const LENGTH: usize = 4;

/// Where the content begins that the chain value speaks for.
const CONTENT: usize = LENGTH + 8 + 32 + 32;

/// Where the items begin.
const ITEMS: usize = CONTENT + 8 + 8;

const CREATED: u8 = 1;
const APPENDED: u8 = 2;
const PARKED: u8 = 3;
const TAKEN: u8 = 4;
const POSTED: u8 = 5;
const NOTED: u8 = 6;
const WOKEN: u8 = 7;
const REVIVED: u8 = 8;
const FORGOTTEN: u8 = 9;
const SLEPT: u8 = 10;

static CHAIN: HashContext = HashContext::new("workflow-runtime 2026-11 store chain");

/// What a block says beside its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Facts {
    /// The newest archive that was known to be on the disk.
    pub(super) archive: u64,
    /// The newest commit that was known to be on the disk.
    pub(super) synced: u64,
}

/// One thing that happened, read back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A run was created with its first frame.
    Created(Box<RunHeader>, Bytes),
    /// Frames were appended, and the run perhaps ended.
    Appended {
        run: RunId,
        first_seq: u64,
        frames: Vec<Bytes>,
        end: Option<RunEnd>,
    },
    /// A run was parked or taken out of parking.
    Parked(RunId, Option<Parking>),
    /// The letters to a run below this number were taken or dropped.
    Taken(RunId, u64),
    /// A run got a letter of this number.
    Posted(RunId, u64, Bytes),
    /// A note was written or removed.
    Noted(NoteKey, Option<Bytes>),
    /// A sleeping run was claimed.
    Woken(RunId),
    /// A failed run was taken up again with the frame of this number.
    Revived(RunId, u64, Bytes),
    /// A run forgot its records from 2 up to this number.
    Forgotten(RunId, u64),
    /// A run fell asleep, with a record of all there is of it (see `doze`) that begins at this place of the block.
    Slept(usize, Bytes),
}

/// A block in the making: one buffer, used again for every commit.
#[derive(Debug)]
pub(super) struct Draft(Vec<u8>);

impl Default for Draft {
    fn default() -> Self {
        Self(vec![0; ITEMS])
    }
}

impl Draft {
    /// Begins the next block. A buffer that one large block left behind is let go.
    pub(super) fn clear(&mut self, keep: usize) {
        self.0.truncate(ITEMS);
        self.0.shrink_to(keep);
    }

    pub(super) fn created(&mut self, header: &RunHeader, first: &[u8]) {
        self.0.push(CREATED);
        put_encoded(&mut self.0, header);
        put_bytes(&mut self.0, first);
    }

    pub(super) fn appended(
        &mut self,
        run: RunId,
        first_seq: u64,
        frames: &[Bytes],
        end: Option<RunEnd>,
    ) {
        self.0.push(APPENDED);
        self.0.extend_from_slice(run.as_bytes());
        self.0.extend_from_slice(&first_seq.to_le_bytes());
        match end {
            Some(end) => put_encoded(&mut self.0, &end),
            None => put_bytes(&mut self.0, &[]),
        }
        let count = u32::try_from(frames.len()).expect("an append has few frames");
        self.0.extend_from_slice(&count.to_le_bytes());
        for frame in frames {
            put_bytes(&mut self.0, frame);
        }
    }

    pub(super) fn parked(&mut self, run: RunId, parking: Option<&Parking>) {
        self.0.push(PARKED);
        self.0.extend_from_slice(run.as_bytes());
        put_encoded(&mut self.0, &parking);
    }

    pub(super) fn taken(&mut self, run: RunId, below: u64) {
        self.below(TAKEN, run, below);
    }

    pub(super) fn forgotten(&mut self, run: RunId, below: u64) {
        self.below(FORGOTTEN, run, below);
    }

    fn below(&mut self, kind: u8, run: RunId, below: u64) {
        self.0.push(kind);
        self.0.extend_from_slice(run.as_bytes());
        self.0.extend_from_slice(&below.to_le_bytes());
    }

    pub(super) fn posted(&mut self, run: RunId, number: u64, body: &[u8]) {
        self.numbered(POSTED, run, number, body);
    }

    pub(super) fn revived(&mut self, run: RunId, seq: u64, frame: &[u8]) {
        self.numbered(REVIVED, run, seq, frame);
    }

    fn numbered(&mut self, kind: u8, run: RunId, number: u64, bytes: &[u8]) {
        self.0.push(kind);
        self.0.extend_from_slice(run.as_bytes());
        self.0.extend_from_slice(&number.to_le_bytes());
        put_bytes(&mut self.0, bytes);
    }

    pub(super) fn noted(&mut self, key: &NoteKey, value: Option<&Bytes>) {
        self.0.push(NOTED);
        put_bytes(&mut self.0, key.as_bytes());
        self.0.push(u8::from(value.is_some()));
        if let Some(value) = value {
            put_bytes(&mut self.0, value);
        }
    }

    pub(super) fn woken(&mut self, run: RunId) {
        self.0.push(WOKEN);
        self.0.extend_from_slice(run.as_bytes());
    }

    /// Adds the record of a run that falls asleep, and returns where in the block that begins.
    pub(super) fn slept(&mut self, record: &[u8]) -> usize {
        self.0.push(SLEPT);
        put_bytes(&mut self.0, record);
        self.0.len() - record.len()
    }

    /// Says whether there is no item in it.
    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == ITEMS
    }

    /// Finishes the block and returns its bytes and its chain value.
    pub(super) fn seal(&mut self, previous: &Chain, commit: u64, facts: Facts) -> (&[u8], Chain) {
        let length = u32::try_from(self.0.len() - LENGTH).expect("blocks are far below 4 GiB");
        let bytes = &mut self.0;
        bytes[..LENGTH].copy_from_slice(&length.to_le_bytes());
        bytes[LENGTH..12].copy_from_slice(&commit.to_le_bytes());
        bytes[12..44].copy_from_slice(previous);
        bytes[CONTENT..CONTENT + 8].copy_from_slice(&facts.archive.to_le_bytes());
        bytes[CONTENT + 8..ITEMS].copy_from_slice(&facts.synced.to_le_bytes());
        let chain = link(previous, commit, &bytes[CONTENT..]);
        bytes[44..CONTENT].copy_from_slice(&chain);
        (bytes, chain)
    }
}

/// Computes a chain value.
fn link(previous: &Chain, commit: u64, content: &[u8]) -> Chain {
    let mut hash = CHAIN.hasher();
    hash.update(previous);
    hash.update(&commit.to_le_bytes());
    hash.update(content);
    *hash.finalize().as_bytes()
}

/// A block that was read back.
#[derive(Debug)]
pub(super) struct Block<'a> {
    pub(super) commit: u64,
    pub(super) previous: Chain,
    pub(super) chain: Chain,
    pub(super) facts: Facts,
    /// How many bytes it has, its length included.
    pub(super) len: usize,
    items: &'a [u8],
}

impl<'a> Block<'a> {
    /// Reads the block that `bytes` begin with and checks it against its own chain value.
    /// `None` if there is none: at the end, or where only zeros were prepared.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let block = Self::parse(bytes)?;
        match &block {
            Some(found)
                if link(&found.previous, found.commit, &bytes[CONTENT..found.len])
                    != found.chain =>
            {
                Err("its chain value is wrong")
            }
            _ => Ok(block),
        }
    }

    /// Reads a block that was checked before.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        if bytes.iter().take(LENGTH).all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut reader = Reader::new(bytes);
        let body = reader.bytes()?;
        let len = LENGTH + body.len();
        let mut reader = Reader::new(body);
        let commit = reader.u64()?;
        let previous = reader.array()?;
        let chain = reader.array()?;
        let facts = Facts {
            archive: reader.u64()?,
            synced: reader.u64()?,
        };
        Ok(Some(Self {
            commit,
            previous,
            chain,
            facts,
            len,
            items: &bytes[ITEMS..len],
        }))
    }

    /// Says what number the block that `bytes` begin with claims to have.
    pub(super) fn claimed_commit(bytes: &[u8]) -> Option<u64> {
        let number = bytes.get(LENGTH..LENGTH + 8)?;
        Some(u64::from_le_bytes(number.try_into().expect("eight bytes")))
    }

    /// Reads all items.
    pub(super) fn items(&self) -> Result<Vec<Item>, Malformed> {
        let mut reader = Reader::new(self.items);
        let mut items = Vec::new();
        while !reader.is_empty() {
            items.push(item(&mut reader, self.len)?);
        }
        Ok(items)
    }
}

/// Reads one item of a block that has so many bytes. Frames are copied: a slice would keep the whole file in memory.
fn item(reader: &mut Reader<'_>, len: usize) -> Result<Item, Malformed> {
    match reader.u8()? {
        CREATED => {
            let header = decode(reader.bytes()?)?;
            let first = Bytes::copy_from_slice(reader.bytes()?);
            Ok(Item::Created(Box::new(header), first))
        }
        APPENDED => {
            let run = reader.run()?;
            let first_seq = reader.u64()?;
            let end = match reader.bytes()? {
                [] => None,
                end => Some(decode(end)?),
            };
            let count = reader.u32()?;
            let mut frames = Vec::new();
            for _ in 0..count {
                frames.push(Bytes::copy_from_slice(reader.bytes()?));
            }
            Ok(Item::Appended {
                run,
                first_seq,
                frames,
                end,
            })
        }
        PARKED => Ok(Item::Parked(reader.run()?, decode(reader.bytes()?)?)),
        TAKEN => Ok(Item::Taken(reader.run()?, reader.u64()?)),
        FORGOTTEN => Ok(Item::Forgotten(reader.run()?, reader.u64()?)),
        POSTED => {
            let (run, number) = (reader.run()?, reader.u64()?);
            let body = Bytes::copy_from_slice(reader.bytes()?);
            Ok(Item::Posted(run, number, body))
        }
        NOTED => {
            let key = NoteKey::from_bytes(Bytes::copy_from_slice(reader.bytes()?));
            let value = match reader.u8()? {
                0 => None,
                1 => Some(Bytes::copy_from_slice(reader.bytes()?)),
                _ => return Err("a note in it is neither written nor removed"),
            };
            Ok(Item::Noted(key, value))
        }
        WOKEN => Ok(Item::Woken(reader.run()?)),
        REVIVED => {
            let (run, seq) = (reader.run()?, reader.u64()?);
            let frame = Bytes::copy_from_slice(reader.bytes()?);
            Ok(Item::Revived(run, seq, frame))
        }
        SLEPT => {
            let record = reader.bytes()?;
            let at = len - reader.len() - record.len();
            Ok(Item::Slept(at, Bytes::copy_from_slice(record)))
        }
        _ => Err("it holds an item of unknown kind"),
    }
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    codec::decode(bytes).map_err(|_| "a header in it cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::digest::Digest;
    use crate::store::{EndKind, ParkReason, RunState};

    fn header() -> RunHeader {
        RunHeader {
            run: RunId::from_bytes([1; 16]),
            namespace: "default".into(),
            workflow: "checkout".into(),
            version: 2,
            key: Some("order-1".into()),
            input_digest: Digest::from_bytes([3; 16]),
            created_at: Timestamp::from_micros(1_700_000_000_000_000),
            origin: None,
            state: RunState::Active,
        }
    }

    fn parking() -> Parking {
        Parking {
            reason: ParkReason::Diverged,
            at: Timestamp::from_micros(7),
            report: "why".into(),
            detail: None,
        }
    }

    fn note() -> NoteKey {
        NoteKey::new(7, &[b"name", b"\0"])
    }

    fn sealed() -> (Vec<u8>, Chain) {
        let mut items = Draft::default();
        items.created(&header(), b"left over");
        items.clear(0);
        items.created(&header(), b"first");
        let end = RunEnd {
            kind: EndKind::Failed,
            at: Timestamp::from_micros(9),
        };
        let frames = [Bytes::from_static(b"second"), Bytes::new()];
        items.appended(RunId::from_bytes([1; 16]), 1, &frames, Some(end));
        items.parked(RunId::from_bytes([2; 16]), Some(&parking()));
        items.parked(RunId::from_bytes([2; 16]), None);
        items.taken(RunId::from_bytes([3; 16]), 4);
        items.posted(RunId::from_bytes([3; 16]), 5, b"letter");
        items.noted(&note(), Some(&Bytes::from_static(b"value")));
        items.noted(&note(), None);
        items.woken(RunId::from_bytes([4; 16]));
        items.revived(RunId::from_bytes([5; 16]), 6, b"again");
        let facts = Facts {
            archive: 3,
            synced: 4,
        };
        let (bytes, chain) = items.seal(&[9; 32], 5, facts);
        (bytes.to_vec(), chain)
    }

    #[test]
    fn a_block_is_read_back_as_it_was_written() {
        let (bytes, chain) = sealed();
        let mut longer = bytes.clone();
        longer.extend_from_slice(&[7; 50]);
        let block = Block::read(&longer).expect("sound").expect("there");
        assert_eq!((block.commit, block.len), (5, bytes.len()));
        assert_eq!((block.previous, block.chain), ([9; 32], chain));
        assert_eq!((block.facts.archive, block.facts.synced), (3, 4));
        assert_eq!(Block::claimed_commit(&bytes), Some(5));
        let items = block.items().expect("sound");
        assert_eq!(
            items[0],
            Item::Created(Box::new(header()), Bytes::from_static(b"first"))
        );
        assert!(
            matches!(&items[1], Item::Appended { first_seq: 1, frames, end: Some(_), .. }
            if frames.len() == 2)
        );
        assert_eq!(
            items[2],
            Item::Parked(RunId::from_bytes([2; 16]), Some(parking()))
        );
        assert_eq!(items[3], Item::Parked(RunId::from_bytes([2; 16]), None));
        let expected = [
            Item::Taken(RunId::from_bytes([3; 16]), 4),
            Item::Posted(RunId::from_bytes([3; 16]), 5, Bytes::from_static(b"letter")),
            Item::Noted(note(), Some(Bytes::from_static(b"value"))),
            Item::Noted(note(), None),
            Item::Woken(RunId::from_bytes([4; 16])),
            Item::Revived(RunId::from_bytes([5; 16]), 6, Bytes::from_static(b"again")),
        ];
        assert_eq!(items[4..], expected);
    }

    #[test]
    fn what_a_run_forgot_is_read_back_and_its_bytes_are_frozen() {
        let mut items = Draft::default();
        items.forgotten(RunId::from_bytes([7; 16]), 258);
        let (bytes, _) = items.seal(&GENESIS, 1, Facts::default());
        let mut expected = vec![9];
        expected.extend_from_slice(&[7; 16]);
        expected.extend_from_slice(&[2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[ITEMS..], expected);
        let block = Block::read(bytes).expect("sound").expect("there");
        let expected = Item::Forgotten(RunId::from_bytes([7; 16]), 258);
        assert_eq!(block.items().expect("sound"), [expected]);
    }

    /// Format 1 for ever: a change here makes existing stores unreadable.
    #[test]
    fn the_bytes_of_a_block_are_frozen() {
        let (bytes, _) = sealed();
        assert_eq!(bytes.len(), 430);
        assert_eq!(
            blake3::hash(&bytes).to_hex().as_str(),
            "6246aa373fa2b971bcdc52f4d687cd949d14151d87649f70ada3e78f7bf544d6"
        );
    }

    #[test]
    fn no_flipped_bit_and_no_cut_passes_the_chain() {
        let (bytes, _) = sealed();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            assert!(Block::read(&flipped).is_err(), "byte {at}");
        }
        for len in 1..bytes.len() {
            assert!(Block::read(&bytes[..len]).is_err(), "{len} bytes");
        }
        assert!(Block::read(&[]).expect("nothing there").is_none());
        assert!(Block::read(&[0; 600]).expect("nothing there").is_none());
    }
}
