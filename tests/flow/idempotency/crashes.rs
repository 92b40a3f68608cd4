//! Expiry, release and replacement through a crash at every write.

use workflow_runtime::store::RunState;
use workflow_runtime::store::memory::{Fault, FaultPlan, Surviving};
use workflow_runtime::{Key, OnConflict, OnFailure, RunId};

use super::*;

/// Lives through crashes until the story is told to its end.
async fn live_through<T>(
    ledger: &Arc<Ledger>,
    plan: FaultPlan,
    story: impl AsyncFn(&Engine) -> T,
) -> (T, MemoryStore) {
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = engine(ledger).open_with(store.clone()).await;
            story(&engine.expect("opens")).await
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            told = living => return (told, store),
        }
        store = store.reopen(Surviving::Synced);
    }
}

/// Tells a story with a crash at every write, and checks what came of it.
async fn everywhere<T>(
    story: impl AsyncFn(&Engine) -> T,
    check: impl AsyncFn(&str, T, &Ledger, &MemoryStore),
) {
    let ledger = Ledger::shared();
    let (told, clean) = live_through(&ledger, FaultPlan::none(), &story).await;
    let writes = clean.writes();
    assert!(writes >= 5, "{writes}");
    check("no crash", told, &ledger, &clean).await;
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let ledger = Ledger::shared();
            let plan = FaultPlan::at(write, fault);
            let living = live_through(&ledger, plan, &story);
            let living = tokio::time::timeout(Duration::from_secs(60), living).await;
            let shown = format!("{fault:?} at {write}");
            let (told, store) = living.unwrap_or_else(|_| panic!("{shown}: it hangs"));
            check(&shown, told, &ledger, &store).await;
        }
    }
}

#[tokio::test]
async fn a_crash_at_any_write_replaces_a_run_once_and_loses_neither() {
    let story = async |engine: &Engine| -> (RunId, RunId) {
        let key = || Key::business("order", 1);
        let replace = |order| {
            let start = engine.start(held(order)).key(key());
            start.on_conflict(OnConflict::Replace)
        };
        // A process that comes after the replacement must not begin with the old input again.
        let runs = engine.runs().await.expect("lists").runs;
        let old = match runs.last() {
            Some(old) => old.run,
            None => replace(1).await.expect("starts").id(),
        };
        let new = replace(2).await.expect("replaces or finds");
        new.signal("go on", &()).key("once").await.expect("sends");
        assert_eq!(new.result().await.expect("ends well"), 2);
        (old, new.id())
    };
    let check =
        async |shown: &str, (old, new): (RunId, RunId), ledger: &Ledger, store: &MemoryStore| {
            assert_ne!(old, new, "{shown}");
            let runs = all_runs(store).await;
            assert_eq!(runs.len(), 2, "{shown}: {runs:#?}");
            assert!(
                runs.iter()
                    .all(|run| matches!(run.state, RunState::Ended(_))),
                "{shown}"
            );
            let order = ledger.in_order();
            let charged_new = order.iter().position(|one| one == "charge 2");
            let refunded = order.iter().position(|one| one == "refund 1");
            assert!(
                refunded.is_none() || refunded < charged_new,
                "{shown}: {order:?}"
            );
            // Undone even if nobody knows whether it was done.
            assert!(
                refunded.is_some() || !order.contains(&"charge 1".to_owned()),
                "{shown}: {order:?}"
            );
            assert_eq!(
                order.last().map(String::as_str),
                Some("charge 2"),
                "{shown}"
            );
        };
    everywhere(story, check).await;
}

#[tokio::test]
async fn a_crash_at_any_write_lets_a_replacement_begin_that_nobody_signals() {
    let story = async |engine: &Engine| -> RunId {
        let replace = |fate| {
            let start = engine.start(fated(fate)).key("k");
            start.on_conflict(OnConflict::Replace)
        };
        if engine.runs().await.expect("lists").runs.is_empty() {
            replace(Fate::Waits).await.expect("starts");
        }
        let new = replace(Fate::Completes).await.expect("replaces or finds");
        new.result().await.expect("ends well");
        new.id()
    };
    let check = async |shown: &str, new: RunId, ledger: &Ledger, store: &MemoryStore| {
        let runs = all_runs(store).await;
        assert_eq!(runs.len(), 2, "{shown}");
        assert_eq!(runs[1].run, new, "{shown}");
        assert_eq!(ledger.effects(), ["charge 1"], "{shown}");
    };
    everywhere(story, check).await;
}

#[tokio::test]
async fn a_crash_at_any_write_lets_a_key_expire_once() {
    let story = async |engine: &Engine| -> (RunId, RunId) {
        let runs = engine.runs().await.expect("lists").runs;
        let old = match runs.last() {
            Some(old) => old.run,
            None => {
                let start = engine.start(pay(1)).key("order");
                start.key_ttl(Duration::ZERO).await.expect("starts").id()
            }
        };
        let ended = engine.run::<pay>(old).await.expect("is there");
        ended.result().await.expect("ends well");
        let new = engine.start(pay(2)).key("order").await.expect("starts");
        new.result().await.expect("ends well");
        (old, new.id())
    };
    let check =
        async |shown: &str, (old, new): (RunId, RunId), ledger: &Ledger, store: &MemoryStore| {
            assert_ne!(old, new, "{shown}");
            assert_eq!(all_runs(store).await.len(), 2, "{shown}");
            assert_eq!(ledger.effects(), ["charge 1", "charge 2"], "{shown}");
        };
    everywhere(story, check).await;
}

#[tokio::test]
async fn a_crash_at_any_write_releases_the_key_of_a_failed_run_once() {
    let story = async |engine: &Engine| -> RunId {
        let start = |fate| {
            let start = engine.start(fated(fate)).key("k");
            start.on_failure(OnFailure::Release)
        };
        let runs = engine.runs().await.expect("lists").runs;
        let old = match runs.last() {
            Some(old) => old.run,
            None => start(Fate::Fails).await.expect("starts").id(),
        };
        let failed = engine.run::<fated>(old).await.expect("is there");
        failed.result().await.expect_err("fails");
        let new = start(Fate::Completes).await.expect("starts");
        new.result().await.expect("ends well");
        new.id()
    };
    let check = async |shown: &str, new: RunId, ledger: &Ledger, store: &MemoryStore| {
        let runs = all_runs(store).await;
        assert_eq!(runs.len(), 2, "{shown}");
        assert_eq!(runs[1].run, new, "{shown}");
        assert_eq!(ledger.effects(), ["charge 1"], "{shown}");
    };
    everywhere(story, check).await;
}
