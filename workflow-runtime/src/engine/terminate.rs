//! Terminating: ending a run at once, whatever it does.
//!
//! Owns the one end that the run's own task does not write. It takes the run away from its task first,
//! so that nobody appends after it. Nothing is undone.

use std::future::IntoFuture;
use std::sync::Arc;

use super::progress::Progress;
use super::taking::Taking;
use super::{EngineError, Shared, lines, task, waking};
use crate::clock::Timestamp;
use crate::id_map::IdMap;
use crate::ids::{RunId, StepId};
use crate::journal::{
    CancelRequested, ChildFinished, Draft, End, Event, Parent, Reader, Record, RunCancelled,
};
use crate::store::{
    Append, BoxFuture, Changes, Durability, EndKind, Letter, RunEnd, RunHeader, RunState,
    StoreError,
};

/// A run about to be terminated; see [`Engine::terminate`](super::Engine::terminate).
#[must_use = "nothing is terminated until this is awaited"]
pub struct Terminate {
    shared: Arc<Shared>,
    run: RunId,
    reason: Box<str>,
}

impl Terminate {
    pub(super) fn new(shared: Arc<Shared>, run: RunId) -> Self {
        Self {
            shared,
            run,
            reason: "no reason given".into(),
        }
    }

    /// Says why; it is kept in the journal.
    pub fn reason(mut self, reason: &str) -> Self {
        self.reason = reason.into();
        self
    }

    async fn run(self) -> Result<(), EngineError> {
        let shared = &self.shared;
        let mut run = lines::newest(shared, self.run).await?; // it may be of another namespace
        loop {
            let taking = Taking::by_force(shared, run).await;
            let (within, reason) = (shared.clone(), self.reason.clone());
            let ending = async move { end_now(&within, run, reason).await.map(Progress::Ended) };
            let Err(error) = taking.settle(ending).await else {
                return Ok(());
            };
            // If it goes on, its task was stopped for nothing: another takes it up.
            waking::mail_arrived(shared, run);
            match lines::newest(shared, run).await? {
                newest if newest == run => return Err(error),
                newest => run = newest, // it went on as a new run just before
            }
        }
    }
}

/// Writes the end of a run that nobody drives.
async fn end_now(shared: &Arc<Shared>, run: RunId, reason: Box<str>) -> Result<End, EngineError> {
    let (claim, from) = task::claim_from_checkpoint(shared, run).await?;
    let claim = claim.ok_or(EngineError::UnknownRun(run))?;
    if let RunState::Ended(_) = claim.header.state {
        return Err(EngineError::Ended(run));
    }
    let key = shared.services.audit_key.clone();
    let mut reader = Reader::new(run, key, &claim.frames).leaving_out(from);
    let records: Vec<Record> = reader.by_ref().collect::<Result<_, _>>()?;
    let end = End::Cancelled(RunCancelled {
        reason,
        terminated: true,
    });
    let last_time = records.last().map(|record| record.time).unwrap_or_default();
    let at = shared.services.clock.now().max(last_time);
    let mut changes = letters(&claim.header, &records, &end, at);
    changes.notes.extend(shared.marks.removal(run));
    let told: Vec<RunId> = changes.post.iter().map(|letter| letter.to).collect();
    let mut chain = reader.into_chain();
    let first_seq = chain.next_seq();
    let frame = Draft::of(&end.clone().into_event()).seal(at, &mut chain);
    let appended = shared.store.append(Append {
        run,
        epoch: claim.epoch,
        first_seq,
        frames: frame.into(),
        end: Some(RunEnd {
            kind: EndKind::Cancelled,
            at,
        }),
        taken: 0,
        changes: Some(Box::new(changes)),
        durability: Durability::Synced,
    });
    match appended.await {
        Err(StoreError::Ended { .. }) => return Err(EngineError::Ended(run)),
        appended => appended?,
    }
    shared.marks.removed(run);
    shared.known_keys.run_goes_on(run); // what is known of it was read before it ended
    for run in told {
        waking::mail_arrived(shared, run);
    }
    Ok(end)
}

/// What the end of a run means for its parent and its children.
fn letters(header: &RunHeader, records: &[Record], end: &End, at: Timestamp) -> Changes {
    let mut children: IdMap<StepId, RunId> = IdMap::default();
    let mut parent: Option<Parent> = None;
    for record in records {
        match &record.event {
            Event::RunStarted(started) => parent = started.parent,
            // The children of the origin stay its own.
            Event::RunForked(_) => children.clear(),
            Event::ChildStarted(child) if !child.detached => {
                children.insert(child.call, child.child);
            }
            Event::Checkpoint(carried) => {
                let carried = carried.children.iter().filter(|child| !child.detached);
                children.extend(carried.map(|child| (child.call, child.child)));
            }
            Event::RunSucceeds(left) => {
                let carried = left.children.iter().filter(|child| !child.detached);
                children.extend(carried.map(|child| (child.call, child.child)));
            }
            Event::ChildFinished(child) => {
                children.remove(&child.call);
            }
            _ => {}
        }
    }
    let mut changes = Changes::default();
    if let Some(parent) = parent.filter(|_| !header.is_fork()) {
        let finished = Event::ChildFinished(ChildFinished {
            call: parent.call,
            child: header.run,
            end: end.clone(),
        });
        changes.post.push(Letter {
            to: parent.run,
            body: finished.to_letter(),
        });
    }
    for child in children.into_values() {
        let request = Event::CancelRequested(CancelRequested {
            reason: "its parent was terminated".into(),
            sent_at: at,
        });
        changes.post.push(Letter {
            to: child,
            body: request.to_letter(),
        });
    }
    changes
}

impl IntoFuture for Terminate {
    type Output = Result<(), EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
