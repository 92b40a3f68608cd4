//! The chain that holds a journal together.
//!
//! Owns the frame around a record's body and the BLAKE3 value that links it to the one before:
//! `format version (1) · body · chain value (32)`. A flipped bit, a swapped, a missing or a
//! foreign record breaks the chain at that place. With an audit key the chain is keyed, so
//! that nobody without the key can rewrite history. It never looks inside a body.

use bytes::Bytes;

use super::room;
use crate::hashing::{self, HashContext};
use crate::ids::RunId;

static UNKEYED: HashContext = HashContext::new("workflow-runtime 2026-11 journal chain");

/// The frame format that this release writes.
pub(crate) const FORMAT_VERSION: u8 = 1;

/// Bytes of a chain value at the end of every frame.
pub(super) const LINK_LEN: usize = 32;

/// Bytes that a link covers beside a body: the link before it, the run, the place.
const PLACE_LEN: usize = LINK_LEN + 16 + 8;

/// Most bodies are no longer: to gather what a link covers and hash it at once costs less than to hash it in pieces.
const MOST: usize = 264;

/// So long a body may be to be hashed at once still, for which more room has to be cleared: what the link covers is one chunk then.
const LONG: usize = 1_024 - PLACE_LEN;

/// A secret that makes journals tamper-evident (see `EngineBuilder::audit_key`).
#[derive(Clone)]
pub(crate) struct AuditKey([u8; 32]);

impl AuditKey {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self(key)
    }
}

/// Where a journal's chain has got to.
#[derive(Clone)]
pub(crate) struct Chain {
    run: RunId,
    next_seq: u64,
    link: [u8; LINK_LEN],
    key: Option<AuditKey>,
}

/// Says where and how a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChainError {
    #[error("record {seq} is cut short")]
    Cut { seq: u64 },
    #[error(
        "record {seq} has frame format {found}, this release reads {FORMAT_VERSION}: upgrade workflow-runtime"
    )]
    Format { seq: u64, found: u8 },
    #[error("record {seq} is not what was written there: the chain breaks")]
    Broken { seq: u64 },
}

impl Chain {
    /// Begins the chain of a run.
    pub(crate) fn new(run: RunId, key: Option<AuditKey>) -> Self {
        Self {
            run,
            next_seq: 0,
            link: [0; LINK_LEN],
            key,
        }
    }

    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    /// The sequence number of the next record.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Frames a body as the next record.
    fn seal(&mut self, body: &[u8]) -> Bytes {
        let mut frame = Vec::with_capacity(1 + body.len() + LINK_LEN);
        frame.push(FORMAT_VERSION);
        frame.extend_from_slice(body);
        self.seal_in_place(frame)
    }

    /// Frames the next record: the bytes are the format version and its body, with room for the link.
    pub(crate) fn seal_in_place(&mut self, mut frame: Vec<u8>) -> Bytes {
        self.link = self.link_to(&frame[1..]);
        self.next_seq += 1;
        frame.extend_from_slice(&self.link);
        frame.into()
    }

    /// The same, with the frame where its thread has room for it.
    pub(super) fn seal_in_room(&mut self, body: &[u8]) -> Bytes {
        self.link = self.link_to(&body[1..]);
        self.next_seq += 1;
        room::put(body, &self.link)
    }

    /// Goes on behind a body, and returns its link.
    #[cfg(feature = "export")]
    pub(crate) fn extend(&mut self, body: &[u8]) -> [u8; LINK_LEN] {
        self.link = self.link_to(body);
        self.next_seq += 1;
        self.link
    }

    /// Frames the record of another journal, which was checked there, as the next one of this.
    pub(crate) fn copy(&mut self, frame: &Bytes) -> Bytes {
        let body = &frame[1..frame.len() - LINK_LEN];
        self.seal(body)
    }

    /// Goes on behind a frame that is not checked, but for being one.
    pub(crate) fn skip_to(&mut self, seq: u64, frame: &Bytes) {
        if let Some((_, link)) = frame.split_last_chunk::<LINK_LEN>() {
            self.link = *link;
            self.next_seq = seq + 1;
        }
    }

    /// Checks the next frame and returns its body.
    pub(crate) fn open<'a>(&mut self, frame: &'a Bytes) -> Result<&'a [u8], ChainError> {
        let seq = self.next_seq;
        if frame.len() < 1 + LINK_LEN {
            return Err(ChainError::Cut { seq });
        }
        if frame[0] != FORMAT_VERSION {
            return Err(ChainError::Format {
                seq,
                found: frame[0],
            });
        }
        let body = &frame[1..frame.len() - LINK_LEN];
        let link = self.link_to(body);
        if frame[frame.len() - LINK_LEN..] != link && !seeded!(CorruptionUnnoticed) {
            return Err(ChainError::Broken { seq });
        }
        self.link = link;
        self.next_seq += 1;
        Ok(body)
    }

    /// Goes on behind the next frame, whose link was checked, and returns its body.
    pub(super) fn pass<'a>(&mut self, frame: &'a Bytes) -> &'a [u8] {
        self.skip_to(self.next_seq, frame);
        &frame[1..frame.len() - LINK_LEN]
    }

    fn link_to(&self, body: &[u8]) -> [u8; LINK_LEN] {
        if body.len() <= MOST {
            self.link_at_once::<{ PLACE_LEN + MOST }>(body)
        } else if body.len() <= LONG {
            self.link_at_once::<{ PLACE_LEN + LONG }>(body)
        } else {
            self.link_in_pieces(body)
        }
    }

    /// What a link covers before a body.
    fn place(&self) -> [u8; PLACE_LEN] {
        let mut place = [0; PLACE_LEN];
        place[..32].copy_from_slice(&self.link);
        place[32..48].copy_from_slice(self.run.as_bytes());
        place[48..].copy_from_slice(&self.next_seq.to_le_bytes());
        place
    }

    fn link_at_once<const ROOM: usize>(&self, body: &[u8]) -> [u8; LINK_LEN] {
        let mut gathered = [0; ROOM];
        let len = PLACE_LEN + body.len();
        gathered[..PLACE_LEN].copy_from_slice(&self.place());
        gathered[PLACE_LEN..len].copy_from_slice(body);
        match &self.key {
            None => UNKEYED.hash(&gathered[..len]),
            Some(AuditKey(key)) => hashing::keyed_hash(key, &gathered[..len]),
        }
    }

    #[cold]
    fn link_in_pieces(&self, body: &[u8]) -> [u8; LINK_LEN] {
        let mut hash = match &self.key {
            None => UNKEYED.hasher(),
            Some(AuditKey(key)) => blake3::Hasher::new_keyed(key),
        };
        hash.update(&self.place()).update(body);
        *hash.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(key: Option<AuditKey>) -> Vec<Bytes> {
        let mut chain = Chain::new(RunId::from_bytes([1; 16]), key);
        (0..5u8).map(|n| chain.seal(&[n, n, n])).collect()
    }

    fn check(frames: &[Bytes], key: Option<AuditKey>) -> Result<(), ChainError> {
        let mut chain = Chain::new(RunId::from_bytes([1; 16]), key);
        frames
            .iter()
            .try_for_each(|frame| chain.open(frame).map(drop))
    }

    #[test]
    fn a_link_is_the_hash_of_what_it_covers_however_long_that_is() {
        let lengths = [
            0, 1, 100, 263, 264, 265, 500, 967, 968, 969, 1_024, 2_000, 70_000,
        ];
        for key in [None, Some([7; 32])] {
            let mut chain = Chain::new(RunId::from_bytes([1; 16]), key.map(AuditKey::new));
            let mut before = [0; LINK_LEN];
            for (seq, len) in lengths.into_iter().enumerate() {
                let body = vec![seq as u8; len];
                let frame = chain.seal(&body);
                let covered = [&before[..], &[1; 16], &(seq as u64).to_le_bytes(), &body].concat();
                const CONTEXT: &str = "workflow-runtime 2026-11 journal chain";
                let expected = match key {
                    None => blake3::derive_key(CONTEXT, &covered),
                    Some(key) => *blake3::keyed_hash(&key, &covered).as_bytes(),
                };
                before = *frame.last_chunk().expect("a link");
                assert_eq!(before, expected, "{len} bytes");
            }
        }
    }

    #[test]
    fn an_intact_chain_verifies() {
        assert_eq!(check(&frames(None), None), Ok(()));
    }

    #[test]
    fn any_flipped_bit_is_found_at_its_record() {
        let intact = frames(None);
        for (seq, frame) in intact.iter().enumerate() {
            for bit in 0..frame.len() * 8 {
                let mut damaged = intact.clone();
                let mut bytes = frame.to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                damaged[seq] = bytes.into();
                let error = check(&damaged, None).expect_err("damaged");
                assert!(
                    error.to_string().contains(&format!("record {seq} ")),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn a_swapped_a_missing_and_a_foreign_record_are_found() {
        let intact = frames(None);
        let mut swapped = intact.clone();
        swapped.swap(1, 2);
        assert_eq!(check(&swapped, None), Err(ChainError::Broken { seq: 1 }));
        let mut missing = intact.clone();
        missing.remove(3);
        assert_eq!(check(&missing, None), Err(ChainError::Broken { seq: 3 }));
        let mut other = Chain::new(RunId::from_bytes([2; 16]), None);
        let mut foreign = intact;
        foreign[0] = other.seal(&[0, 0, 0]);
        assert_eq!(check(&foreign, None), Err(ChainError::Broken { seq: 0 }));
    }

    #[test]
    fn without_the_audit_key_history_cannot_be_rewritten() {
        let key = AuditKey::new([9; 32]);
        assert_eq!(check(&frames(Some(key.clone())), Some(key.clone())), Ok(()));
        let forged = frames(None);
        assert_eq!(
            check(&forged, Some(key)),
            Err(ChainError::Broken { seq: 0 })
        );
    }

    #[test]
    fn a_frame_that_is_cut_is_named_however_little_is_left_and_an_empty_body_is_one() {
        let mut chain = Chain::new(RunId::from_bytes([1; 16]), None);
        let whole = chain.seal(&[]);
        for len in 0..whole.len() {
            let cut = check(&[whole.slice(..len)], None);
            assert_eq!(cut, Err(ChainError::Cut { seq: 0 }), "{len} bytes");
        }
        assert_eq!(check(&[whole], None), Ok(()));
    }

    #[test]
    fn a_chain_counts_what_it_sealed_opened_and_skipped() {
        let mut sealing = Chain::new(RunId::from_bytes([1; 16]), None);
        let mut opening = sealing.clone();
        for seq in 0..3 {
            assert_eq!((sealing.next_seq(), opening.next_seq()), (seq, seq));
            let frame = sealing.seal(&[7]);
            opening.open(&frame).expect("intact");
        }
        let mut behind = Chain::new(RunId::from_bytes([1; 16]), None);
        let third = sealing.seal(&[8]);
        behind.skip_to(3, &third);
        assert_eq!(behind.next_seq(), 4);
        assert!(behind.open(&sealing.seal(&[9])).is_ok(), "it goes on there");
    }
}
