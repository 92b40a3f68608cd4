//! Queues through crashes and beside each other: no slot leaks, no limit is passed.

use super::*;

/// Four keyed runs through crashes: limits hold in every process, nothing is lost or done twice.
async fn live_through(plans: Vec<FaultPlan>) -> MemoryStore {
    let shown = format!("{plans:?}");
    let ledger = Ledger::shared();
    let mut plans = plans.into_iter();
    let mut store = MemoryStore::with_faults(plans.next().unwrap_or_default());
    loop {
        let shop = Workshop::new(OPEN);
        let living = async {
            let queue = mail().concurrency(2).per_key(1);
            let builder = engine(&shop, &ledger, queue);
            let engine = builder.open_with(store.clone()).await.expect("opens");
            let mut runs = Vec::new();
            for (number, customer) in ["ada", "ada", "bob", "cem"].into_iter().enumerate() {
                let start = engine.start(call(number, customer)).key(number);
                let start = start.queue("mail").queue_key(customer);
                let start = match number {
                    3 => start.delay(Duration::from_millis(3)),
                    _ => start.priority(number as i32),
                };
                runs.push(start.await.expect("is queued"));
            }
            for run in &runs {
                let result = tokio::time::timeout(Duration::from_secs(5), run.result());
                let result = result.await.expect("does not hang");
                result.expect("ends well");
            }
            until("all slots are free", async || {
                counts(&engine).await == (0, 0)
            })
            .await;
            let mail = engine.queue("mail").describe().await.expect("is there");
            assert_eq!(mail.delayed, 0);
        };
        let crashed = tokio::select! {
            biased;
            () = store.crashed() => true,
            () = living => false,
        };
        assert!(shop.book().most <= 2, "{shown}");
        assert!(shop.book().most_of_one <= 1, "{shown}");
        if !crashed {
            break;
        }
        store = store.reopen(Surviving::Synced);
        store.set_faults(plans.next().unwrap_or_default());
    }
    assert_eq!(ledger.effects(), ["0", "1", "2", "3"], "{shown}");
    store
}

#[tokio::test]
async fn a_crash_at_any_write_leaks_no_slot_and_passes_no_limit() {
    let writes = live_through(vec![]).await.writes();
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            live_through(vec![FaultPlan::at(write, fault)]).await;
        }
    }
}

#[tokio::test]
async fn two_crashes_at_any_writes_leak_no_slot_and_pass_no_limit() {
    let writes = live_through(vec![]).await.writes();
    for first in 0..writes {
        for second in 0..writes - first {
            live_through(vec![
                FaultPlan::at(first, Fault::CrashAfter),
                FaultPlan::at(second, Fault::CrashBefore),
            ])
            .await;
        }
    }
}

#[tokio::test]
async fn several_engines_together_pass_no_limit() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let store = MemoryStore::new();
    let mut engines = Vec::new();
    for _ in 0..3 {
        let builder = engine(&shop, &ledger, mail().concurrency(2));
        let store = Edited {
            store: store.clone(),
            edit: |_: &mut Vec<Bytes>| {},
        };
        engines.push(builder.open_with(store).await.expect("opens"));
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let putting = (0..30).map(|number| put(&engines[number % 3], number));
    let runs = futures::future::join_all(putting).await;
    until("all have ended", async || {
        let mut ended = 0;
        for run in &runs {
            ended += usize::from(run.status().await.expect("is there") == RunStatus::Completed);
        }
        ended == runs.len()
    })
    .await;
    assert!(shop.book().most <= 2, "{}", shop.book().most);
    assert_eq!(shop.began().len(), 30, "each once");
}

#[tokio::test]
async fn a_queued_run_is_asleep_until_its_turn_also_after_a_restart() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let store = MemoryStore::new();
    let builder = engine(&shop, &ledger, mail());
    let first = builder.open_with(store.clone()).await.expect("opens");
    first.queue("mail").pause().await.expect("is paused");
    let mut runs = Vec::new();
    for number in 0..300 {
        runs.push(put(&first, number).await.id());
    }
    drop(first);
    let store = store.reopen(Surviving::Synced);
    let builder = engine(&shop, &ledger, mail());
    let again = builder.open_with(store.clone()).await.expect("opens");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(counts(&again).await, (300, 0));
    for run in &runs {
        let header = store.header(*run).await.expect("reads").expect("is there");
        assert_eq!(header.state, RunState::Asleep { wake_at: None });
    }
    assert_eq!(
        again.status(runs[0]).await.expect("is there"),
        RunStatus::Active
    );
    assert_eq!(ledger.asked(), 0);
    again.queue("mail").resume().await.expect("is resumed");
    for run in runs {
        let run = again.run::<job>(run).await.expect("is there");
        run.result().await.expect("ends well");
    }
    assert_eq!(ledger.asked(), 300);
}

/// One run, through two crashes that are further apart than its lease.
async fn comes_to_its_end(crashes: [(u64, Fault); 2]) {
    let (ledger, mut plans) = (Ledger::shared(), crashes.into_iter());
    let mut store = MemoryStore::new();
    loop {
        let plan = plans.next();
        let is_last = plan.is_none();
        store.set_faults(plan.map_or_else(FaultPlan::none, |(write, fault)| {
            FaultPlan::at(write, fault)
        }));
        let shop = Workshop::new(OPEN);
        let living = async {
            let queue = mail().concurrency(1).lease(Duration::from_millis(1));
            let builder = engine(&shop, &ledger, queue);
            let engine = builder.open_with(store.clone()).await.expect("opens");
            let start = engine.start(call("it", "ada")).key("it").queue("mail");
            let run = start.await.expect("is queued");
            let result = tokio::time::timeout(Duration::from_secs(5), run.result());
            let result = result.await;
            result.unwrap_or_else(|_| panic!("{crashes:?}: nobody wakes it"))
        };
        tokio::select! {
            biased;
            () = store.crashed() => assert!(!is_last),
            result = living => return drop(result.expect("ends well")),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        store = store.reopen(Surviving::Synced);
    }
}

/// Found by the battery's simulation: the second process gave the slot away, because the lease was over, and with it went all that
/// a third one could have woken the run by.
#[tokio::test]
async fn a_run_whose_turn_had_come_is_woken_by_the_third_process_though_its_lease_is_over() {
    let deaths = [Fault::CrashBefore, Fault::CrashAfter];
    for first in (0..5).flat_map(|write| deaths.map(|fault| (write, fault))) {
        for second in (0..4).flat_map(|write| deaths.map(|fault| (write, fault))) {
            comes_to_its_end([first, second]).await;
        }
    }
}
