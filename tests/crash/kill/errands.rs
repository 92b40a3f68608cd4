//! The second workload of the process that is killed: signals, children, undo, checkpoints, sleeping runs,
//! and a step that runs at most once.
//!
//! An errand hears three parcels, one in each pass. Each is carried by a child, which sleeps long enough to
//! leave memory; every third one fails then and undoes what it did.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use workflow_runtime::store::RunState;
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, Sent, StepId, checkpoint, get_step_metadata,
    sleep, step, wait_for, workflow,
};

use crate::child::Line;
use crate::ledger::{self, Effect, Ledger};
use crate::parent::Told;
use crate::witnesses::all_runs;

/// Every this many transfers, there is an errand.
const EVERY: u64 = 4;

/// Parcels of an errand.
pub(crate) const PARCELS: u64 = 3;

/// The ledger of errands.
const FILE: &str = "errands";

/// Where errands have their effects.
struct Town(Ledger);

fn is_refused(number: u64, parcel: u64) -> bool {
    (number / EVERY + parcel).is_multiple_of(3)
}

impl Town {
    fn act(&self, number: u64, what: &str, parcel: u64) {
        let step = get_step_metadata().step_id;
        self.0.write(step, number, what, parcel);
    }
}

#[step(undo = unload)]
async fn load(#[resource] town: &Town, number: u64, parcel: u64) -> Result<()> {
    town.act(number, "load", parcel);
    Ok(())
}

#[step]
async fn unload(
    #[resource] town: &Town,
    number: u64,
    parcel: u64,
    _loaded: Option<()>,
) -> Result<()> {
    town.act(number, "unload", parcel);
    Ok(())
}

#[step(at_most_once)]
async fn stamp(#[resource] town: &Town, number: u64, parcel: u64) -> Result<()> {
    town.act(number, "stamp", parcel);
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(())
}

#[workflow]
async fn carry(number: u64, parcel: u64) -> Result<u64> {
    load(number, parcel).await?;
    sleep(Duration::from_millis(10)).await;
    match is_refused(number, parcel) {
        true => Err(Error::fatal("nobody at home")),
        false => Ok(parcel),
    }
}

#[workflow]
async fn errand(number: u64, heard: Vec<(u64, bool)>) -> Result<Vec<(u64, bool)>> {
    let mut heard = heard;
    let parcel = wait_for::<u64>("parcel").await?;
    if let Err(error) = stamp(number, parcel).await {
        error.interrupted().ok_or(error)?;
    }
    let carried = carry(number, parcel).await;
    heard.push((parcel, carried.is_ok()));
    if heard.len() as u64 == PARCELS {
        return Ok(heard);
    }
    checkpoint(&(number, heard)).await
}

pub(crate) fn register(builder: EngineBuilder, dir: &Path) -> Result<EngineBuilder> {
    Ok(builder
        .register::<errand>()
        .register::<carry>()
        .evict_after(Duration::from_millis(3))
        .resource(Town(Ledger::open(dir, FILE)?)))
}

/// Runs the errand that belongs to a transfer, if one does.
pub(crate) async fn run(engine: &Engine, number: u64) -> Result<()> {
    if !number.is_multiple_of(EVERY) {
        return Ok(());
    }
    let call = errand(number, Vec::new());
    let run = engine.start(call).key(format!("errand-{number}")).await?;
    for parcel in 0..PARCELS {
        match run.signal("parcel", &parcel).key(parcel).await {
            Ok(sent) => Line::Sent(number, parcel, sent == Sent::Accepted).say(),
            Err(EngineError::Ended(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let heard = run.result().await?;
    let right: Vec<_> = (0..PARCELS)
        .map(|parcel| (parcel, !is_refused(number, parcel)))
        .collect();
    if heard != right {
        return Err(Error::fatal(format!("errand {number} heard {heard:?}")));
    }
    Line::Delivered(number).say();
    Ok(())
}

/// Panics unless every errand whose parcels were acknowledged has ended with all of them, every effect has one
/// id, and what runs at most once did.
pub(crate) async fn compare(engine: &Engine, dir: &Path, told: &Told) -> Result<usize> {
    let asked: BTreeSet<u64> = told.sent.iter().map(|(number, _)| *number).collect();
    for number in &asked {
        assert!(told.delivered.contains(number), "errand {number} is lost");
    }
    let effects = ledger::read(dir, FILE);
    check_effects(&effects, &told.delivered);
    let mut runs: BTreeMap<Box<str>, usize> = BTreeMap::new();
    for header in all_runs(engine).await? {
        let ended = matches!(header.state, RunState::Ended(_));
        assert!(ended, "{} is {:?}", header.run, header.state);
        *runs.entry(header.workflow.as_ref().into()).or_default() += 1;
    }
    let errands = runs.get("errand").copied().unwrap_or_default();
    let carried = runs.get("carry").copied().unwrap_or_default();
    assert_eq!(carried as u64, errands as u64 * PARCELS, "children");
    assert_eq!(errands, told.delivered.len());
    Ok(errands)
}

fn check_effects(effects: &BTreeMap<StepId, Effect>, delivered: &BTreeSet<u64>) {
    let mut done: BTreeMap<(u64, &str, u64), usize> = BTreeMap::new();
    for (step, effect) in effects {
        let parcels: BTreeSet<u64> = effect.values.iter().copied().collect();
        assert_eq!(parcels.len(), 1, "{step} was used for {effect:?}");
        if effect.what == "stamp" {
            assert_eq!(effect.values.len(), 1, "{step} ran twice: {effect:?}");
        }
        let what = (effect.number, &*effect.what, effect.values[0]);
        *done.entry(what).or_default() += 1;
    }
    for ((number, what, parcel), ids) in &done {
        assert_eq!(*ids, 1, "{what} of {number}/{parcel} has several ids");
    }
    for number in delivered {
        for parcel in 0..PARCELS {
            let has = |what| done.contains_key(&(*number, what, parcel));
            assert!(has("load"), "{number}/{parcel}");
            let undone = has("unload");
            assert_eq!(undone, is_refused(*number, parcel), "{number}/{parcel}");
        }
    }
}
