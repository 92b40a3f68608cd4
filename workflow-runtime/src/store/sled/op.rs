//! What the committer is asked for.
//!
//! Owns the entries of the queue and where their answers go. Never decides anything.

use tokio::sync::oneshot;

use crate::ids::RunId;
use crate::store::{Append, Creation, Durability, NewRun, Parking, StoreError, StoreResult};

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<StoreResult<T>>;

/// One thing the committer is asked for.
#[derive(Debug)]
pub(super) enum Op {
    Create(NewRun, Reply<Creation>),
    Append(Append, Reply<()>),
    Park(RunId, Option<Parking>, Reply<()>),
    /// Nothing: the answer comes once everything queued before is durable.
    Barrier(Reply<()>),
}

impl Op {
    /// Returns about how many bytes it takes in a block.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Create(run, _) => {
                let header = &run.header;
                let key = header.key.as_ref().map_or(0, |key| key.len());
                run.first.len() + header.namespace.len() + header.workflow.len() + key
            }
            Self::Append(append, _) => append.frames.iter().map(|frame| frame.len() + 4).sum(),
            Self::Park(_, Some(parking), _) => {
                parking.report.len() + parking.detail.as_ref().map_or(0, bytes::Bytes::len)
            }
            Self::Park(_, None, _) | Self::Barrier(_) => 0,
        }
    }

    pub(super) fn durability(&self) -> Durability {
        match self {
            Self::Create(run, _) => run.durability,
            Self::Append(append, _) => append.durability,
            Self::Park(..) => Durability::Synced,
            Self::Barrier(_) => Durability::Buffered,
        }
    }

    /// Answers with an error.
    pub(super) fn refuse(self, error: StoreError) {
        // Whoever dropped the future does not want to know.
        let _ = match self {
            Self::Create(_, reply) => reply.send(Err(error)).is_err(),
            Self::Append(_, reply) | Self::Park(_, _, reply) | Self::Barrier(reply) => {
                reply.send(Err(error)).is_err()
            }
        };
    }
}
