//! The children of a run that is tried again.
//!
//! A parent that failed because a child failed is tried again together with that child: the child's end no longer
//! counts in the parent's journal, and the child is the same run again, taken up from its own failure. Owns what is asked
//! of such children before anything is written, and what is done about them whenever the parent is taken up: that a
//! child is to be tried again is in the parent's journal alone, so a crash between the two changes nothing. Never
//! decides which failures count (`retry` does).

use std::sync::Arc;

use super::retry::{Plan, plan, retry};
use super::{EngineError, Shared, handle, lines};
use crate::error::Error;
use crate::ids::{RunId, StepId};
use crate::journal::{ChildFinished, End, Event, Outcome, Reader};
use crate::payload::Place;
use crate::replay::{Unfinished, WasReopened};
use crate::store::{
    BoxFuture, Changes, Commit, EndKind, Letter, Mail, RunHeader, RunState, StoreError, StoreResult,
};

/// Refuses to try a run again whose failed children cannot be. Nothing is written.
pub(super) fn check<'a>(
    shared: &'a Arc<Shared>,
    run: RunId,
    children: &'a [RunId],
) -> BoxFuture<'a, Result<(), EngineError>> {
    Box::pin(async move {
        for &child in children {
            let refused = |problem: String| EngineError::ChildNotRetried {
                run,
                child,
                problem,
            };
            let header = match handle::header(shared, child).await {
                Ok(header) => header,
                Err(EngineError::UnknownRun(_)) => {
                    return Err(refused("it was deleted since".to_owned()));
                }
                Err(error) => return Err(error),
            };
            // Otherwise somebody has tried it again by itself: it goes on, or has another end by now.
            if matches!(&header.state, RunState::Ended(end) if end.kind == EndKind::Failed) {
                let planned = plan(shared, child).await;
                if matches!(planned, Err(EngineError::FailsAgain { .. })) {
                    continue; // its parent gets the same end again, as it does of one that was cancelled
                }
                let Plan { children, .. } = planned.map_err(|error| match error {
                    EngineError::NotFailed { how, .. } => refused(format!("it {how}")),
                    EngineError::Unfit { report, .. } => {
                        refused(format!("its code does not fit its journal: {report}"))
                    }
                    other => other,
                })?;
                check(shared, child, &children).await?;
            }
        }
        Ok(())
    })
}

/// Letters to a run, as far as they were read.
pub(super) struct Letters<'a> {
    pub(super) mail: &'a mut Vec<Mail>,
    pub(super) next: &'a mut u64,
}

/// Sees to it that a run that was tried again hears of the children that it has not heard of: those whose failure
/// no longer counts are tried again, and of those that ended while it had ended itself it is told now.
///
/// Not an `async fn`: it has runs taken up, and taking a run up calls it.
pub(super) fn see_to<'a>(
    shared: &'a Arc<Shared>,
    run: RunId,
    reopened: WasReopened,
    mut letters: Letters<'a>,
) -> BoxFuture<'a, StoreResult<()>> {
    Box::pin(async move {
        for child in reopened.unfinished {
            let unheard = end_unheard(shared, run, &child, &mut letters).await?;
            let Some((ended, end)) = unheard else {
                continue;
            };
            if child.voided
                && matches!(end, End::Failed(_))
                && !is_over(shared, run, child.child).await?
            {
                continue;
            }
            tell(shared, run, (child.call, ended), end).await?;
            letters.read(shared, run).await?;
        }
        Ok(())
    })
}

/// Tries a failed child again. Says whether its failure counts after all, because its code has changed since that was asked.
async fn is_over(shared: &Arc<Shared>, run: RunId, child: RunId) -> StoreResult<bool> {
    let error = match retry(shared, child).await {
        Ok(()) => return Ok(false),
        Err(EngineError::Store(error)) => return Err(error),
        // The next process sees to it.
        Err(EngineError::Stopped(reason)) => return Err(StoreError::Stopped { reason }),
        Err(error) => error,
    };
    // Somebody else may have tried it again meanwhile: it tells its parent itself then.
    let header = newest_of_line(shared, child).await?;
    let state = header.map(|header| header.state);
    let failed = matches!(state, Some(RunState::Ended(end)) if end.kind == EndKind::Failed);
    if failed {
        tracing::warn!(%run, %child, %error, "child not tried again");
    }
    Ok(failed)
}

/// The run that a child is by now: one that went on as a new run has not ended. `None`: it was deleted.
async fn newest_of_line(shared: &Shared, child: RunId) -> StoreResult<Option<RunHeader>> {
    match lines::newest_header(shared, child).await? {
        Some(header) => Ok(Some(header)),
        // Of a line the first runs may be gone.
        None => match lines::noted(shared, child).await? {
            Some(newest) => shared.store.header(newest.run).await,
            None => Ok(None),
        },
    }
}

/// How a child ended and as which run, if it did and the run was not told.
async fn end_unheard(
    shared: &Shared,
    run: RunId,
    child: &Unfinished,
    letters: &mut Letters<'_>,
) -> StoreResult<Option<(RunId, End)>> {
    let header = newest_of_line(shared, child.child).await?;
    let newest = header.as_ref().map_or(child.child, |header| header.run);
    match header.map(|header| header.state) {
        Some(RunState::Active | RunState::Asleep { .. } | RunState::Parked(_)) => return Ok(None),
        Some(RunState::Ended(_)) | None => {}
    }
    // A child's letter is in the write that ends it: one that is not there now was lost.
    letters.read(shared, run).await?;
    let told = letters.mail.iter().any(|mail| {
        let letter = Event::from_letter(&mail.body);
        matches!(letter, Ok(Event::ChildFinished(end)) if end.call == child.call)
    });
    if told {
        return Ok(None);
    }
    let kept = shared.store.journal(newest).await?;
    let reader = Reader::of(newest, shared.services.audit_key.clone(), &kept);
    let last = reader.last().and_then(Result::ok);
    let end = last.and_then(|record| End::of(record.event));
    let end = end.unwrap_or_else(|| {
        let error = Error::fatal(format!(
            "child {newest} was deleted, or its journal is damaged: nobody knows how it ended"
        ));
        let payloads = shared.services.payloads.at(Place::run_end(newest));
        let payload = payloads.encode(&error);
        End::Failed(Outcome::Broken(payload.unwrap_or_default()))
    });
    Ok(Some((newest, end)))
}

/// Tells a run how a child of it ended, as the child did when there was nobody to listen.
async fn tell(
    shared: &Shared,
    run: RunId,
    (call, child): (StepId, RunId),
    end: End,
) -> StoreResult<()> {
    let finished = Event::ChildFinished(ChildFinished { call, child, end });
    let letter = Letter {
        to: run,
        body: finished.to_letter(),
    };
    let commit = Commit {
        guards: Vec::new(),
        changes: Changes {
            post: vec![letter],
            ..Changes::default()
        },
    };
    shared.store.commit(commit).await?; // refused if the run was terminated meanwhile
    Ok(())
}

impl Letters<'_> {
    /// Reads what has come since.
    async fn read(&mut self, shared: &Shared, run: RunId) -> Result<(), StoreError> {
        for mail in shared.store.mail(run, *self.next).await? {
            *self.next = mail.number + 1;
            self.mail.push(mail);
        }
        Ok(())
    }
}
