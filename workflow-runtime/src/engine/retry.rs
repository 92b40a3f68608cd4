//! Trying a failed run again: the same run, the same step ids, without what made it fail.
//!
//! Owns who may be tried again, and the record that says which outcomes no longer count; which those are is chosen in
//! `retry_choice`. It never runs a step itself; the run is driven like any other. What becomes of its children is in
//! `retry_children`.

use std::sync::Arc;

use bytes::Bytes;

use super::progress::Progress;
use super::task::take_up;
use super::{Engine, EngineError, Shared, handle, keyed, lines, retry_children, retry_choice};
use crate::ids::RunId;
use crate::journal::{Chain, Draft, Event, Reader, Record, RunReopened};
use crate::store::{EndKind, NoteChange, NoteKey, Reopening, RunState, StoreError, Unread};

/// Notes that are read at a time.
const PAGE: usize = 256;

impl Engine {
    /// Takes a failed run up again from its failed step. It is the same run: its history stays, and the
    /// step runs again under the same id, with fresh attempts.
    ///
    /// A child that failed counts like a failed step: it is tried again too, as the same run, and so are its own
    /// children.
    ///
    /// What no longer counts are failed outcomes, as many as the code can do without. **A failure that the code has gone
    /// past stands**: it handled it, and came to other calls because of it. Those may have done something, under ids
    /// that they would be given again, with another input or never. So steps that failed side by side all run again, and of a
    /// step and its fallback that both failed, the fallback does.
    ///
    /// A retry after which the code would come to the same failure without running anything is refused: there is no
    /// failed step, or the code has gone past all of them. With other code that goes another way it is not.
    ///
    /// Of a line of runs that continue each other it is the newest that is tried again.
    ///
    /// When it resolves, the retry is durable; the run goes on in the background.
    ///
    /// ```no_run
    /// # use workflow_runtime::{store::{EndKind, StateKind}, Engine, EngineError, Result};
    /// # async fn example(engine: Engine) -> Result<()> {
    /// let failed = engine.runs().state(StateKind::Ended(EndKind::Failed)).await?;
    /// for run in failed.runs {
    ///     match engine.retry(run.run).await {
    ///         Err(EngineError::FailsAgain { .. }) => {} // nothing of it would run
    ///         retried => retried?,
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`EngineError::NotFailed`] if the run has not failed or its key was given to a newer run,
    /// [`EngineError::FailsAgain`] if it could only fail again, [`EngineError::Unfit`] if the code does not fit its journal,
    /// [`EngineError::ChildNotRetried`] if a child that has to
    /// be tried again cannot be (it undid what it did, say); if there is no such run, its workflow is not registered, its journal cannot
    /// be read, or the store fails. The run is left as it was.
    pub async fn retry(&self, run: RunId) -> Result<(), EngineError> {
        retry(self.shared(), run).await
    }
}

pub(super) async fn retry(shared: &Arc<Shared>, run: RunId) -> Result<(), EngineError> {
    loop {
        if shared.is_closing() {
            return Err(shared.refusal("it is shutting down"));
        }
        let run = lines::newest(shared, run).await?;
        let Plan {
            reopening,
            children,
        } = plan(shared, run).await?;
        retry_children::check(shared, run, &children).await?;
        match shared.store.revive(reopening).await {
            Ok(_) => return go_on(shared, run).await,
            // Somebody else was faster: look what became of it.
            Err(
                StoreError::Ended { .. }
                | StoreError::OutOfOrder { .. }
                | StoreError::Guarded { .. },
            ) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// How a run is to be tried again.
pub(super) struct Plan {
    reopening: Reopening,
    /// Children that have to be tried again with it.
    pub(super) children: Vec<RunId>,
}

/// Finds out how a run is to be tried again, without writing anything.
pub(super) async fn plan(shared: &Arc<Shared>, run: RunId) -> Result<Plan, EngineError> {
    let header = handle::header(shared, run).await?;
    refuse_unless_failed(run, &header.state)?;
    // It may have failed just now and be on its way out of memory.
    if let Some(entry) = shared.entry(run) {
        entry.progress.wait_for(is_settled).await;
    }
    let kept = shared.store.journal(run).await?;
    let mut reader = Reader::of(run, shared.services.audit_key.clone(), &kept);
    let records: Vec<Record> = reader.by_ref().collect::<Result<_, _>>()?;
    let mut events = records.iter().map(|record| &record.event);
    if events.any(|event| matches!(event, Event::RunClosing(_))) {
        let how = "failed, and what it did was undone";
        return Err(EngineError::NotFailed { run, how });
    }
    let Some((guards, notes)) = keyed::revival(shared, &header).await? else {
        let how = "failed, and its key was given to a newer run";
        return Err(EngineError::NotFailed { run, how });
    };
    let mut plan = reopen(shared, &records, reader.into_chain())?;
    (plan.reopening.guards, plan.reopening.notes) = (guards, notes);
    hand_back(shared, &mut plan.reopening).await?;
    Ok(plan)
}

/// Hands a run the signals back that were acknowledged and that it had not taken when it failed. Of its children it hears anew
/// (`retry_children`), and who wanted it to be cancelled then does not want it now.
async fn hand_back(shared: &Shared, reopening: &mut Reopening) -> Result<(), EngineError> {
    let prefix = Unread::prefix(reopening.run);
    let mut kept: Vec<(NoteKey, Bytes)> = Vec::new();
    loop {
        let after = kept.last().map(|(key, _)| key.clone());
        let page = shared.store.notes(prefix.clone(), after, PAGE).await?;
        let is_last = page.len() < PAGE;
        kept.extend(page);
        if is_last {
            break;
        }
    }
    let is_signal = |body: &Bytes| matches!(Event::from_letter(body), Ok(Event::SignalReceived(_)));
    let letters = Unread::letters(&kept).into_iter();
    reopening.letters = letters.filter(is_signal).collect();
    let read = kept
        .into_iter()
        .map(|(key, _)| NoteChange { key, value: None });
    reopening.notes.extend(read);
    Ok(())
}

/// Says whether an entry is on its way out of memory.
fn is_settled(progress: &Progress) -> bool {
    !matches!(progress, Progress::Creating | Progress::Active)
}

fn refuse_unless_failed(run: RunId, state: &RunState) -> Result<(), EngineError> {
    let how = match state {
        RunState::Ended(end) => match end.kind {
            EndKind::Failed => return Ok(()),
            EndKind::Completed => "has completed",
            EndKind::Cancelled => "was cancelled",
            EndKind::Aborted => "ended itself",
            EndKind::Continued => "went on as a new run",
        },
        RunState::Active | RunState::Asleep { .. } => "has not ended",
        RunState::Parked(_) => "is parked",
    };
    Err(EngineError::NotFailed { run, how })
}

/// Drives a run that is active again.
async fn go_on(shared: &Arc<Shared>, run: RunId) -> Result<(), EngineError> {
    // An entry in memory is of another retry that drives it already, or of a start with its key
    // that looks at it and leaves.
    while let Some(entry) = take_up(shared, run, false) {
        let seen = |progress: &Progress| !matches!(progress, Progress::Creating);
        if let Progress::Active = entry.progress.wait_for(seen).await {
            break;
        }
        if let RunState::Ended(_) = handle::header(shared, run).await?.state {
            break;
        }
    }
    Ok(())
}

/// Makes the record that takes a run up again.
fn reopen(shared: &Arc<Shared>, records: &[Record], mut chain: Chain) -> Result<Plan, EngineError> {
    let (run, seq) = (chain.run(), chain.next_seq());
    let end = records.last().map(|record| (record.seq, record.time));
    let (end, ended_at) = end.ok_or(EngineError::UnknownRun(run))?;
    let mut voided = retry_choice::voided_failures(shared, &chain, records)?;
    // What a fork shares of its origin's children is not tried again: it starts its own.
    let is_fork = |record: &Record| matches!(record.event, Event::RunForked(_));
    let own = records.iter().rposition(is_fork).unwrap_or_default();
    let events = records[own..].iter();
    let events = events.filter(|record| voided.contains(&record.seq));
    let children = events.filter_map(|record| match &record.event {
        Event::ChildFinished(child) => Some(child.child),
        _ => None,
    });
    let children = children.collect();
    voided.push(end);
    let event = Event::RunReopened(RunReopened { voided });
    let frame = Draft::of(&event).seal(shared.services.clock.now().max(ended_at), &mut chain);
    let reopening = Reopening {
        run,
        seq,
        frame,
        guards: Vec::new(),
        notes: Vec::new(),
        letters: Vec::new(),
    };
    Ok(Plan {
        reopening,
        children,
    })
}
