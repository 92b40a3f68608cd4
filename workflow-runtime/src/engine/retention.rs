//! Retention: runs that ended long enough ago are deleted, a batch at a time.
//!
//! Owns which runs may go, and the order of it: the tombstone of a run's key is durable before the run is
//! gone, so that no crash lets a generation be given twice. It never touches a run that has not
//! ended or that its key still names, and waits between batches like anybody else: commits do not wait for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::generations::Generation;
use super::{Engine, EngineError, Shared, keyed, lines};
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::store::{
    Commit, Committed, EndKind, Origin, RunHeader, RunOrder, RunQuery, RunState, StateKind,
};

/// Runs that are looked at, and deleted, at a time.
const BATCH: usize = 256;

/// How often the background task sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// The seconds of a day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long runs are kept after they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// `None`: for ever.
    keep: Option<Duration>,
}

impl Retention {
    /// Keeps runs for so many days after they ended.
    pub const fn days(days: u32) -> Self {
        Self::of(DAY.saturating_mul(days))
    }

    /// Keeps runs for this long after they ended.
    pub const fn of(time: Duration) -> Self {
        Self { keep: Some(time) }
    }

    /// Keeps runs for ever.
    pub const fn forever() -> Self {
        Self { keep: None }
    }
}

/// The retention of an engine's workflows.
#[derive(Clone)]
pub(super) struct Retentions {
    pub(super) default: Retention,
    pub(super) of: HashMap<&'static str, Retention>,
}

impl Default for Retentions {
    fn default() -> Self {
        Self {
            default: Retention::forever(),
            of: HashMap::new(),
        }
    }
}

impl Retentions {
    /// The shortest time for which anything is kept; `None` if everything is kept for ever.
    fn shortest(&self) -> Option<Duration> {
        let all = self.of.values().chain([&self.default]);
        all.filter_map(|retention| retention.keep).min()
    }

    /// Says whether a run's time is over.
    fn is_over(&self, header: &RunHeader, now: Timestamp) -> bool {
        let end = match &header.state {
            RunState::Ended(end) => end.at,
            _ if seeded!(RetentionRemovesLive) => header.created_at,
            _ => return false,
        };
        let retention = self.of.get(&*header.workflow).unwrap_or(&self.default);
        retention.keep.is_some_and(|keep| end.after(keep) <= now)
    }
}

impl Engine {
    /// Deletes the runs whose [`Retention`] is over now, without waiting for the background task, which does so
    /// when the engine is opened and every ten minutes. Returns how many were deleted.
    ///
    /// Journal, header and all that belongs to a run go together. A run stays as long as its key names it,
    /// whatever its retention says ([`Start::key_ttl`](crate::Start::key_ttl)). The key of a run that was deleted
    /// names a new run, with an id and step ids of its own.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn sweep(&self) -> Result<u64, EngineError> {
        sweep(self.shared()).await
    }
}

/// Starts the background task, if anything is ever deleted.
pub(super) fn serve(shared: &Arc<Shared>) {
    if shared.retentions.shortest().is_none() {
        return;
    }
    let weak = Arc::downgrade(shared);
    shared.plan.spawn(async move {
        loop {
            let Some(shared) = weak.upgrade().filter(|shared| !shared.is_closing()) else {
                return;
            };
            match sweep(&shared).await {
                Ok(0) => {}
                Ok(runs) => tracing::info!(runs, "expired runs were deleted"),
                Err(error) if shared.store.failure().is_some() => {
                    tracing::debug!(%error, "the sweep stops: the store has");
                    return;
                }
                Err(error) => tracing::warn!(%error, "the sweep failed: trying again later"),
            }
            let pause = shared.services.clock.chore(SWEEP_EVERY);
            drop(shared);
            tokio::time::sleep(pause).await;
        }
    });
}

async fn sweep(shared: &Shared) -> Result<u64, EngineError> {
    let Some(shortest) = shared.retentions.shortest() else {
        return Ok(0);
    };
    let now = shared.services.clock.now();
    let ended = [
        EndKind::Completed,
        EndKind::Failed,
        EndKind::Cancelled,
        EndKind::Aborted,
        EndKind::Continued,
    ];
    let mut query = RunQuery {
        namespace: Some((*shared.services.namespace).into()),
        states: match seeded!(RetentionRemovesLive) {
            true => Vec::new(),
            false => ended.map(StateKind::Ended).into(),
        },
        order: RunOrder::OldestFirst,
        limit: BATCH,
        ..RunQuery::default()
    };
    let mut deleted = 0;
    loop {
        let page = shared.store.list(query.clone()).await?;
        let last = page.last().map(RunHeader::position);
        let mut expired = Vec::new();
        for header in page {
            if shared.retentions.is_over(&header, now)
                && !is_needed(shared, &header, now).await?
                && !keyed::is_named(shared, &header).await?
            {
                expired.push(header);
            }
        }
        if !expired.is_empty() {
            let runs = bury(shared, &expired).await?;
            shared.known_keys.forget_all();
            // Nothing is noted of runs that are gone: it would stay for ever.
            let _turn = shared.duplicates.turn().await;
            shared.duplicates.forget(&runs);
            deleted += shared.store.delete(runs).await?;
        }
        match last {
            // No run ends before it is created: behind this one all are too young.
            Some(last) if last.created_at.after(shortest) <= now => query.after = Some(last),
            _ => return Ok(deleted),
        }
        tokio::task::yield_now().await;
    }
}

/// Says whether another run may still ask for this one. A parent asks for its child, and if that went on as a new
/// run, for the last one of its line. Of a line the first run is kept until the time of the last is over: it has
/// the key and what belongs to the line. Those in between go when their own time is over, so that a line without an
/// end does not grow without one.
async fn is_needed(
    shared: &Shared,
    header: &RunHeader,
    now: Timestamp,
) -> Result<bool, EngineError> {
    let origin = match header.origin {
        Some(Origin::Continued(first)) if !header.went_on() => {
            let first = shared.store.header(first).await?;
            first.and_then(|first| first.origin)
        }
        origin => origin,
    };
    if let Some(Origin::Child(parent)) = origin
        && goes_on(shared, parent).await?
    {
        return Ok(true);
    }
    let is_first = header.first_of_line() == header.run;
    if !header.went_on() || !is_first {
        return Ok(false);
    }
    let last = lines::newest_header(shared, header.run).await?;
    Ok(last.is_some_and(|last| !shared.retentions.is_over(&last, now)))
}

async fn goes_on(shared: &Shared, run: RunId) -> Result<bool, EngineError> {
    let header = shared.store.header(run).await?;
    Ok(header.is_some_and(|header| !matches!(header.state, RunState::Ended(_))))
}

/// Leaves the tombstones of keys whose runs are about to be deleted, and returns the runs that may go: one that was taken up
/// again since it was listed stays, and holds its key.
async fn bury(shared: &Shared, runs: &[RunHeader]) -> Result<Vec<RunId>, EngineError> {
    loop {
        let mut commit = Commit::default();
        let mut buried = Vec::with_capacity(runs.len());
        for header in runs {
            let Some(key) = &header.key else {
                buried.push(header.run);
                continue;
            };
            let generation = Generation::of(shared, &header.workflow, key).await?;
            // A run of an older generation has its tombstone: it was left before a crash.
            let (workflow, number) = (&header.workflow, generation.number);
            if RunId::derive(&shared.services.namespace, workflow, key, number) == header.run {
                if can_be_revived(header) {
                    let Some(guard) = keyed::letting_go(shared, header).await? else {
                        continue;
                    };
                    commit.guards.push(guard);
                }
                commit.changes.notes.push(generation.moves_on());
                commit.guards.push(generation.guard);
            }
            buried.push(header.run);
        }
        // Refused if another sweep or a retry was faster: then it is looked up again.
        if commit.changes.is_empty() || shared.store.commit(commit).await? == Committed::Done {
            return Ok(buried);
        }
    }
}

/// Says whether a retry can take a run up again, or the newest of its line.
fn can_be_revived(header: &RunHeader) -> bool {
    let kind = header.end().map(|end| end.kind);
    matches!(kind, Some(EndKind::Failed | EndKind::Continued))
}
