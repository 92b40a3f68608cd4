//! Taking a run's place in memory, so that nobody else drives it meanwhile.
//!
//! Owns the change of hands between a run's own task and somebody who does something to the run as a
//! whole: ends it, or parks it. Whoever waits for the run goes on waiting, and is told how it went.
//! However the taking ends, also when its future is dropped half-way, the place is given back; what it was taken for is done to its end.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::progress::Progress;
use super::{EngineError, RunEntry, Shared, waking};
use crate::ids::RunId;

/// Holds a run's place in memory until it is known how it went.
pub(super) struct Taking {
    shared: Arc<Shared>,
    run: RunId,
    entry: Arc<RunEntry>,
    progress: Progress,
}

impl Taking {
    /// Takes the place of a run that is not in memory; else gives who has it.
    pub(super) fn vacant(shared: &Arc<Shared>, run: RunId) -> Result<Self, Arc<RunEntry>> {
        let mut runs = shared.runs();
        if let Some(known) = runs.get(&run) {
            return Err(known.clone());
        }
        let entry = waited_with(shared, run);
        runs.insert(run, entry.clone());
        drop(runs);
        Ok(Self::new(shared, run, entry))
    }

    /// Takes the place from whoever has it. When it returns, no task drives the run.
    pub(super) async fn by_force(shared: &Arc<Shared>, run: RunId) -> Self {
        let (entry, before) = {
            let mut runs = shared.runs();
            let entry = waited_with(shared, run);
            let before = runs.insert(run, entry.clone());
            // Under the lock: a task that falls asleep just now looks at it there.
            if let Some(before) = &before {
                before.superseded.store(true, Ordering::Release);
            }
            (entry, before)
        };
        let taking = Self::new(shared, run, entry);
        if let Some(before) = before {
            // Whoever starts a run is told first that it was started.
            let created = |p: &Progress| !matches!(p, Progress::Creating);
            before.progress.wait_for(created).await;
            before.abort();
            let left = |p: &Progress| !matches!(p, Progress::Creating | Progress::Active);
            before.progress.wait_for(left).await;
        }
        taking
    }

    fn new(shared: &Arc<Shared>, run: RunId, entry: Arc<RunEntry>) -> Self {
        Self {
            shared: shared.clone(),
            run,
            entry,
            progress: Progress::NotCreated, // the store knows how it stands
        }
    }

    /// Gives the place back, and tells whoever waits how it went.
    fn done(mut self, progress: Progress) {
        self.progress = progress;
    }

    /// Does what the place was taken for, gives it back, and tells whoever waits how it went.
    ///
    /// In a task of its own, so that it is done to its end also if nobody waits for that any more: the store may be at work on a
    /// claim, which would take the run from whoever claimed it after this was given up.
    pub(super) async fn settle(
        self,
        work: impl Future<Output = Result<Progress, EngineError>> + Send + 'static,
    ) -> Result<(), EngineError> {
        let shared = self.shared.clone();
        let task = tokio::spawn(async move {
            let progress = work.await?;
            self.done(progress);
            Ok(())
        });
        match task.await {
            Ok(settled) => settled,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_) => Err(shared.refusal("its runtime goes down")),
        }
    }
}

/// The entry that somebody waits with for a run that sleeps, or a new one.
fn waited_with(shared: &Shared, run: RunId) -> Arc<RunEntry> {
    let awaited = shared.sleepers.take(run);
    awaited.unwrap_or_else(|| RunEntry::new(Progress::Active))
}

impl Drop for Taking {
    fn drop(&mut self) {
        let done = !matches!(self.progress, Progress::NotCreated);
        self.shared
            .leave(self.run, &self.entry, self.progress.clone());
        // Whoever drove it was stopped, or its time to wake is not in line any more: half done is not to be an orphan.
        if !done && tokio::runtime::Handle::try_current().is_ok() {
            waking::wake(&self.shared, self.run);
        }
    }
}
