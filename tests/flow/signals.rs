//! Signals: kept when early, in order, once per key, refused when too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use futures::join;
use futures::stream::{FuturesUnordered, StreamExt, TryStreamExt};
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Result, RunHandle, RunStatus, Sent, Workflow, WorkflowCall,
    signals, step, timeout, wait_for, workflow,
};
use workflow_tests::{Ledger, cut, frames};

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(what.len())
}

#[workflow]
async fn collecting(count: usize) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    let mut names = signals::<String>("name");
    for _ in 0..count {
        let name = names.next().await?;
        act(&name).await?;
        seen.push(name);
    }
    Ok(seen)
}

#[workflow]
async fn hurried() -> Result<String> {
    let waited = timeout(Duration::from_millis(20), wait_for::<String>("name")).await;
    match waited {
        Ok(name) => name,
        Err(elapsed) => Ok(elapsed.to_string()),
    }
}

/// Two waits for one name at once, and a third that loses a race against the first signal.
#[workflow]
async fn joined() -> Result<Vec<u32>> {
    let (first, second) = join!(wait_for::<u32>("n"), async {
        act("second").await?;
        wait_for::<u32>("n").await
    });
    Ok(vec![first?, second?])
}

/// Every other wait is dropped by a race; none of them may take anything with it.
#[workflow]
async fn racing(rounds: u32) -> Result<Vec<u32>> {
    let mut seen = Vec::new();
    for round in 0..rounds {
        let raced = select(wait_for::<u32>("n"), Box::pin(act("race").key(round))).await;
        match raced {
            Either::Left((value, _)) => seen.push(value?),
            Either::Right((acted, dropped)) => {
                acted?;
                drop(dropped);
            }
        }
    }
    while seen.len() < 3 {
        seen.push(wait_for::<u32>("n").await?);
    }
    Ok(seen)
}

/// One name, two types.
#[workflow]
async fn two_types() -> Result<(u32, String)> {
    Ok((wait_for("x").await?, wait_for("x").await?))
}

#[workflow]
async fn lenient() -> Result<(bool, u32)> {
    wait_for::<()>("begin").await?;
    let first = wait_for::<u32>("n").await;
    Ok((first.is_err(), wait_for("n").await?))
}

/// All ways to read several streams at once.
#[workflow]
async fn streaming() -> Result<Vec<u32>> {
    let merged = futures::stream::select(signals::<u32>("a"), signals::<u32>("b"));
    let mut seen: Vec<u32> = merged.take(3).try_collect().await?;
    let mut waits: FuturesUnordered<_> = ["a", "b", "c"]
        .into_iter()
        .map(|name| async move { wait_for::<u32>(name).await })
        .collect();
    while let Some(value) = waits.next().await {
        seen.push(value?);
    }
    let mut doubled = signals::<u32>("c").map(|value| value.map(|value| value * 2));
    seen.push(doubled.next().await.expect("never ends")?);
    Ok(seen)
}

#[workflow]
async fn deaf() -> Result<u32> {
    wait_for("heard").await
}

#[workflow]
async fn clumsy() -> Result<Vec<u32>> {
    wait_for::<()>("begin").await?;
    assert!(MENDED.load(Ordering::SeqCst), "not mended");
    let mut all = Vec::new();
    let mut numbers = signals::<u32>("n");
    while all.len() < 100 {
        all.push(numbers.next().await?);
    }
    Ok(all)
}

static MENDED: AtomicBool = AtomicBool::new(false);

#[workflow]
async fn nameless() -> Result<()> {
    wait_for("").await
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<joined>()
        .register::<racing>()
        .register::<two_types>()
        .register::<lenient>()
        .register::<streaming>()
        .register::<deaf>()
        .register::<clumsy>()
        .register::<nameless>()
        .register::<collecting>()
        .register::<hurried>()
        .resource_arc(ledger.clone())
}

#[tokio::test]
async fn signals_are_received_in_the_order_they_were_accepted() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(collecting(3)).await.expect("starts");
    for name in ["ada", "bob", "cyd"] {
        let sent = run.signal("name", name).await.expect("sends");
        assert_eq!(sent, Sent::Accepted);
    }
    assert_eq!(
        run.result().await.expect("ends well"),
        ["ada", "bob", "cyd"]
    );
    let journal = engine.journal(run.id()).await.expect("reads");
    assert_eq!(
        journal.to_string().matches("✉ name").count(),
        3,
        "{journal}"
    );
}

#[tokio::test]
async fn a_signal_with_a_key_counts_once() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(collecting(2)).await.expect("starts");
    let send = |name: &'static str, key: &'static str| run.signal("name", name).key(key);
    assert_eq!(send("ada", "1").await.expect("sends"), Sent::Accepted);
    assert_eq!(send("ada", "1").await.expect("sends"), Sent::Duplicate);
    assert_eq!(send("bob", "2").await.expect("sends"), Sent::Accepted);
    assert_eq!(run.result().await.expect("ends well"), ["ada", "bob"]);
}

#[tokio::test]
async fn a_signal_to_a_finished_run_is_refused_by_name() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(hurried()).await.expect("starts");
    assert_eq!(run.result().await.expect("ends"), "not done within 20ms");
    let refused = run.signal("name", "late").await.expect_err("too late");
    assert!(
        matches!(refused, EngineError::Ended(id) if id == run.id()),
        "{refused}"
    );
}

#[tokio::test]
async fn the_sender_hears_that_a_wait_asks_for_another_type() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(collecting(1)).await.expect("starts");
    tokio::time::sleep(Duration::from_millis(20)).await; // until it waits
    let refused = run.signal("name", &17).await.expect_err("not a name");
    assert!(matches!(refused, EngineError::Signal { .. }), "{refused}");
    run.signal("name", "ada").await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), ["ada"]);
}

/// Sends all signals under keys, as a sender does that does not know what arrived, and ends
/// the run, through one crash.
async fn collect_through(plan: FaultPlan) -> (Vec<String>, Vec<String>, u64) {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = engine(&ledger)
                .open_with(store.clone())
                .await
                .expect("opens");
            let run = engine
                .start(collecting(3))
                .key("story")
                .await
                .expect("starts");
            for name in ["ada", "bob", "cyd"] {
                match run.signal("name", name).key(name).await {
                    Ok(_) | Err(EngineError::Ended(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            run.result().await.expect("ends well")
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            seen = living => return (seen, ledger.effects(), store.writes()),
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_loses_and_repeats_no_signal() {
    let (seen, effects, writes) = collect_through(FaultPlan::none()).await;
    assert_eq!(seen, ["ada", "bob", "cyd"]);
    assert!(writes >= 8, "{writes}");
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let after = collect_through(FaultPlan::at(write, fault)).await;
            assert_eq!((&after.0, &after.1), (&seen, &effects), "{write} {fault:?}");
        }
    }
}

/// Runs a workflow that is sent numbered signals of some names under keys until it has ended, through
/// one crash; then replays its whole journal, which must give the same without any body.
async fn told<W: Workflow>(
    call: impl Fn() -> WorkflowCall<W>,
    names: &[&str],
    plan: FaultPlan,
) -> (W::Ok, u64)
where
    W::Ok: PartialEq + std::fmt::Debug,
    W::Error: std::fmt::Debug,
{
    let ledger = Ledger::shared();
    let mut store = MemoryStore::with_faults(plan);
    let send_all = async |run: &RunHandle<W>| {
        for n in 0..u32::MAX {
            let name = names[n as usize % names.len()];
            match run.signal(name, &n).key(n).await {
                Ok(_) => {}
                Err(EngineError::Ended(_)) => return,
                Err(error) => panic!("{error}"),
            }
            tokio::task::yield_now().await;
        }
    };
    let (run, result) = loop {
        let living = async {
            let engine = engine(&ledger)
                .open_with(store.clone())
                .await
                .expect("opens");
            let run = engine.start(call()).key("story").await.expect("starts");
            let (result, ()) = join!(run.result(), send_all(&run));
            (run.id(), result.expect("ends well"))
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            ended = living => break ended,
        }
        store = store.reopen(Surviving::Synced);
    };
    let writes = store.writes();
    let reader = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let journal = reader.journal(run).await.expect("reads");
    let recorded = frames(&store, run).await;
    ledger.forget_asking();
    let again = engine(&ledger)
        .open_with(cut(journal.header(), &recorded, recorded.len() - 1).await)
        .await
        .expect("opens");
    let replayed = again.run::<W>(run).await.expect("is there").result().await;
    assert_eq!(replayed.expect("ends well"), result, "{journal}");
    assert_eq!(ledger.asked(), 0, "{journal}");
    (result, writes)
}

/// The same after a crash at every write; what is seen is always in the order of sending.
async fn told_through_crashes<W: Workflow<Ok = Vec<u32>>>(
    call: impl Fn() -> WorkflowCall<W>,
    names: &[&str],
    in_order: bool,
) where
    W::Error: std::fmt::Debug,
{
    let (_, writes) = told(&call, names, FaultPlan::none()).await;
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let (seen, _) = told(&call, names, FaultPlan::at(write, fault)).await;
            let sorted = seen.is_sorted();
            assert!(sorted || !in_order, "{write} {fault:?}: {seen:?}");
        }
    }
}

#[tokio::test]
async fn two_waits_for_one_name_get_one_signal_each_the_same_in_every_replay() {
    told_through_crashes(joined, &["n"], false).await;
}

#[tokio::test]
async fn a_wait_that_a_race_dropped_took_nothing_whatever_crashes() {
    told_through_crashes(|| racing(4), &["n"], true).await;
    // Nothing was skipped: the numbers are the first ones that were sent.
    let (seen, _) = told(|| racing(4), &["n"], FaultPlan::none()).await;
    assert_eq!(seen, [0, 1, 2]);
}

#[tokio::test]
async fn signals_are_streams_and_any_combinator_replays_the_same() {
    told_through_crashes(streaming, &["a", "b", "c"], false).await;
}

#[tokio::test]
async fn a_signal_for_a_later_wait_is_not_held_against_the_type_of_an_earlier_one() {
    let engine = engine(&Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    for _ in 0..20 {
        let run = engine.start(two_types()).await.expect("starts");
        tokio::task::yield_now().await; // it may wait by now, or not
        run.signal("x", &7).await.expect("sends");
        run.signal("x", "seven").await.expect("sends");
        assert_eq!(run.result().await.expect("ends well"), (7, "seven".into()));
    }
}

#[tokio::test]
async fn an_early_signal_of_another_type_is_an_error_of_its_own_wait_only() {
    let engine = engine(&Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(lenient()).await.expect("starts");
    run.signal("n", "not a number")
        .await
        .expect("nobody waits yet");
    run.signal("n", &5).await.expect("sends");
    run.signal("begin", &()).await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), (true, 5));
}

#[tokio::test]
async fn signals_that_nobody_reads_hold_nothing_up() {
    let engine = engine(&Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(deaf()).await.expect("starts");
    for n in 0..10 {
        run.signal("noise", &n).await.expect("sends");
    }
    run.signal("heard", &1).await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), 1);
}

#[tokio::test]
async fn signals_to_a_parked_run_wait_until_it_is_resumed() {
    let engine = engine(&Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(clumsy()).await.expect("starts");
    run.signal("begin", &()).await.expect("sends");
    while !matches!(run.status().await.expect("reads"), RunStatus::Parked(_)) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for n in 0..50u32 {
        run.signal("n", &n).await.expect("sends");
    }
    MENDED.store(true, Ordering::SeqCst);
    engine.resume(run.id()).await.expect("resumes");
    // And more while it is claimed and replayed.
    for n in 50..100u32 {
        run.signal("n", &n).await.expect("sends");
    }
    let expected: Vec<u32> = (0..100).collect();
    assert_eq!(run.result().await.expect("ends well"), expected);
    let journal = engine.journal(run.id()).await.expect("reads").to_string();
    assert_eq!(journal.matches("✉ n ").count(), 100, "each once\n{journal}");
}

#[tokio::test]
async fn a_signal_costs_two_writes() {
    let store = MemoryStore::new();
    let engine = engine(&Ledger::shared())
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(streaming()).await.expect("starts");
    tokio::time::sleep(Duration::from_millis(10)).await; // until it waits
    let before = store.writes();
    run.signal("a", &1).await.expect("sends");
    tokio::time::sleep(Duration::from_millis(10)).await; // until it was received
    let journal = engine.journal(run.id()).await.expect("reads");
    assert!(journal.to_string().contains("✉ a"), "{journal}");
    assert_eq!(
        store.writes() - before,
        2,
        "one for the mailbox, one for the journal"
    );
}

#[tokio::test]
async fn a_name_that_no_signal_can_have_is_refused_on_both_sides() {
    let engine = engine(&Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(nameless()).await.expect("starts");
    let error = run.result().await.expect_err("no name");
    assert!(error.to_string().contains("signal"), "{error}");
    let run = engine.start(deaf()).await.expect("starts");
    for name in [String::new(), "x".repeat(257)] {
        let refused = run.signal(&name, &1).await.expect_err("no name");
        assert!(matches!(refused, EngineError::Name { .. }), "{refused}");
    }
}
