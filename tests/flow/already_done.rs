//! A conflict that means "the first attempt worked" is success: the step gives the value, and its record
//! says how it came about.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use workflow_runtime::journal::Outcome;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore};
use workflow_runtime::{
    Engine, EngineBuilder, Error, Result, ResultExt as _, RunError, StepId, get_step_metadata,
    step, workflow,
};
use workflow_tests::{Ledger, steps, survive, value};

/// Another side that does not answer a known key with its first answer, but with a conflict.
#[derive(Default)]
struct Bank(Mutex<BTreeMap<StepId, u64>>);

/// What it refuses with.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Refused {
    /// The key was used before; this is what it was used for.
    Conflict {
        cents: u64,
    },
    NoMoney,
}

impl Bank {
    fn charge(&self, key: StepId, cents: u64) -> Result<u64, Refused> {
        if cents > 1000 {
            return Err(Refused::NoMoney);
        }
        let mut charges = self.0.lock().expect("no panic under the lock");
        match charges.insert(key, cents) {
            Some(cents) => Err(Refused::Conflict { cents }),
            None => Ok(cents),
        }
    }

    fn total(&self) -> u64 {
        self.0
            .lock()
            .expect("no panic under the lock")
            .values()
            .sum()
    }
}

/// Is charged twice by its first attempt: the answer to the first request is lost.
#[step]
async fn typed(#[resource] bank: &Bank, cents: u64, lost: bool) -> Result<u64, Refused> {
    let key = get_step_metadata().step_id;
    if lost {
        let _answer = bank.charge(key, cents);
    }
    bank.charge(key, cents)
        .or_already_done(|refused| match refused {
            Refused::Conflict { cents } => Some(*cents),
            Refused::NoMoney => None,
        })
}

#[step]
async fn untyped(#[resource] bank: &Bank, cents: u64, lost: bool) -> Result<u64> {
    let key = get_step_metadata().step_id;
    if lost {
        let _answer = bank.charge(key, cents);
    }
    match bank.charge(key, cents) {
        Ok(cents) => Ok(cents),
        Err(Refused::Conflict { cents }) => {
            let done = Error::already_done(cents);
            Err(done.context("the bank knows the key"))?
        }
        Err(Refused::NoMoney) => Err(Error::fatal("no money")),
    }
}

#[workflow]
async fn pay(cents: u64, lost: bool) -> Result<(u64, u64)> {
    let one = typed(cents, lost).await;
    let one = one.map_err(|refused| Error::fatal(format!("{refused:?}")))?;
    let two = untyped(cents, lost).await?;
    Ok((one, two))
}

#[step]
async fn mistaken() -> Result<u64> {
    Err(Error::already_done("a text"))
}

#[workflow]
async fn mistake() -> Result<u64> {
    mistaken().await
}

#[step(blocking, undo = unblock)]
fn block(key: String) -> Result<String> {
    Err::<String, String>(format!("{key} is blocked"))
        .or_already_done(|first| Some(first.clone()))
        .map_err(Error::new)
}

#[step]
async fn unblock(#[resource] ledger: &Ledger, _key: String, first: Option<String>) -> Result<()> {
    ledger.act(&first.unwrap_or_else(|| "nothing".into()));
    Ok(())
}

/// Fails the first time it is tried.
#[step(max_attempts = 1)]
async fn moody(#[resource] ledger: &Ledger) -> Result<u64> {
    ledger.act("tried");
    match ledger.asked() {
        1 => Err(Error::fatal("not yet")),
        _ => Ok(7),
    }
}

#[workflow]
async fn booked() -> Result<u64> {
    block("seat".into()).await?;
    moody().await
}

#[workflow]
async fn resumed() -> Result<u64> {
    Ok(untyped(500, true).await? + moody().await?)
}

fn engine(bank: &Arc<Bank>) -> EngineBuilder {
    Engine::builder()
        .register::<pay>()
        .register::<mistake>()
        .resource_arc(bank.clone())
}

#[tokio::test]
async fn a_conflict_that_means_done_gives_its_value_and_is_recorded_as_such() {
    let bank = Arc::new(Bank::default());
    let engine = engine(&bank).open_in_memory().await.expect("opens");
    let run = engine.start(pay(500, true)).await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), (500, 500));
    assert_eq!(bank.total(), 1000);

    let journal = engine.journal(run.id()).await.expect("reads");
    let steps = steps(&journal);
    for step in &steps {
        assert!(matches!(step.outcome, Outcome::AlreadyDone(_)), "{step:?}");
        assert_eq!((value::<u64>(step), step.attempts), (500, 1));
    }
    let shown = journal.to_string();
    assert_eq!(shown.matches("had been done already").count(), 2, "{shown}");
}

#[tokio::test]
async fn what_was_not_done_already_is_recorded_as_before() {
    let bank = Arc::new(Bank::default());
    let engine = engine(&bank).open_in_memory().await.expect("opens");
    let run = engine.start(pay(500, false)).await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), (500, 500));
    let journal = engine.journal(run.id()).await.expect("reads");
    let all_plain = |step: &_| matches!(step, Outcome::Ok(_));
    assert!(steps(&journal).iter().all(|step| all_plain(&step.outcome)));
    assert!(!journal.to_string().contains("already"));
}

#[tokio::test]
async fn another_error_of_the_other_side_stays_an_error() {
    let bank = Arc::new(Bank::default());
    let engine = engine(&bank).open_in_memory().await.expect("opens");
    let run = engine.start(pay(2000, false)).await.expect("starts");
    match run.result().await {
        Err(RunError::Failed(error)) => assert_eq!(error.to_string(), "NoMoney"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_crash_at_every_write_charges_once_and_gives_the_same_value() {
    let clean = {
        let bank = Arc::new(Bank::default());
        let (result, store) = survive(|| engine(&bank), || pay(500, false), []).await;
        assert_eq!(result.expect("ends well"), (500, 500));
        store.writes()
    };
    assert!(clean >= 3, "{clean}");
    let mut done_already = 0;
    for write in 0..clean {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let bank = Arc::new(Bank::default());
            let plan = FaultPlan::at(write, fault);
            let (result, store) = survive(|| engine(&bank), || pay(500, false), [plan]).await;
            assert_eq!(result.expect("ends well"), (500, 500), "{write} {fault:?}");
            assert_eq!(bank.total(), 1000, "{write} {fault:?}");
            done_already += already_done(&bank, store).await;
        }
    }
    // A crash between the charge and its record leaves the bank with a key that it knows.
    assert!(done_already >= 2, "{done_already}");
}

/// How many outcomes of the only run say that the work had been done already.
async fn already_done(bank: &Arc<Bank>, store: MemoryStore) -> usize {
    let store = store.reopen(workflow_runtime::store::memory::Surviving::Synced);
    let engine = engine(bank).open_with(store).await.expect("opens");
    let run = engine.runs().await.expect("lists").runs[0].run;
    let journal = engine.journal(run).await.expect("reads");
    let done = |step: &&workflow_runtime::journal::StepCompleted| {
        matches!(step.outcome, Outcome::AlreadyDone(_))
    };
    steps(&journal).iter().filter(done).count()
}

#[tokio::test]
async fn its_value_is_read_back_from_a_disk_by_the_next_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let bank = Arc::new(Bank::default());
    for _process in 0..2 {
        let engine = engine(&bank).open(dir.path().join("store")).await;
        let engine = engine.expect("opens");
        let run = engine.start(pay(500, true)).key("order").await;
        let run = run.expect("starts");
        assert_eq!(run.result().await.expect("ends well"), (500, 500));
        let journal = engine.journal(run.id()).await.expect("reads");
        assert_eq!(journal.to_string().matches("already").count(), 2);
        assert_eq!(bank.total(), 1000);
        engine.shutdown().await.expect("stops");
    }
}

#[tokio::test]
async fn a_value_of_another_type_fails_the_step_and_names_the_type() {
    let bank = Arc::new(Bank::default());
    let engine = engine(&bank).open_in_memory().await.expect("opens");
    let run = engine.start(mistake()).await.expect("starts");
    match run.result().await {
        Err(RunError::Failed(error)) => {
            assert!(error.is_fatal());
            let text = error.to_string();
            assert!(
                text.contains("`mistaken`") && text.contains("`u64`"),
                "{text}"
            );
            assert!(!text.contains("a text"), "a payload is in an error: {text}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_had_been_done_already_is_undone_with_its_value() {
    let ledger = Ledger::shared();
    let builder = Engine::builder().register::<booked>();
    let builder = builder.resource_arc(ledger.clone());
    let engine = builder.open_in_memory().await.expect("opens");
    let run = engine.start(booked()).await.expect("starts");
    run.result().await.expect_err("fails");
    assert_eq!(ledger.effects(), ["seat is blocked", "tried"]);
    let journal = engine.journal(run.id()).await.expect("reads");
    let first = &steps(&journal)[0];
    assert_eq!(&*first.name, "block");
    assert!(
        matches!(first.outcome, Outcome::AlreadyDone(_)),
        "{first:?}"
    );
}

#[tokio::test]
async fn a_retry_of_the_run_does_not_do_it_again() {
    let (bank, ledger) = (Arc::new(Bank::default()), Ledger::shared());
    let builder = Engine::builder().register::<resumed>();
    let builder = builder.resource_arc(ledger).resource_arc(bank.clone());
    let engine = builder.open_in_memory().await.expect("opens");
    let run = engine.start(resumed()).await.expect("starts");
    run.result().await.expect_err("fails");
    run.retry().await.expect("is retried");
    assert_eq!(run.result().await.expect("ends well"), 507);
    let journal = engine.journal(run.id()).await.expect("reads");
    let names: Vec<_> = steps(&journal).into_iter().map(|step| step.name).collect();
    assert_eq!(
        names,
        ["untyped".into(), "moody".into(), "moody".into()] as [Box<str>; 3]
    );
}
