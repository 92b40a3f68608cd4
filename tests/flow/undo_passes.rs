//! Undoing across checkpoints: what earlier passes did is undone after what the last one did, whatever crashes
//! and whoever finds the functions.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use workflow_runtime::journal::{Event, Journal};
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Elapsed, Engine, EngineBuilder, EngineError, Error, Result, RunError, RunHandle, RunStatus,
    abort, checkpoint, step, undo_with, wait_for, workflow,
};
use workflow_tests::Ledger;

/// Longer than anything takes that does not hang.
const LONG: Duration = Duration::from_secs(60);

#[step(undo = release)]
async fn reserve(#[resource] ledger: &Ledger, room: &str) -> Result<usize> {
    ledger.act(&format!("reserve {room}"));
    Ok(room.len())
}

#[step(backoff = "1ms..2ms")]
async fn release(#[resource] ledger: &Ledger, room: String, taken: Option<usize>) -> Result<()> {
    ledger.act(&format!("release {room} {taken:?}"));
    match &*room {
        "stuck" => Err(Error::fatal("cannot be released")),
        _ => Ok(()),
    }
}

/// Three passes, each with steps to undo; then it ends in the way it was told.
#[workflow]
async fn touring(night: u32, how: String) -> Result<u32> {
    reserve(&format!("{night}a")).await?;
    if night != 1 {
        reserve(&format!("{night}b")).await?;
    }
    if night < 2 {
        checkpoint(&(night + 1, how)).await;
    }
    match &*how {
        "fail" => Err(Error::fatal("no money")),
        "abort" => abort("edge expired").await,
        "cancel" => wait_for::<()>("never").await.map(|()| 0),
        _ => Ok(night),
    }
}

const UNDONE: [&str; 5] = [
    "release 2b Some(2)",
    "release 2a Some(2)",
    "release 1a Some(2)",
    "release 0b Some(2)",
    "release 0a Some(2)",
];

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<touring>()
        .register::<waiting>()
        .register::<racing>()
        .register::<keeping>()
        .register::<homonyms>()
        .register::<hoarding>()
        .register::<stumbling>()
        .resource_arc(ledger.clone())
}

fn undone(ledger: &Ledger) -> Vec<String> {
    let all = ledger.in_order().into_iter();
    all.filter(|effect| effect.starts_with("release")).collect()
}

async fn until(what: impl Fn() -> bool) {
    let waited = timeout(LONG, async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    waited.await.expect("comes about");
}

/// Runs `touring` to its end through one crash: how it ended, what was undone in order, how many writes.
async fn through(how: &str, plan: FaultPlan) -> (String, Vec<String>, u64) {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = engine(&ledger).open_with(store.clone()).await;
            let engine = engine.expect("opens");
            let run = engine.start(touring(0, how.into())).key("t").await;
            let run = run.expect("starts");
            if how == "cancel" {
                until(|| ledger.effects().contains(&"reserve 2b".to_owned())).await;
                match run.cancel().await {
                    Ok(()) | Err(EngineError::Ended(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            run.result()
                .await
                .expect_err("does not complete")
                .to_string()
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            error = timeout(LONG, living) => {
                return (error.expect("does not hang"), undone(&ledger), store.writes());
            }
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_run_that_does_not_complete_undoes_the_steps_of_all_its_passes_last_done_first() {
    for how in ["fail", "abort", "cancel"] {
        let (_, undone, _) = through(how, FaultPlan::none()).await;
        assert_eq!(undone, UNDONE, "{how}");
    }
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine
        .start(touring(0, "well".into()))
        .await
        .expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 2);
    assert_eq!(
        undone(&ledger),
        [""; 0],
        "a run that completes keeps it all"
    );
}

#[tokio::test]
async fn a_crash_at_any_write_undoes_each_step_of_each_pass_once_and_in_order() {
    for how in ["fail", "abort", "cancel"] {
        let (error, _, writes) = through(how, FaultPlan::none()).await;
        assert!(writes > 8, "{writes}");
        for write in 0..writes {
            for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
                let after = through(how, FaultPlan::at(write, fault)).await;
                assert_eq!(after.0, error, "{how} {write} {fault:?}");
                // A cancelled run may have had its last step in flight: then nobody knows what it gave.
                let undone = after.1.iter().map(|it| it.replace("2b None", "2b Some(2)"));
                let undone: Vec<_> = undone.collect();
                assert_eq!(undone, UNDONE, "{how} {write} {fault:?}");
            }
        }
    }
}

/// Its last pass calls no step: a process that takes it up there has called none.
#[workflow]
async fn waiting(night: u32) -> Result<u32> {
    if night < 3 {
        reserve(&format!("{night}a")).await?;
        checkpoint(&(night + 1)).await;
    }
    wait_for::<()>("never").await?;
    Ok(night)
}

/// What became of `waiting`: its code of before is gone, but for its last pass.
#[workflow(name = "waiting")]
async fn waiting_later(night: u32) -> Result<u32> {
    wait_for::<()>("never").await?;
    Ok(night)
}

/// Lets `waiting` come to its last pass, and ends that process.
async fn in_its_last_pass(ledger: &Arc<Ledger>) -> (MemoryStore, workflow_runtime::RunId) {
    let store = MemoryStore::new();
    let first = engine(ledger).open_with(store.clone()).await;
    let first = first.expect("opens");
    let run = first.start(waiting(0)).await.expect("starts").id();
    until(|| ledger.effects().len() == 3).await;
    while checkpoints(&first.journal(run).await.expect("reads")) < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.shutdown().await.expect("stops");
    (store.reopen(Surviving::Synced), run)
}

fn checkpoints(journal: &Journal) -> usize {
    let events = journal.records().iter().map(|record| &record.event);
    events
        .filter(|event| matches!(event, Event::Checkpoint(_)))
        .count()
}

const OF_WAITING: [&str; 3] = [
    "release 2a Some(2)",
    "release 1a Some(2)",
    "release 0a Some(2)",
];

#[tokio::test]
async fn a_process_that_called_none_of_the_steps_finds_out_how_they_are_undone() {
    let ledger = Ledger::shared();
    let (store, run) = in_its_last_pass(&ledger).await;
    let next = engine(&ledger).open_with(store).await.expect("opens");
    let run: RunHandle<waiting> = next.run(run).await.expect("is there");
    run.cancel().await.expect("asks");
    let error = timeout(LONG, run.result()).await.expect("ends");
    assert!(matches!(error, Err(RunError::Cancelled { .. })));
    assert_eq!(undone(&ledger), OF_WAITING);
    assert_eq!(
        ledger.effects().len(),
        6,
        "the replay of old passes ran nothing"
    );
}

#[tokio::test]
async fn a_step_that_nobody_knows_any_more_parks_the_run_until_it_is_registered() {
    let ledger = Ledger::shared();
    let (store, run) = in_its_last_pass(&ledger).await;
    let changed = || {
        Engine::builder()
            .register::<waiting_later>()
            .resource_arc(ledger.clone())
    };
    let without = changed().open_with(store.clone()).await.expect("opens");
    let handle = without.run::<waiting_later>(run).await.expect("is there");
    handle.cancel().await.expect("asks");
    let error = timeout(LONG, handle.result()).await.expect("parks");
    let Err(RunError::Parked(parking)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(parking.reason, ParkReason::Unregistered);
    for word in [
        "`reserve`",
        "register_step::<reserve>()",
        "step_",
        "`flow::undo_passes`",
    ] {
        assert!(parking.report.contains(word), "{word}: {}", parking.report);
    }
    assert_eq!(undone(&ledger), [""; 0]);
    without.shutdown().await.expect("stops");
    // A resume with the same engine changes nothing; one that knows the step goes on by itself.
    let store = store.reopen(Surviving::Synced);
    let with = changed().register_step::<reserve>();
    let with = with.open_with(store).await.expect("opens");
    let handle = with.run::<waiting_later>(run).await.expect("is there");
    let error = timeout(LONG, handle.result()).await.expect("ends");
    assert!(
        matches!(error, Err(RunError::Cancelled { .. })),
        "{error:?}"
    );
    assert_eq!(undone(&ledger), OF_WAITING);
}

#[tokio::test]
async fn only_a_step_with_an_undo_is_registered_and_one_of_a_name() {
    let none = Engine::builder().register_step::<release>();
    let error = none.open_in_memory().await.err().expect("refused");
    assert!(error.to_string().contains("`release`"), "{error}");
    let two = Engine::builder()
        .register_step::<hotel::book>()
        .register_step::<flight::book>();
    let error = two.open_in_memory().await.err().expect("refused");
    assert!(
        error
            .to_string()
            .contains("two steps are registered as `book`"),
        "{error}"
    );
    let twice = Engine::builder()
        .register_step::<reserve>()
        .register_step::<reserve>();
    twice
        .open_in_memory()
        .await
        .expect("the same twice is fine");
}

/// The loser of a race is dropped; nobody knows what it did.
#[workflow]
async fn racing(pass: u32) -> Result<u32> {
    if pass == 1 {
        return Err(Error::fatal("late"));
    }
    reserve("first").await?;
    let slow = workflow_runtime::timeout(Duration::from_millis(5), slow("second"));
    let lost: std::result::Result<_, Elapsed> = slow.await;
    assert!(lost.is_err(), "it never ends");
    reserve("third").await?;
    checkpoint(&1_u32).await
}

#[step(undo = release)]
async fn slow(#[resource] ledger: &Ledger, room: &str) -> Result<usize> {
    ledger.act(&format!("slow {room}"));
    std::future::pending().await
}

#[tokio::test]
async fn a_call_that_was_dropped_before_a_checkpoint_is_undone_without_knowing_its_output() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(racing(0)).await.expect("starts");
    timeout(LONG, run.result())
        .await
        .expect("ends")
        .expect_err("fails");
    let expected = [
        "release second None",
        "release third Some(5)",
        "release first Some(5)",
    ];
    assert_eq!(undone(&ledger), expected);
}

#[workflow]
async fn keeping(pass: u32) -> Result<u32> {
    if pass == 0 {
        reserve("first").await?;
        undo_with(release("first".into(), None));
        checkpoint(&1_u32).await;
    }
    Ok(pass)
}

#[tokio::test]
async fn a_kept_call_is_refused_at_the_checkpoint_by_name_and_undone() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(keeping(0)).await.expect("starts");
    let error = run.result().await.expect_err("fails").to_string();
    for word in ["`release`", "undo_with", "undo_passes.rs", "child workflow"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    assert_eq!(
        undone(&ledger),
        ["release first None", "release first Some(5)"]
    );
}

mod hotel {
    use super::{Ledger, Result, step};

    #[step(undo = unbook)]
    pub(super) async fn book(#[resource] ledger: &Ledger, what: &str) -> Result<u32> {
        ledger.act(&format!("hotel {what}"));
        Ok(1)
    }

    #[step]
    async fn unbook(#[resource] ledger: &Ledger, what: String, _booked: Option<u32>) {
        ledger.act(&format!("release hotel {what}"));
    }
}

mod flight {
    use super::{Ledger, Result, step};

    #[step(undo = unbook)]
    pub(super) async fn book(#[resource] ledger: &Ledger, what: &str) -> Result<u32> {
        ledger.act(&format!("flight {what}"));
        Ok(1)
    }

    #[step]
    async fn unbook(#[resource] ledger: &Ledger, what: String, _booked: Option<u32>) {
        ledger.act(&format!("release flight {what}"));
    }
}

/// Calls two steps of one name, which are undone in two ways.
#[workflow]
async fn homonyms(pass: u32) -> Result<u32> {
    match pass {
        0 => hotel::book("rome").await?,
        1 => flight::book("oslo").await?,
        _ => return wait_for::<()>("never").await.map(|()| 0),
    };
    checkpoint(&(pass + 1)).await
}

#[tokio::test]
async fn steps_of_one_name_are_undone_each_in_its_own_way() {
    let expected = ["release flight oslo", "release hotel rome"];
    for restart in [false, true] {
        let ledger = Ledger::shared();
        let mut store = MemoryStore::new();
        let mut current = engine(&ledger)
            .open_with(store.clone())
            .await
            .expect("opens");
        let run = current.start(homonyms(0)).await.expect("starts").id();
        while checkpoints(&current.journal(run).await.expect("reads")) < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if restart {
            current.shutdown().await.expect("stops");
            store = store.reopen(Surviving::Synced);
            current = engine(&ledger).open_with(store).await.expect("opens");
            // Of the two, this process has called the wrong one.
            let other = current.start(homonyms(1)).await.expect("starts");
            until(|| ledger.effects().len() == 3).await;
            drop(other);
        }
        let run = current.run::<homonyms>(run).await.expect("is there");
        run.cancel().await.expect("asks");
        let error = timeout(LONG, run.result()).await.expect("ends");
        assert!(
            matches!(error, Err(RunError::Cancelled { .. })),
            "{error:?}"
        );
        assert_eq!(undone(&ledger), expected, "{restart}");
    }
}

/// Does so much that the record of its end has no room for all inputs.
#[workflow]
async fn overfull() -> Result<u32> {
    for n in 0..6 {
        reserve(&format!("{n}{}", "x".repeat(1_900_000))).await?;
    }
    Err(Error::fatal("full"))
}

#[tokio::test]
async fn inputs_that_do_not_fit_into_the_closing_record_are_left_out_and_undone_all_the_same() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).register::<overfull>();
    let engine = engine.open_in_memory().await.expect("opens");
    let run = engine.start(overfull()).await.expect("starts");
    run.result().await.expect_err("fails");
    let journal = engine.journal(run.id()).await.expect("reads");
    let mut events = journal.records().iter().map(|record| &record.event);
    let closing = events.find_map(|event| match event {
        Event::RunClosing(closing) => Some(closing),
        _ => None,
    });
    let undo = &closing.expect("it was undone").undo;
    let kept: Vec<_> = undo.iter().map(|step| step.input.is_some()).collect();
    assert_eq!(kept, [true, true, true, true, false, false]);
    assert_eq!(undone(&ledger).len(), 6);
}

/// Does so much in one pass that its record is more than one.
#[workflow]
async fn hoarding(pass: u32) -> Result<u32> {
    if pass == 0 {
        for n in 0..6 {
            reserve(&format!("{n}{}", "x".repeat(1_900_000))).await?;
        }
        checkpoint(&1_u32).await;
    }
    reserve("last").await?;
    Err(Error::fatal("full"))
}

#[tokio::test]
async fn what_is_more_than_one_record_is_carried_in_several() {
    for write in [None, Some(6), Some(7), Some(8), Some(9), Some(10)] {
        let ledger = Ledger::shared();
        let plan = write.map_or_else(FaultPlan::none, |at| FaultPlan::at(at, Fault::CrashAfter));
        let mut store = MemoryStore::with_faults(plan);
        let carried = loop {
            let living = async {
                let engine = engine(&ledger)
                    .open_with(store.clone())
                    .await
                    .expect("opens");
                let run = engine.start(hoarding(0)).key("h").await.expect("starts");
                run.result().await.expect_err("fails");
                let journal = engine.journal(run.id()).await.expect("reads");
                let events = journal.records().iter().map(|record| &record.event);
                events
                    .filter(|event| matches!(event, Event::UndoCarried(_)))
                    .count()
            };
            tokio::select! {
                biased;
                () = store.crashed() => {}
                carried = timeout(LONG, living) => break carried.expect("does not hang"),
            }
            store = store.reopen(Surviving::Synced);
        };
        assert!(carried >= 2, "{carried}");
        let undone: Vec<_> = undone(&ledger);
        let order: Vec<_> = undone
            .iter()
            .map(|it| it["release ".len()..][..1].to_owned())
            .collect();
        assert_eq!(order, ["l", "5", "4", "3", "2", "1", "0"], "{write:?}");
    }
}

/// A step whose undo fails stops none of the others, in whatever pass.
#[workflow]
async fn stumbling(pass: u32) -> Result<u32> {
    if pass == 3 {
        return Err(Error::fatal("late"));
    }
    let room = ["first", "stuck", "third"][pass as usize];
    reserve(room).await?;
    checkpoint(&(pass + 1)).await
}

#[tokio::test]
async fn a_failing_undo_of_an_earlier_pass_is_reported_and_stops_no_other() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(stumbling(0)).await.expect("starts");
    run.result().await.expect_err("fails");
    let expected = [
        "release third Some(5)",
        "release stuck Some(5)",
        "release first Some(5)",
    ];
    assert_eq!(undone(&ledger), expected);
    let warned = engine.warnings();
    assert!(
        warned
            .iter()
            .any(|w| w.message.contains("`reserve` failed")),
        "{warned:?}"
    );
    assert!(matches!(
        run.status().await.expect("looks"),
        RunStatus::Failed
    ));
}
