//! Which failures of a run no longer count when it is tried again.
//!
//! Owns the choice. It is not guessed: the code is replayed without them, and must still ask for everything else that is
//! recorded and make every call that it made before, with the same input. A call that was made may have done something
//! under its id, whether it completed, failed or was dropped with its body under way. So **a failure that the code has gone
//! past stands**: if it were taken out, what came of it would come again with another input under the same id, or not
//! at all. Runs and writes nothing.

use std::sync::Arc;

use super::begun::Begun;
use super::driver::{AfterCrash, Probed};
use super::progress::Progress;
use super::{EngineError, RunEntry, Shared};
use crate::id_map::IdSet;
use crate::ids::StepId;
use crate::journal::{Chain, End, Event, JournalError, Record, line_of};
use crate::replay::{History, MadeCalls};
use crate::store::Epoch;

/// How often a run is replayed to find out what it can do without. Most take two replays; a loop whose thousands of failures
/// the code has all gone past would take one each. What is not decided by then stands: the earliest failures.
const MOST_REPLAYS: usize = 64;

/// How many failed steps are named when a retry is refused.
const MOST_NAMED: usize = 5;

/// Chooses the failed outcomes that no longer count, as many as the code can do without.
///
/// # Errors
///
/// If the code does not fit the journal, or comes to the same failure again without running anything.
pub(super) fn voided_failures(
    shared: &Arc<Shared>,
    chain: &Chain,
    records: &[Record],
) -> Result<Vec<u64>, EngineError> {
    let run = chain.run();
    let probe = |voided: &[u64]| probe(shared, chain, records, voided);
    let usual = probe(&[])?.map_err(|report| EngineError::Unfit { run, report })?;
    let failed = failed_outcomes(records, &usual);
    let usual = Usual::of(usual, records);
    // Rather without a failure more than with a child that was cancelled because of it.
    for dropped in [Dropped::Stay, Dropped::MayBeAwaited] {
        if dropped == Dropped::Stay && usual.cancelled.is_empty() {
            continue; // that is the same
        }
        let (voided, fails) = choose(&usual, &failed, dropped, probe)?;
        if !fails {
            return Ok(voided);
        }
    }
    let report = why_it_fails(records, &failed);
    Err(EngineError::FailsAgain { run, report })
}

/// What becomes of children that the code dropped, which cancelled them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dropped {
    /// They are dropped again: it was one more thing that came of a failure.
    Stay,
    /// They may be waited for, and give that they were cancelled.
    MayBeAwaited,
}

/// What a replay with all failures came to.
struct Usual {
    left_over: usize,
    fails: bool,
    cancelled: IdSet<StepId>,
    /// The calls that have to be made whatever is taken out.
    made: MadeCalls,
}

impl Usual {
    /// All calls that the code made before the run failed may have had an effect.
    ///
    /// If it fails as it did, those are all that it makes. If its code was changed and goes on where it failed, it may make calls
    /// there that nobody has made before: only what came before the last record counts then, and what has a record.
    fn of(probed: Probed, records: &[Record]) -> Self {
        let mut made = probed.made;
        if !probed.failed {
            let recorded = recorded_calls(records);
            made.retain(|call, made| made.after < probed.passed || recorded.contains(&call));
        }
        Self {
            left_over: probed.left_over,
            fails: probed.failed,
            cancelled: probed.cancelled,
            made,
        }
    }

    fn is_kept_by(&self, other: &Probed, dropped: Dropped) -> bool {
        self.left_over == other.left_over
            && self.made.are_in(&other.made)
            && (dropped == Dropped::MayBeAwaited || self.cancelled.is_subset(&other.cancelled))
    }
}

/// Takes out as many failures as the code can do without. Says which, in order, and whether it fails without them too.
fn choose(
    usual: &Usual,
    failed: &[u64],
    dropped: Dropped,
    probe: impl Fn(&[u64]) -> Result<Result<Probed, Box<str>>, EngineError>,
) -> Result<(Vec<u64>, bool), EngineError> {
    let (mut voided, mut fails) = (Vec::new(), usual.fails);
    // All of them first, and what does not fit as a whole in halves, the later one first.
    let mut untried = vec![failed];
    for _ in 0..MOST_REPLAYS {
        let Some(some) = untried.pop().filter(|some| !some.is_empty()) else {
            break;
        };
        let more = [&voided[..], some].concat();
        match probe(&more)? {
            Ok(probed) if usual.is_kept_by(&probed, dropped) => {
                (voided, fails) = (more, probed.failed);
            }
            _ if some.len() > 1 => untried.extend(<[_; 2]>::from(some.split_at(some.len() / 2))),
            _ => {}
        }
    }
    voided.sort_unstable();
    Ok((voided, fails))
}

/// The failed outcomes that still count, in order. Ends of children that the code did not want are none.
fn failed_outcomes(records: &[Record], usual: &Probed) -> Vec<u64> {
    let mut failed = Vec::new();
    for record in records {
        match &record.event {
            Event::StepCompleted(step) if !step.outcome.is_success() => {
                failed.push(record.seq);
            }
            Event::ChildFinished(child)
                if matches!(child.end, End::Failed(_)) && !usual.unwanted.contains(&child.call) =>
            {
                failed.push(record.seq);
            }
            Event::RunReopened(reopened) => failed.retain(|seq| !reopened.voided.contains(seq)),
            _ => {}
        }
    }
    failed
}

/// The calls that have a record, whatever became of them.
fn recorded_calls(records: &[Record]) -> IdSet<StepId> {
    let mut calls = IdSet::default();
    for record in records {
        match &record.event {
            Event::StepCompleted(step) => drop(calls.insert(step.step)),
            Event::AttemptFailed(attempt) => drop(calls.insert(attempt.step)),
            Event::StepIntent(intent) => drop(calls.insert(intent.step)),
            Event::TimerSet(timer) => drop(calls.insert(timer.timer)),
            Event::ChildStarted(child) => drop(calls.insert(child.call)),
            Event::MessagePushed(message) => drop(calls.insert(message.call)),
            Event::RunRecovered(recovered) => calls.extend(&recovered.in_flight),
            _ => {}
        }
    }
    calls
}

/// Says why a run can only fail again.
fn why_it_fails(records: &[Record], failed: &[u64]) -> Box<str> {
    let standing = records.iter().filter(|record| failed.contains(&record.seq));
    let mut names: Vec<String> = standing
        .map(|record| match &record.event {
            Event::StepCompleted(step) => format!("`{}` (record {})", step.name, record.seq),
            _ => format!("a child (record {})", record.seq),
        })
        .collect();
    if names.is_empty() {
        return "no step of it failed, the workflow did".into();
    }
    let more = names.len().saturating_sub(MOST_NAMED);
    names.truncate(MOST_NAMED);
    let and_more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "it has gone past the failure of {}{and_more}, and what it did because of that may have had its effect",
        names.join(", ")
    )
    .into()
}

/// Replays a run without some of its outcomes.
fn probe(
    shared: &Arc<Shared>,
    chain: &Chain,
    records: &[Record],
    voided: &[u64],
) -> Result<Result<Probed, Box<str>>, EngineError> {
    let run = chain.run();
    let again = records.iter().cloned();
    let history = History::read(again.map(Ok::<_, JournalError>))?;
    let mut history = history.ok_or(EngineError::UnknownRun(run))?;
    history.without(voided);
    history.past.note_calls();
    // Nothing is written under this epoch: the run has ended.
    let begun = Begun::again(
        history,
        Epoch::FIRST,
        chain.clone(),
        (Vec::new(), 0),
        AfterCrash::default(),
    );
    let begun = begun.in_line(line_of(run, records));
    let entry = RunEntry::new(Progress::Active);
    Ok(match begun.into_driver(shared, &entry) {
        Ok(driver) => driver.probe(),
        Err(obstacle) => Err(obstacle.into_parking(&shared.services, run).report),
    })
}
