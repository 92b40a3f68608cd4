//! Runs and frames that a test can recognise, and a look at what a store still has of them.
//!
//! Every frame follows from (run, sequence, length), so that a verifier needs no record of
//! what was written but the acknowledgements.

use bytes::Bytes;
use workflow_runtime::clock::Timestamp;
use workflow_runtime::store::sled::SledStore;
use workflow_runtime::store::{
    Append, Durability, EndKind, Epoch, KeptJournal, NewRun, RunEnd, RunHeader, RunState, Store,
    StoreError, StoreResult,
};
use workflow_runtime::{Digest, RunId};

/// A generator of numbers that looks random and is not (splitmix64).
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

pub(super) fn id(n: u64) -> RunId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&Numbers(n).next().to_be_bytes());
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    RunId::from_bytes(bytes)
}

pub(super) fn header(n: u64) -> RunHeader {
    RunHeader {
        run: id(n),
        namespace: "default".into(),
        workflow: "checkout".into(),
        version: 1,
        key: Some(format!("order-{n}").into()),
        input_digest: Digest::from_bytes([5; 16]),
        created_at: Timestamp::from_micros(1_000 + n),
        origin: None,
        state: RunState::Active,
    }
}

pub(super) fn frame(n: u64, seq: u64, len: usize) -> Bytes {
    let mut numbers = Numbers(n << 32 ^ seq);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&numbers.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

pub(super) fn new_run(n: u64, len: usize) -> NewRun {
    NewRun {
        header: header(n),
        first: frame(n, 0, len),
        rest: Vec::new(),
        durability: Durability::Synced,
    }
}

pub(super) fn append(n: u64, epoch: Epoch, seq: u64, len: usize) -> Append {
    Append {
        run: id(n),
        epoch,
        first_seq: seq,
        frames: frame(n, seq, len).into(),
        end: None,
        taken: 0,
        changes: None,
        durability: Durability::Synced,
    }
}

pub(super) fn ending(n: u64, epoch: Epoch, seq: u64, len: usize) -> Append {
    Append {
        end: Some(RunEnd {
            kind: EndKind::Completed,
            at: Timestamp::from_micros(77),
        }),
        ..append(n, epoch, seq, len)
    }
}

/// What must be there: run `n` has at least `frames` frames of `len` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) n: u64,
    pub(super) frames: u64,
    pub(super) len: usize,
}

/// What a look at one run found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// All that was expected, or more.
    Sound,
    /// Fewer frames than expected.
    Lost,
    /// The store says that something is wrong.
    Refused,
    /// A frame that nobody wrote.
    Wrong,
}

/// After how many frames a run forgets most of those before, in tests of that.
pub(super) const FORGETS_EVERY: u64 = 8;

/// Up to which frame a run forgets when it has so many, if it does then.
pub(super) fn forgets(frames: u64) -> Option<u64> {
    let now = frames.is_multiple_of(FORGETS_EVERY) && frames > FORGETS_EVERY;
    now.then(|| frames - FORGETS_EVERY / 2)
}

fn was_asked_for(kept_from: u64) -> bool {
    forgets(kept_from + FORGETS_EVERY / 2) == Some(kept_from)
}

/// Looks at one run. Frames past the expected ones must be right too.
pub(super) async fn look(store: &SledStore, expected: Expected) -> Look {
    let kept: StoreResult<KeptJournal> = store.journal(id(expected.n)).await;
    let kept = match kept {
        Ok(kept) => kept,
        Err(StoreError::Corrupt { .. } | StoreError::Failed { .. } | StoreError::Io { .. }) => {
            return Look::Refused;
        }
        Err(other) => panic!("a read answers with {other:?}"),
    };
    let KeptJournal { frames, kept_from } = &kept;
    let seqs = (0..2).chain(2.max(*kept_from)..);
    for (seq, found) in seqs.zip(frames) {
        if *found != frame(expected.n, seq, expected.len) {
            return Look::Wrong;
        }
    }
    if *kept_from > 0 && (frames.len() < 3 || !was_asked_for(*kept_from)) {
        return Look::Wrong;
    }
    if frames.len() as u64 + kept_from.saturating_sub(2) < expected.frames {
        Look::Lost
    } else {
        Look::Sound
    }
}
