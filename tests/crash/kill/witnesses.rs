//! Three witnesses compared: what children were told, what the journals hold, what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use workflow_runtime::journal::{Event, Journal};
use workflow_runtime::store::{RunHeader, RunState};
use workflow_runtime::testing::check_invariants;
use workflow_runtime::{Engine, Result, StepId};

use crate::child::{LEDGER, expected, open, result};
use crate::errands;
use crate::ledger::{self, Effect};
use crate::parent::Told;

/// Steps of one run, the drawing of the nonce included.
const STEPS: usize = 5;

/// The effect that is repeated without any kill: its first attempt may fail after it.
const FLAKY: &str = "credit";

/// What there was to compare.
#[derive(Debug, Default)]
pub(crate) struct Found {
    runs: usize,
    /// Errands, each with its children.
    errands: usize,
    records: u64,
    /// Recoveries that had to run steps again.
    recoveries: usize,
    /// Steps that were executed more than once, and only because of a kill.
    repeated: usize,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            runs,
            errands,
            records,
            recoveries,
            repeated,
        } = self;
        write!(
            f,
            "{runs} transfers, {errands} errands, {records} records, {recoveries} recoveries, {repeated} steps executed \
             again"
        )
    }
}

/// Panics unless all three agree.
pub(crate) fn compare(dir: &Path, told: &Told) -> Found {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let found = runtime.block_on(async {
        let engine = open(dir).await?;
        let mut found = Found::default();
        let effects = ledger::read(dir, LEDGER);
        check_told(&engine, told, &effects).await?;
        check_journals(&engine, &effects, &mut found).await?;
        found.errands = errands::compare(&engine, dir, told).await?;
        assert_eq!(check_invariants(&engine).await?, []);
        let verified = engine.verify().await?;
        assert!(verified.damaged.is_empty(), "{:?}", verified.damaged);
        let runs = found.runs as u64 + found.errands as u64 * (1 + errands::PARCELS);
        assert_eq!(verified.runs, runs);
        found.records = verified.records;
        engine.shutdown().await?;
        Result::<Found>::Ok(found)
    });
    found.unwrap_or_else(|error| panic!("{error:#}"))
}

/// Every acknowledged start has ended with the acknowledged result, which is the right one, and
/// the ledger has its effects: each under one id, with one value.
async fn check_told(
    engine: &Engine,
    told: &Told,
    effects: &BTreeMap<StepId, Effect>,
) -> Result<()> {
    let mut by_number: BTreeMap<u64, Vec<&Effect>> = BTreeMap::new();
    for effect in effects.values() {
        by_number.entry(effect.number).or_default().push(effect);
    }
    for (number, run) in &told.started {
        let now = result(engine, *run).await?;
        assert_eq!(told.finished.get(number), Some(&now), "transfer {number}");
        let (planned, right) = expected(now.nonce);
        assert_eq!(now, right, "transfer {number}");
        let (drawn, booked): (Vec<_>, Vec<_>) = by_number
            .remove(number)
            .unwrap_or_default()
            .into_iter()
            .partition(|effect| effect.what == "draw");
        assert_eq!(drawn.len(), 1, "transfer {number} drew under several ids");
        assert!(
            drawn[0].values.contains(&now.nonce),
            "transfer {number} went on with a nonce that nobody drew"
        );
        let done: BTreeSet<_> = booked
            .iter()
            .flat_map(|effect| effect.values.iter().map(|value| (&*effect.what, *value)))
            .collect();
        assert_eq!(done, BTreeSet::from(planned), "transfer {number}");
        assert_eq!(booked.len(), planned.len(), "transfer {number}");
    }
    Ok(())
}

/// Every run in the store has ended, with one outcome per step, each backed by an effect.
async fn check_journals(
    engine: &Engine,
    effects: &BTreeMap<StepId, Effect>,
    found: &mut Found,
) -> Result<()> {
    let mut outcomes = BTreeSet::new();
    for header in all_runs(engine).await? {
        if &*header.workflow != "transfer" {
            continue;
        }
        let ended = matches!(header.state, RunState::Ended(_));
        assert!(ended, "{} is {:?}", header.run, header.state);
        let journal = engine.journal(header.run).await?;
        check_journal(&journal, &mut outcomes, found);
        found.runs += 1;
    }
    assert_eq!(outcomes.len(), found.runs * STEPS);
    let done: BTreeSet<StepId> = effects.keys().copied().collect();
    assert_eq!(done, outcomes, "effects and outcomes are of the same steps");
    found.repeated = effects
        .values()
        .filter(|effect| effect.values.len() > 1 && effect.what != FLAKY)
        .count();
    Ok(())
}

fn check_journal(journal: &Journal, outcomes: &mut BTreeSet<StepId>, found: &mut Found) {
    let mut fired = BTreeSet::new();
    for record in journal.records() {
        match &record.event {
            Event::StepCompleted(step) => {
                assert!(outcomes.insert(step.step), "two outcomes:\n{journal}");
            }
            Event::TimerFired(timer) => {
                assert!(fired.insert(timer.timer), "fired twice:\n{journal}");
            }
            Event::RunRecovered(_) => found.recoveries += 1,
            _ => {}
        }
    }
    let last = journal.records().last().map(|record| &record.event);
    assert!(matches!(last, Some(Event::RunCompleted(_))), "{journal}");
}

pub(crate) async fn all_runs(engine: &Engine) -> Result<Vec<RunHeader>> {
    let mut all = Vec::new();
    let mut page = engine.runs().await?;
    loop {
        all.append(&mut page.runs);
        match page.next {
            Some(next) => page = engine.runs().after(next).await?,
            None => return Ok(all),
        }
    }
}

impl Found {
    /// Panics if the kills found nothing to break.
    pub(crate) fn assert_something_was_at_stake(&self, kills: u64) {
        assert!(
            self.recoveries as u64 >= kills,
            "too few recoveries: {self}"
        );
        assert!(self.errands as u64 >= kills / 5, "too few errands: {self}");
        assert!(self.repeated > 0, "no kill met a step in flight: {self}");
    }
}
