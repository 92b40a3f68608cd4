//! What the committer is asked for.
//!
//! Owns the entries of the queue and where their answers go. Never decides anything.

use tokio::sync::oneshot;

use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::store::{
    AckSender, Append, Changes, Commit, Committed, Creation, Durability, Epoch, Frames, NewRun,
    Parking, Released, Reopening, RunEnd, StoreError, StoreResult,
};

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<StoreResult<T>>;

/// About how many bytes a run takes in a block that falls asleep there.
const SLEEP_BYTES: usize = 512;

/// One thing the committer is asked for.
#[derive(Debug)]
pub(super) enum Op {
    Create(Box<NewRun>, Reply<Creation>),
    Append(Appending, AckSender),
    Commit(Commit, Reply<Committed>),
    Park(RunId, Option<Parking>, Reply<()>),
    Sleep(RunId, Epoch, Option<Timestamp>, Reply<Released>),
    /// A run in memory was given to a new owner.
    Claim(RunId, Reply<()>),
    Revive(Box<Reopening>, Reply<Epoch>),
    /// Records of a run from 2 up to this number are not needed any more.
    Forget(RunId, u64, Reply<()>),
    /// Nothing: the answer comes once everything queued before is durable.
    Barrier(Reply<()>),
}

// Every step is one, written by one thread and read by another: what is rare and large is boxed.
const _: () = assert!(size_of::<Op>() <= 112);

/// An append that was accepted: its epoch has done its work.
#[derive(Debug)]
pub(super) struct Appending {
    pub(super) run: RunId,
    pub(super) first_seq: u64,
    pub(super) frames: Frames,
    pub(super) end: Option<RunEnd>,
    pub(super) taken: u64,
    pub(super) changes: Option<Box<Changes>>,
    pub(super) durability: Durability,
}

impl From<Append> for Appending {
    fn from(append: Append) -> Self {
        Self {
            run: append.run,
            first_seq: append.first_seq,
            frames: append.frames,
            end: append.end,
            taken: append.taken,
            changes: append.changes,
            durability: append.durability,
        }
    }
}

/// Returns about how many bytes a new run takes in a block.
pub(super) fn bytes_of_run(run: &NewRun) -> usize {
    let header = &run.header;
    let key = header.key.as_ref().map_or(0, |key| key.len());
    let rest: usize = run.rest.iter().map(|frame| frame.len() + 4).sum();
    run.first.len() + rest + header.namespace.len() + header.workflow.len() + key
}

/// Returns about how many bytes changes take in a block.
pub(super) fn bytes_of_changes(changes: &Changes) -> usize {
    let created: usize = changes.create.iter().map(bytes_of_run).sum();
    let posted: usize = changes.post.iter().map(|letter| letter.body.len()).sum();
    let notes = changes.notes.iter().map(|note| {
        let value = note.value.as_ref().map_or(0, bytes::Bytes::len);
        note.key.as_bytes().len() + value
    });
    created + posted + notes.sum::<usize>()
}

/// Returns about how many bytes an append takes in a block.
pub(super) fn bytes_of_append(frames: &[bytes::Bytes], changes: Option<&Changes>) -> usize {
    let frames: usize = frames.iter().map(|frame| frame.len() + 4).sum();
    frames + changes.map_or(0, bytes_of_changes)
}

impl Op {
    /// Returns about how many bytes it takes in a block.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Create(run, _) => bytes_of_run(run),
            Self::Append(append, _) => bytes_of_append(&append.frames, append.changes.as_deref()),
            Self::Commit(commit, _) => bytes_of_changes(&commit.changes),
            Self::Park(_, Some(parking), _) => {
                parking.report.len() + parking.detail.as_ref().map_or(0, bytes::Bytes::len)
            }
            Self::Revive(reopening, _) => {
                let letters = reopening.letters.iter().map(bytes::Bytes::len);
                reopening.frame.len() + letters.sum::<usize>()
            }
            Self::Sleep(..) => SLEEP_BYTES,
            Self::Park(_, None, _) | Self::Claim(..) | Self::Forget(..) | Self::Barrier(_) => 0,
        }
    }

    pub(super) fn durability(&self) -> Durability {
        match self {
            Self::Create(run, _) => run.durability,
            Self::Append(append, _) => append.durability,
            Self::Commit(..) | Self::Park(..) | Self::Revive(..) => Durability::Synced,
            Self::Sleep(..) | Self::Claim(..) | Self::Forget(..) | Self::Barrier(_) => {
                Durability::Buffered
            }
        }
    }

    /// Answers with an error.
    pub(super) fn refuse(self, error: StoreError) {
        // Whoever dropped the future does not want to know.
        let _ = match self {
            Self::Create(_, reply) => reply.send(Err(error)).is_err(),
            Self::Commit(_, reply) => reply.send(Err(error)).is_err(),
            Self::Sleep(_, _, _, reply) => reply.send(Err(error)).is_err(),
            Self::Revive(_, reply) => reply.send(Err(error)).is_err(),
            Self::Append(_, ack) => {
                ack.send(Err(error));
                return;
            }
            Self::Park(_, _, reply)
            | Self::Claim(_, reply)
            | Self::Forget(_, _, reply)
            | Self::Barrier(reply) => reply.send(Err(error)).is_err(),
        };
    }
}
