//! One task per run: create or claim it, drive it, and file how it went.
//!
//! A run is created inside its own task, so that a caller who stops waiting for the start leaves
//! no orphan behind: what became durable is driven.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use super::begun::{Begun, read_history};
use super::driver::{AfterCrash, Exit};
use super::keyed::Terms;
use super::poison;
use super::prepared::Prepared;
use super::progress::Progress;
use super::{EngineError, RunEntry, Shared, handle, lines, notes, retry_children, waking};
use crate::ids::RunId;
use crate::journal::End;
use crate::store::{
    BoxFuture, Changes, Claim, Commit, Committed, Creation, Epoch, NewRun, ParkReason, Parking,
    RunState, StoreError, StoreResult,
};

/// How soon a resume looks at the store again when the run is in memory still.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// What became of a creation.
pub(super) enum Created {
    /// The run was created and is driven.
    Done,
    /// The key does not stand as it did: a run of it is in the store already, or it is in another generation.
    LookAgain,
}

type CreatedResult = Result<Created, EngineError>;

/// A run that is owned and ready to be driven, or how it went instead. Boxed: a task keeps the
/// largest of its moments for life, and this one is over soon.
type Beginning = BoxFuture<'static, Result<Box<Begun>, Progress>>;

/// Creates a run in a task of its own, on the terms that its key was given on.
pub(super) async fn create(
    shared: &Arc<Shared>,
    entry: &Arc<RunEntry>,
    prepared: Prepared,
    terms: Terms,
) -> CreatedResult {
    let (answer, created) = oneshot::channel();
    let run = prepared.new.header.run;
    let beginning = begin_new(shared.clone(), entry.clone(), prepared, terms, answer);
    spawn(shared, run, entry, Box::pin(beginning));
    created
        .await
        .unwrap_or_else(|_| Err(shared.refusal("it was dropped")))
}

async fn begin_new(
    shared: Arc<Shared>,
    entry: Arc<RunEntry>,
    prepared: Prepared,
    terms: Terms,
    answer: oneshot::Sender<CreatedResult>,
) -> Result<Box<Begun>, Progress> {
    let Prepared {
        new,
        started,
        chain,
        ..
    } = prepared;
    let created_at = new.header.created_at;
    let created = match terms.guards.is_empty() {
        true => shared
            .store
            .create(new)
            .await
            .map(|creation| match creation {
                Creation::Created(epoch) => Ok(epoch),
                Creation::Exists(_) => Err(Created::LookAgain),
            }),
        false => create_on(&shared, new, terms).await,
    };
    match created {
        Ok(Ok(epoch)) => {
            entry.progress.set(Progress::Active);
            let _ = answer.send(Ok(Created::Done));
            Ok(Box::new(Begun::fresh(started, created_at, epoch, chain)))
        }
        Ok(Err(refused)) => {
            let _ = answer.send(Ok(refused));
            Err(Progress::NotCreated)
        }
        Err(error) => {
            let _ = answer.send(Err(error.into()));
            Err(Progress::NotCreated)
        }
    }
}

/// Creates a run unless its key does not stand as it did.
async fn create_on(
    shared: &Shared,
    new: NewRun,
    terms: Terms,
) -> StoreResult<Result<Epoch, Created>> {
    let Terms { guards, notes, .. } = terms;
    let changes = Changes {
        create: vec![new],
        notes,
        ..Changes::default()
    };
    Ok(
        match shared.store.commit(Commit { guards, changes }).await? {
            Committed::Done => Ok(Epoch::FIRST),
            Committed::Refused(_) => Err(Created::LookAgain),
        },
    )
}

/// Takes up every unfinished run in the store.
pub(super) async fn resume_all(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let after_crash = !shared.store.stopped_cleanly();
    let mut unfinished = shared.store.unfinished().await?;
    if after_crash {
        poison::mark_all(shared, &unfinished).await?;
        unfinished.sort_by_key(|header| shared.marks.weight(header.run));
    }
    for header in unfinished {
        if *header.namespace != *shared.services.namespace {
            continue;
        }
        match &header.state {
            RunState::Active | RunState::Asleep { .. } => {}
            // What a new process may have been given; the rest waits for a person.
            RunState::Parked(parking)
                if matches!(
                    parking.reason,
                    ParkReason::Unregistered | ParkReason::MissingResource
                ) => {}
            RunState::Parked(_) | RunState::Ended(_) => continue,
        }
        take_up_if(shared, header.run, after_crash, Parked::Too);
    }
    Ok(())
}

/// Takes a parked run up again.
pub(super) async fn resume(shared: &Arc<Shared>, run: RunId) -> Result<(), EngineError> {
    loop {
        let run = lines::newest(shared, run).await?;
        let header = handle::header(shared, run).await?;
        let in_memory = match header.state {
            RunState::Ended(_) => return Err(EngineError::Ended(run)),
            RunState::Active | RunState::Asleep { .. } | RunState::Parked(_) => {
                take_up_if(shared, run, false, Parked::Too)
            }
        };
        match (in_memory, header.state) {
            // The store says parked, and yet it is in memory: its task has parked it and not left
            // yet, a start of the same key is looking at it, or another resume is ahead. None of
            // them lasts; to believe the memory would lose this resume in the first two.
            (Some(entry), RunState::Parked(_)) => {
                let settled = |p: &Progress| !matches!(p, Progress::Creating | Progress::Active);
                let settling = entry.progress.wait_for(settled);
                let _ = tokio::time::timeout(LOOK_AGAIN, settling).await;
            }
            // It is on its way to be parked: this was said after that.
            (Some(entry), RunState::Active) if entry.is_pausing() => {
                let settled = |p: &Progress| !matches!(p, Progress::Creating | Progress::Active);
                if let Progress::Stopped(error) = entry.progress.wait_for(settled).await {
                    return Err(*error);
                }
            }
            _ => return Ok(()),
        }
    }
}

/// Which runs are taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parked {
    /// Parked ones too: somebody asked for it.
    Too,
    /// Parked ones stay parked, whatever else has come up for them.
    Not,
}

/// Drives a stored run that is not parked in a task of its own, unless it is in memory already:
/// then that is returned.
pub(super) fn take_up(
    shared: &Arc<Shared>,
    run: RunId,
    after_crash: bool,
) -> Option<Arc<RunEntry>> {
    take_up_if(shared, run, after_crash, Parked::Not)
}

fn take_up_if(
    shared: &Arc<Shared>,
    run: RunId,
    after_crash: bool,
    parked: Parked,
) -> Option<Arc<RunEntry>> {
    let entry = {
        let mut runs = shared.runs();
        if let Some(known) = runs.get(&run) {
            return Some(known.clone());
        }
        // Whoever waits for a run that slept goes on waiting with the same entry.
        let awaited = shared.sleepers.take(run);
        let entry = awaited.unwrap_or_else(|| RunEntry::new(Progress::Active));
        runs.insert(run, entry.clone());
        entry
    };
    shared.known_keys.run_goes_on(run);
    shared.plan.arrivals.tell(run);
    spawn(
        shared,
        run,
        &entry,
        Box::pin(claim(shared.clone(), run, after_crash, parked)),
    );
    None
}

/// Runs a run's task, and files how it went; also when the task is aborted or panics.
fn spawn(shared: &Arc<Shared>, run: RunId, entry: &Arc<RunEntry>, beginning: Beginning) {
    shared.services.under_way.begin();
    let mut filing = Filing {
        shared: shared.clone(),
        entry: entry.clone(),
        run,
        progress: Some(Progress::stopped("its task was stopped")),
    };
    // Without tokio's budget: a poll that is cut short in the middle would look like a wake-up of
    // the workflow's own, for ever.
    let task = tokio::spawn(tokio::task::unconstrained(async move {
        let progress = match beginning.await {
            Ok(begun) => drive(begun, &filing.shared, &filing.entry).await,
            Err(progress) => progress,
        };
        filing.progress = Some(progress);
        drop(filing);
    }));
    entry.set_task(task.abort_handle());
}

/// Drives a run until it ends or cannot go on, and makes how it went durable.
///
/// Not an `async fn`: what the run began with is gone before the first wait.
fn drive(
    begun: Box<Begun>,
    shared: &Arc<Shared>,
    entry: &RunEntry,
) -> impl Future<Output = Progress> + Send + use<> {
    let (run, epoch) = (begun.chain.run(), begun.epoch);
    // Both apart: what is awaited here is part of every run's task for as long as it is in memory.
    let driver = begun
        .into_driver(shared, entry)
        .map(Box::new)
        .map_err(Box::new);
    let shared = shared.clone();
    async move {
        let exit = match driver {
            Ok(driver) => driver.await,
            Err(obstacle) => Exit::Park(obstacle.into_parking(&shared.services, run)),
        };
        match exit {
            Exit::Ended(end) => {
                shared.services.recovery.forget(run);
                tracing::debug!(%run, "run ended");
                Progress::Ended(end)
            }
            Exit::Park(parking) => Box::pin(park(shared, run, epoch, parking)).await,
            Exit::StoreFailed(error) => {
                match error {
                    // That is said once, not for every run.
                    StoreError::Failed { .. } => shared.stop_if_failed(),
                    _ => tracing::error!(%run, %error, "the store refused what the run did"),
                }
                error.into()
            }
            Exit::Left => Progress::stopped("the engine was shut down"),
            Exit::Asleep(wake_at) => Progress::Asleep(wake_at),
            #[cfg(feature = "testing")]
            Exit::Verified(_) => unreachable!("a run that is driven is no mere replay"),
        }
    }
}

struct Filing {
    shared: Arc<Shared>,
    entry: Arc<RunEntry>,
    run: RunId,
    progress: Option<Progress>,
}

impl Drop for Filing {
    fn drop(&mut self) {
        match self.progress.take() {
            Some(Progress::Asleep(wake_at)) => {
                self.shared.leave_asleep(self.run, &self.entry, wake_at);
            }
            Some(progress) => {
                let only_looked = matches!(progress, Progress::NotCreated);
                let next = match &progress {
                    Progress::Ended(End::Continued(continued)) => Some(continued.next),
                    _ => None,
                };
                self.shared.leave(self.run, &self.entry, progress);
                // A letter that came for this run while it ended is the next one's, which may not know.
                if let Some(next) = next {
                    waking::mail_arrived(&self.shared, next);
                }
                // What came for it meanwhile is for the run that was there before.
                if only_looked && self.entry.mail.swap(false, Ordering::AcqRel) {
                    waking::mail_arrived(&self.shared, self.run);
                }
            }
            None => {}
        }
        self.shared.services.under_way.end();
    }
}

/// Claims a stored run and reads its journal as history.
async fn claim(
    shared: Arc<Shared>,
    run: RunId,
    after_crash: bool,
    parked: Parked,
) -> Result<Box<Begun>, Progress> {
    let stopped = Progress::from;
    let marked = poison::admit(&shared, run).await?;
    let claimed = {
        let _turn = shared.claiming.acquire().await;
        claim_from_checkpoint(&shared, run).await
    };
    let (claim, from) = match claimed {
        Ok((Some(claim), from)) => (claim, from),
        Ok((None, _)) => return Err(Progress::stopped(format!("{run} is gone"))),
        Err(error) => return Err(stopped(error)),
    };
    match claim.header.state {
        RunState::Parked(_) if parked == Parked::Too => {
            let unpark = shared.store.park(run, claim.epoch, None);
            unpark.await.map_err(stopped)?;
        }
        RunState::Parked(_) => return Err(Progress::Parked),
        RunState::Ended(_) => return Err(Progress::NotCreated), // a timer that is not needed any more
        RunState::Active | RunState::Asleep { .. } => {}
    }
    let key = &shared.services.audit_key;
    let poison = marked.as_ref();
    let poison = poison.and_then(|marked| marked.poison(key.clone(), &claim.frames, from));
    let read = match poison {
        Some(poison) => Err(poison),
        None => read_history(run, key.clone(), &claim.frames, from),
    };
    let line = lines::place_of(&shared, &claim.header)
        .await
        .map_err(stopped)?;
    match read.and_then(|read| Ok((read, line?))) {
        Ok(((mut history, chain), line)) => {
            if claim.header.is_fork() {
                history.started.parent = None; // where it was forked may lie before its newest checkpoint
            }
            let (mut mail, mut next) = (claim.mail, claim.next_letter);
            if let Some(reopened) = history.was_reopened() {
                let letters = retry_children::Letters {
                    mail: &mut mail,
                    next: &mut next,
                };
                let seen_to = retry_children::see_to(&shared, run, reopened, letters);
                seen_to.await.map_err(stopped)?;
            }
            let mail = (mail, next);
            let crash = AfterCrash {
                after_crash,
                marked,
            };
            let begun = Begun::again(history, claim.epoch, chain, mail, crash);
            Ok(Box::new(begun.in_line(line)))
        }
        Err(obstacle) => {
            let parking = obstacle.into_parking(&shared.services, run);
            Err(park(shared, run, claim.epoch, parking).await)
        }
    }
}

/// Claims a run with its journal from its newest checkpoint on, as far as that was noted.
pub(super) async fn claim_from_checkpoint(
    shared: &Shared,
    run: RunId,
) -> Result<(Option<Claim>, u64), StoreError> {
    let note = shared.store.note(notes::checkpoint(run)).await?;
    let at: u64 = note.and_then(|note| notes::decode(&note).ok()).unwrap_or(0);
    // The record before it is needed for its link in the chain.
    let from = at.saturating_sub(1);
    Ok((shared.store.claim(run, from).await?, from))
}

async fn park(shared: Arc<Shared>, run: RunId, epoch: Epoch, parking: Parking) -> Progress {
    if parking.reason == ParkReason::Paused {
        tracing::info!(%run, "run paused");
    } else {
        tracing::error!(%run, reason = ?parking.reason, "run parked: {}", parking.report);
    }
    if parking.reason == ParkReason::Panicked && seeded!(PoisonStopsQueues) {
        shared.plan.stop();
    }
    let parked = match shared.store.park(run, epoch, Some(parking)).await {
        Ok(()) => poison::forgive(&shared, run).await,
        Err(error) => Err(error),
    };
    match parked {
        Ok(()) => {
            shared.services.counters.parked();
            Progress::Parked
        }
        Err(error) => error.into(),
    }
}
