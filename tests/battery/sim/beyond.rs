//! What those outside do to runs that are there already: they try failed ones again, fork them, and look after a schedule.
//!
//! Owns when it is done, what is noted down of it, and which refusals are right. What must come of it is in `extra_checks`.

use std::time::{Duration, SystemTime};

use workflow_runtime::journal::{End, Event, Record};
use workflow_runtime::store::{EndKind, RunState, Store as _};
use workflow_runtime::{EngineError, Overlap, RunId, ScheduleHandle};

use super::check::is_end;
use super::extras::Beat;
use super::life::{QUEUE, Talk};
use super::program::keeps;
use super::workflows::{interpret, onward, passes, tick};
use super::{Forked, OWN};

/// The name of the schedule.
pub(super) const BEAT: &str = "beat";

/// Long enough for the engine to come to everything that is due.
const A_LOOK: Duration = Duration::from_secs(3);

/// Whether something is left to be done before a case is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Something,
    Nothing,
}

impl Talk<'_> {
    /// Declares the schedule, as every process does, and takes back a pause that another one died in.
    pub(super) async fn declare(&mut self) -> Option<()> {
        let Some(beat) = self.case.extras.beat else {
            return Some(());
        };
        let Beat {
            every,
            overlap,
            catch_up,
            ..
        } = beat;
        let declared = self.engine.schedule(BEAT, tick(beat.naps));
        let declared = declared.every(every).overlap(overlap).catch_up(catch_up);
        let declared = declared.start_at(beat.start()).end_at(beat.end());
        let declared = match beat.queued {
            true => declared.queue(QUEUE),
            false => declared,
        };
        let declared = declared.await;
        let schedule = self.unless_failed("1: the schedule is refused", declared)?;
        if self.told.beat.paused {
            self.unless_failed("1: it is not resumed", schedule.resume().await)?;
            self.told.beat.paused = false;
        }
        Some(())
    }

    /// Does something of all this, now and then.
    pub(super) async fn meddle(&mut self) -> Option<()> {
        if self.told.forks.len() as u64 + self.told.forks_refused < self.case.extras.forks
            && self.extra.once_in(3)
        {
            self.fork().await?;
        }
        if self.case.extras.beat.is_some() && self.extra.once_in(6) {
            self.look_after_schedule().await?;
        }
        // Not only when everything else has come to its end.
        if self.case.extras.retries > 0 && self.extra.once_in(3) {
            self.retry().await?;
        }
        Some(())
    }

    /// What is left to be done when no run goes on. `None`: the disk has failed.
    pub(super) async fn left(&mut self) -> Option<Left> {
        if self.retry().await? == Left::Something {
            return Some(Left::Something);
        }
        let Some(beat) = self.case.extras.beat else {
            return Some(Left::Nothing);
        };
        if self.told.beat.is_over {
            return Some(Left::Nothing);
        }
        let last = beat.end() + Duration::from_secs(1);
        if let Ok(time) = last.duration_since(self.engine.now()) {
            self.engine.advance(time).await;
        }
        tokio::time::sleep(A_LOOK).await;
        let described = self.engine.schedule_handle(BEAT).describe().await;
        let described = self.unless_failed("1: the schedule is gone", described)?;
        let settled = self.runs_of_ticks().await? as u64 + described.skipped;
        let is_over = match beat.settles_all() && !self.told.beat.was_paused {
            true => settled == u64::from(beat.ticks),
            false => true,
        };
        self.told.beat.is_over = is_over && described.buffered.is_none();
        // Its last runs may go on.
        Some(Left::Something)
    }

    /// Tries the run again if it has failed; sometimes twice.
    async fn retry(&mut self) -> Option<Left> {
        if self.told.retried >= self.case.extras.retries || self.told.retry_refused {
            return Some(Left::Nothing);
        }
        let run = self.told.run?;
        let header = self.header(run).await?;
        let has_failed = matches!(&header, RunState::Ended(end) if end.kind == EndKind::Failed);
        if !has_failed && !self.extra.once_in(8) {
            return Some(Left::Nothing);
        }
        let mut fails_again = Some(true);
        if has_failed {
            self.case.world.mend();
            let journal = self.engine.journal(run).await;
            let journal = self.unless_failed("18: a journal is not read", journal)?;
            fails_again = self.fails_again(journal.records());
        }
        self.told.retries_asked += 1;
        match self.engine.retry(run).await {
            Ok(()) if has_failed && fails_again == Some(true) => {
                let taken = "16: a run that can only fail again is tried again".to_owned();
                self.violations.push(taken);
                self.told.retried += 1;
                Some(Left::Something)
            }
            Err(EngineError::FailsAgain { .. }) if fails_again != Some(false) => {
                Some(Left::Nothing)
            }
            Ok(()) if has_failed => {
                self.told.retried += 1;
                self.told.witness.started(OWN, run);
                Some(Left::Something)
            }
            // It has failed meanwhile.
            Ok(()) => {
                self.told.retried += 1;
                Some(Left::Something)
            }
            Err(_) if self.store.failure().is_some() => None,
            Err(EngineError::NotFailed { .. }) if !has_failed => Some(Left::Nothing),
            Err(EngineError::NotFailed { .. } | EngineError::ChildNotRetried { .. })
                if keeps(&self.case.program) =>
            {
                self.told.retry_refused = true;
                Some(Left::Nothing)
            }
            Err(error) => {
                let refused = format!("16: a failed run is not tried again: {error}");
                self.violations.push(refused);
                self.told.retry_refused = true;
                Some(Left::Nothing)
            }
        }
    }

    /// Says whether a failed run would fail again without running anything. It would if no part of it failed; it would not if
    /// it failed by a part that is of the world. `None`: a part failed, but the run has gone past that or dropped it, or
    /// came to its end with it; which of these is not told by records alone.
    fn fails_again(&self, records: &[Record]) -> Option<bool> {
        let alone = self.case.extras.shaky.is_some_and(|shaky| shaky.alone);
        let failed = failed_parts(records);
        let of_world = failed.iter().any(|part| part != "breaks");
        match (failed.is_empty(), of_world && alone) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    }

    /// Forks one of the runs that are there, at one of its records.
    async fn fork(&mut self) -> Option<()> {
        let mut runs: Vec<RunId> = Vec::new();
        for header in self.engine.runs().limit(1_000).await.ok()?.runs {
            let workflow = &*header.workflow;
            if [interpret::NAME, passes::NAME, onward::NAME].contains(&workflow) {
                runs.push(header.run);
            }
        }
        runs.sort();
        if runs.is_empty() {
            return Some(());
        }
        let origin = self.extra.one_of(&runs);
        let journal = self.engine.journal(origin).await;
        let journal = self.unless_failed("18: a journal is not read", journal)?;
        let records = journal.records();
        let numbers: Vec<u64> = records.iter().map(|record| record.seq).collect();
        let at = self.extra.one_of(&numbers);
        match self.engine.fork(origin).at(at).await {
            Ok(run) => {
                self.told.witness.started(OWN, run);
                self.told.forks.push(Forked { run, origin, at });
                let shared = records.iter().take_while(|record| record.seq < at);
                let shared = shared.filter_map(|record| signal(&record.event));
                let shared = shared.map(|(name, n)| (run, name, n));
                self.told.shared_signals.extend(shared);
                Some(())
            }
            Err(_) if self.store.failure().is_some() => None,
            // The first record is never left out; a run that begins anew forgets more while it goes on; one that was tried again
            // has an end in its middle; what is undone is not undone again.
            Err(EngineError::NoForkPoint { .. })
                if at == 0
                    || is_forgetful(&numbers)
                    || follows_an_end(records, at)
                    || is_undone(records, at) =>
            {
                self.told.forks_refused += 1;
                Some(())
            }
            Err(error) => {
                let refused = format!("7: a fork at record {at} is refused: {error}\n{journal}");
                self.violations.push(refused);
                self.told.forks_refused += 1;
                Some(())
            }
        }
    }

    /// Triggers the schedule, or has it pause for a while.
    async fn look_after_schedule(&mut self) -> Option<()> {
        let schedule = self.engine.schedule_handle(BEAT);
        match self.extra.below(3) {
            0 => self.trigger(&schedule).await,
            1 if self.extra.once_in(2) => {
                self.told.beat.paused = true;
                self.told.beat.was_paused = true;
                self.unless_failed("1: it is not paused", schedule.pause().await)?;
                let while_paused = Duration::from_millis(self.extra.below(100_000));
                tokio::time::sleep(while_paused).await;
                self.unless_failed("1: it is not resumed", schedule.resume().await)?;
                self.told.beat.paused = false;
                Some(())
            }
            _ => {
                let described = schedule.describe().await;
                self.unless_failed("1: the schedule is gone", described)?;
                Some(())
            }
        }
    }

    async fn trigger(&mut self, schedule: &ScheduleHandle) -> Option<()> {
        self.told.beat.triggers_asked += 1;
        let run = schedule.trigger().await;
        let run = self.unless_failed("1: a trigger is refused", run)?;
        self.told.beat.triggers += 1;
        self.told.witness.started(OWN, run);
        Some(())
    }

    /// How many ticks were run.
    async fn runs_of_ticks(&mut self) -> Option<usize> {
        let page = self.engine.runs().workflow(tick::NAME).limit(1_000).await;
        let runs = page.ok()?.runs;
        let keys = runs.iter().filter_map(|run| run.key.as_deref());
        Some(keys.filter(|key| !key.contains("/triggered/")).count())
    }

    async fn header(&mut self, run: RunId) -> Option<RunState> {
        let header = self.store.header(run).await.ok()??;
        Some(header.state)
    }

    /// Writes down what is refused, unless the disk has failed.
    fn unless_failed<T>(&mut self, what: &str, answer: Result<T, EngineError>) -> Option<T> {
        match answer {
            Ok(value) => Some(value),
            Err(_) if self.store.failure().is_some() => None,
            Err(error) => {
                self.violations.push(format!("{what}: {error}"));
                None
            }
        }
    }
}

/// The parts that have failed and count: names of steps, or that it was a child.
fn failed_parts(records: &[Record]) -> Vec<String> {
    let mut failed: Vec<(u64, String)> = Vec::new();
    for record in records {
        match &record.event {
            Event::StepCompleted(step) if !step.outcome.is_success() => {
                failed.push((record.seq, step.name.to_string()));
            }
            Event::ChildFinished(child) if matches!(child.end, End::Failed(_)) => {
                failed.push((record.seq, "a child".to_owned()));
            }
            Event::RunReopened(reopened) => {
                failed.retain(|(seq, _)| !reopened.voided.contains(seq));
            }
            _ => {}
        }
    }
    failed.into_iter().map(|(_, part)| part).collect()
}

/// Says whether records were forgotten.
fn is_forgetful(numbers: &[u64]) -> bool {
    numbers.iter().zip(0..).any(|(seq, place)| *seq != place)
}

/// Says whether the record before this one ended the run.
fn follows_an_end(records: &[Record], at: u64) -> bool {
    records
        .iter()
        .any(|record| record.seq + 1 == at && is_end(&record.event))
}

/// Says whether the run undid what it had done before this record.
fn is_undone(records: &[Record], at: u64) -> bool {
    let mut before = records.iter().take_while(|record| record.seq < at);
    before.any(|record| matches!(record.event, Event::RunClosing(_)))
}

/// The name and the number of a signal.
fn signal(event: &Event) -> Option<(u64, u64)> {
    match event {
        Event::SignalReceived(signal) => {
            let key = signal.key.as_ref()?;
            Some((signal.name.parse().ok()?, key.parse().ok()?))
        }
        _ => None,
    }
}

/// What somebody knows of the schedule.
#[derive(Debug, Default)]
pub(super) struct Beats {
    /// Somebody has it paused, or tried to.
    pub(super) paused: bool,
    pub(super) was_paused: bool,
    pub(super) triggers_asked: usize,
    pub(super) triggers: usize,
    /// All its ticks are settled.
    pub(super) is_over: bool,
}

/// Says whether two runs of ticks may go on at the same time.
pub(super) fn side_by_side(overlap: Overlap) -> bool {
    matches!(overlap, Overlap::Allow | Overlap::CancelPrevious)
}

/// Seconds since the beginning of time, for comparison.
pub(super) fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
