//! Blocks: what one group commit wrote, as bytes.
//!
//! Owns the layout of a block and the chain that links each to the one before. Never
//! touches the database.
//!
//! ```text
//! previous chain value  32
//! chain value           32   BLAKE3 of (previous, commit number, all that follows)
//! blocks                16   census of the blocks that are there after this commit
//! live                  16   census of the `l` entries that are there after this commit
//! ended                  8   how many runs have ended and were archived by then
//! items                      until the end
//! ```

use std::sync::LazyLock;

use bytes::Bytes;

use super::bytes::{Census, Malformed, Reader, put_bytes};
use crate::codec;
use crate::ids::RunId;
use crate::store::{Parking, RunEnd, RunHeader};

/// A value of the store-wide chain.
pub(super) type Chain = [u8; 32];

/// The chain value before the first block.
pub(super) const GENESIS: Chain = [0; 32];

const CREATED: u8 = 1;
const APPENDED: u8 = 2;
const PARKED: u8 = 3;

static CHAIN: LazyLock<blake3::Hasher> =
    LazyLock::new(|| blake3::Hasher::new_derive_key("workflow-runtime 2026-11 store chain"));

/// The state of the store after a commit, carried by its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Totals {
    /// The blocks that are there.
    pub(super) blocks: Census,
    /// The `l` entries that are there.
    pub(super) live: Census,
    /// How many runs were archived as ended.
    pub(super) ended: u64,
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
}

/// Writes the items of a block.
#[derive(Debug, Default)]
pub(super) struct Items(Vec<u8>);

impl Items {
    pub(super) fn created(&mut self, header: &RunHeader, first: &[u8]) {
        self.0.push(CREATED);
        put_bytes(&mut self.0, &codec::encode(header));
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
            Some(end) => put_bytes(&mut self.0, &codec::encode(&end)),
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
        put_bytes(&mut self.0, &codec::encode(&parking));
    }

    /// Makes the block's bytes, and its chain value.
    pub(super) fn seal(self, previous: &Chain, commit: u64, totals: &Totals) -> (Vec<u8>, Chain) {
        let mut body = Vec::with_capacity(64 + 40 + self.0.len());
        body.extend_from_slice(previous);
        body.extend_from_slice(&GENESIS);
        totals.blocks.write(&mut body);
        totals.live.write(&mut body);
        body.extend_from_slice(&totals.ended.to_le_bytes());
        body.extend_from_slice(&self.0);
        let chain = link(previous, commit, &body[64..]);
        body[32..64].copy_from_slice(&chain);
        (body, chain)
    }
}

/// Computes a chain value.
fn link(previous: &Chain, commit: u64, content: &[u8]) -> Chain {
    let mut hash = blake3::Hasher::clone(&CHAIN);
    hash.update(previous);
    hash.update(&commit.to_le_bytes());
    hash.update(content);
    *hash.finalize().as_bytes()
}

/// A block that was read back and whose own chain value is right.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) previous: Chain,
    pub(super) chain: Chain,
    pub(super) totals: Totals,
    content: Bytes,
}

impl Block {
    /// Reads a block and checks it against its own chain value.
    pub(super) fn open(commit: u64, bytes: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(&bytes);
        let previous = reader.array()?;
        let chain = reader.array()?;
        if link(&previous, commit, &bytes[64..]) != chain {
            return Err("its chain value is wrong");
        }
        let blocks = Census::read(&mut reader)?;
        let live = Census::read(&mut reader)?;
        let ended = reader.u64()?;
        let items_from = bytes.len() - reader.len();
        Ok(Self {
            previous,
            chain,
            totals: Totals {
                blocks,
                live,
                ended,
            },
            content: bytes.slice(items_from..),
        })
    }

    /// Reads all items.
    pub(super) fn items(&self) -> Result<Vec<Item>, Malformed> {
        let mut reader = Reader::new(&self.content);
        let mut items = Vec::new();
        while !reader.is_empty() {
            items.push(self.item(&mut reader)?);
        }
        Ok(items)
    }

    fn item(&self, reader: &mut Reader<'_>) -> Result<Item, Malformed> {
        match reader.u8()? {
            CREATED => {
                let header = decode(reader.bytes()?)?;
                let first = self.content.slice_ref(reader.bytes()?);
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
                    frames.push(self.content.slice_ref(reader.bytes()?));
                }
                Ok(Item::Appended {
                    run,
                    first_seq,
                    frames,
                    end,
                })
            }
            PARKED => Ok(Item::Parked(reader.run()?, decode(reader.bytes()?)?)),
            _ => Err("it holds an item of unknown kind"),
        }
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

    fn sealed() -> (Vec<u8>, Chain) {
        let mut items = Items::default();
        items.created(&header(), b"first");
        let end = RunEnd {
            kind: EndKind::Failed,
            at: Timestamp::from_micros(9),
        };
        let frames = [Bytes::from_static(b"second"), Bytes::new()];
        items.appended(RunId::from_bytes([1; 16]), 1, &frames, Some(end));
        items.parked(RunId::from_bytes([2; 16]), Some(&parking()));
        items.parked(RunId::from_bytes([2; 16]), None);
        items.seal(&[9; 32], 5, &Totals::default())
    }

    #[test]
    fn a_block_is_read_back_as_it_was_written() {
        let (bytes, chain) = sealed();
        let block = Block::open(5, bytes.into()).expect("sound");
        assert_eq!((block.previous, block.chain), ([9; 32], chain));
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
    }

    /// Format 1 for ever: a change here makes existing stores unreadable.
    #[test]
    fn the_bytes_of_a_block_are_frozen() {
        let (bytes, _) = sealed();
        assert_eq!(bytes.len(), 287);
        assert_eq!(
            blake3::hash(&bytes).to_hex().as_str(),
            "6a56bd2c6a8e7a596a72de0e24af0d10f265b915131c8b4836b196c55b773157"
        );
    }

    #[test]
    fn no_flipped_bit_and_no_other_number_passes_the_chain() {
        let (bytes, _) = sealed();
        assert!(Block::open(6, bytes.clone().into()).is_err());
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            assert!(Block::open(5, flipped.into()).is_err(), "byte {at}");
        }
        for len in 0..bytes.len() {
            assert!(Block::open(5, bytes[..len].to_vec().into()).is_err());
        }
    }
}
