//! Debounced starts: one run with the latest input.

use super::*;

#[tokio::test]
async fn debounced_starts_become_one_run_with_the_latest_input() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let builder = engine(&shop, &ledger, mail());
    let engine = builder.open_in_memory().await.expect("opens");
    let quiet = Duration::from_millis(40);
    let mut told = Vec::new();
    let mut last = Instant::now();
    for number in 0..5 {
        last = Instant::now();
        let start = engine.start(call(number, "ada")).queue("mail");
        told.push(start.debounce("ada", quiet).await.expect("is taken"));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let other = engine.start(call("other", "bob")).queue("mail");
    let other = other.debounce("bob", quiet).await.expect("is taken");
    let run = told[0].run;
    assert!(
        told.iter()
            .all(|told| told.run == run && told.run != other.run)
    );
    assert!(told.is_sorted_by_key(|told| told.due_at));
    assert_eq!(
        engine
            .queue("mail")
            .describe()
            .await
            .expect("is there")
            .debounced,
        2
    );
    let early = engine.status(run).await;
    assert!(
        matches!(early, Err(EngineError::UnknownRun(_))),
        "{early:?}"
    );
    until("both have begun", async || shop.began().len() == 2).await;
    assert!(last.elapsed() >= quiet, "early");
    let run = engine.run::<job>(run).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), "4");
    let again = engine.start(call(9, "ada")).queue("mail");
    let again = again
        .debounce("ada", Duration::ZERO)
        .await
        .expect("is taken");
    assert_ne!(
        again.run,
        run.id(),
        "a start after the quiet moment is another run"
    );
    until("it has begun", async || {
        shop.began().contains(&"9".to_owned())
    })
    .await;
}

#[tokio::test]
async fn a_debounced_start_survives_a_crash_at_any_write() {
    let live = async |plan: FaultPlan| {
        let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
        let mut store = MemoryStore::with_faults(plan);
        let mut taken = None;
        loop {
            let living = async {
                let builder = engine(&shop, &ledger, mail().concurrency(1));
                let engine = builder.open_with(store.clone()).await.expect("opens");
                if taken.is_none() {
                    let start = engine.start(call("once", "ada")).queue("mail");
                    let start = start.debounce("ada", Duration::from_millis(2)).await;
                    taken = Some(start.expect("is taken").run);
                }
                let run = taken.expect("was taken");
                until("it has ended", async || {
                    matches!(engine.status(run).await, Ok(RunStatus::Completed))
                })
                .await;
                until("its slot is free", async || counts(&engine).await == (0, 0)).await;
            };
            let crashed = tokio::select! {
                biased;
                () = store.crashed() => true,
                () = living => false,
            };
            if !crashed {
                return (store, ledger);
            }
            store = store.reopen(Surviving::Synced);
        }
    };
    let (clean, _) = live(FaultPlan::none()).await;
    for write in 0..clean.writes() {
        let (_, ledger) = live(FaultPlan::at(write, Fault::CrashBefore)).await;
        assert_eq!(ledger.effects(), ["once"], "{write}");
        // After the write of the start itself nobody was told, and it is started again: the same run, or, if
        // the first has begun meanwhile, another one. From then on there is one.
        let (_, ledger) = live(FaultPlan::at(write, Fault::CrashAfter)).await;
        let effects = ledger.effects().len();
        assert!(
            effects == 1 || (effects == 2 && write == 1),
            "{write}: {effects}"
        );
    }
}
