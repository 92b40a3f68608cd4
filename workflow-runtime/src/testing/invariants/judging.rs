//! What can be told from an engine and its store alone.
//!
//! Owns one look at all runs of a store, and the judgements that need nothing else. It changes nothing; to let tasks run that are on their
//! way, it yields.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::check_journal;
use super::rule::{Invariant, Violation};
use crate::clock::Timestamp;
use crate::engine::{Engine, EngineError};
use crate::ids::StepId;
use crate::journal::{Event, Journal, JournalError, Record};
use crate::store::{RunHeader, RunOrder, RunQuery, Store};

/// Runs that are read at a time.
pub(super) const PAGE: usize = 1_000;

/// How often tasks may run before a run that nobody seems to look after is believed to be an orphan.
const PATIENCE: usize = 256;

/// All that is there.
pub(super) struct State {
    /// The runs of the engine's namespace, oldest first.
    pub(super) runs: Vec<Run>,
    /// Journals that cannot be trusted, of all namespaces.
    pub(super) damaged: Vec<JournalError>,
    pub(super) now: Timestamp,
}

/// One run.
pub(super) struct Run {
    pub(super) header: RunHeader,
    /// `None` if it is damaged.
    pub(super) journal: Option<Journal>,
    /// The records that are kept, by number.
    pub(super) frames: BTreeMap<u64, blake3::Hash>,
}

/// Reads all runs.
pub(super) async fn look(engine: &Engine) -> Result<State, EngineError> {
    let store = engine.store();
    store.check().await?;
    let mut state = State {
        runs: Vec::new(),
        damaged: Vec::new(),
        now: engine.clock_now(),
    };
    for header in headers(&**store).await? {
        let (kept, read) = engine.evidence(header.clone()).await?;
        if read.is_err() && store.header(header.run).await?.is_none() {
            continue; // deleted since it was listed
        }
        let journal = read.map_err(|error| state.damaged.push(error)).ok();
        if *header.namespace != *engine.namespace() {
            continue;
        }
        let numbers = (0..2).chain(kept.kept_from.max(2)..);
        let hashes = kept.frames.iter().map(|frame| blake3::hash(frame));
        state.runs.push(Run {
            header,
            journal,
            frames: numbers.zip(hashes).collect(),
        });
    }
    Ok(state)
}

/// Lists all runs of a store, oldest first.
pub(super) async fn headers(store: &dyn Store) -> Result<Vec<RunHeader>, EngineError> {
    let mut query = RunQuery {
        order: RunOrder::OldestFirst,
        limit: PAGE,
        ..RunQuery::default()
    };
    let mut all = Vec::new();
    loop {
        let page = store.list(query.clone()).await?;
        let is_last = page.len() < PAGE;
        query.after = page.last().map(RunHeader::position);
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// Chains that do not verify.
pub(super) fn chains(state: &State) -> Vec<Violation> {
    let broken =
        |error: &JournalError| Violation::new(error.run(), Invariant::Chain, error.to_string());
    state.damaged.iter().map(broken).collect()
}

/// Journals that break a rule by themselves.
pub(super) async fn journals(
    engine: &Engine,
    state: &State,
) -> Result<Vec<Violation>, EngineError> {
    let mut violations = Vec::new();
    let readable = state.runs.iter().filter_map(|run| run.journal.as_ref());
    for journal in readable {
        if !check_journal(journal).is_empty() {
            // A run that ended between the reading of its header and of its records is not at fault.
            violations.extend(check_journal(&engine.journal(journal.header().run).await?));
        }
    }
    Ok(violations)
}

/// Runs that nobody looks after.
pub(super) async fn orphans(engine: &Engine, state: &State) -> Result<Vec<Violation>, EngineError> {
    let mut violations = Vec::new();
    let open = state.runs.iter().filter(|run| run.header.end().is_none());
    for run in open.filter(|run| run.journal.is_some()) {
        let run = run.header.run;
        let mut why = engine.orphaned(run).await?;
        for _ in 0..PATIENCE {
            if why.is_none() {
                break;
            }
            tokio::task::yield_now().await;
            why = engine.orphaned(run).await?;
        }
        violations.extend(why.map(|why| Violation::new(run, Invariant::NoOrphan, why)));
    }
    Ok(violations)
}

/// Takes the steps whose outcome is in force into a set, and those out that may run again.
pub(super) fn settle(journal: &Journal, settled: &mut BTreeSet<StepId>) {
    let mut by_number = HashMap::new();
    // What a fork shares is its origin's, which may have been tried again since.
    let is_fork = |record: &Record| matches!(record.event, Event::RunForked(_));
    let records = journal.records();
    let own = records.iter().rposition(is_fork).unwrap_or_default();
    for record in &records[own..] {
        match &record.event {
            Event::StepCompleted(step) => {
                by_number.insert(record.seq, step.step);
                settled.insert(step.step);
            }
            Event::StaleOutcomeDiscarded(stale) => {
                settled.remove(&stale.step);
            }
            Event::RunReopened(reopened) => {
                for step in reopened.voided.iter().filter_map(|seq| by_number.get(seq)) {
                    settled.remove(step);
                }
            }
            _ => {}
        }
    }
}
