//! Events that come three times in any order, with a crash at every write: each is acted on once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{Accepted, Engine, InboxError};
use workflow_tests::Ledger;

use super::{fulfil, gather, open};

/// What the source delivers: orders below 4 (with a key, in a queue, neither, both), payments from 4 on, a batch of two at a time now and then.
const EVENTS: u64 = 7;

/// Each event three times, in an order that follows from the seed.
fn deliveries(seed: u64) -> Vec<u64> {
    let mut deliveries: Vec<u64> = (0..3 * EVENTS).map(|n| n % EVENTS).collect();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for at in (1..deliveries.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        deliveries.swap(at, (state >> 33) as usize % (at + 1));
    }
    deliveries
}

struct Consumer {
    /// What is to be delivered, the next one last.
    left: Vec<u64>,
    answers: HashMap<u64, Vec<Accepted>>,
}

impl Consumer {
    /// Delivers what is left. A delivery without an answer is made again by the next process.
    async fn consume(&mut self, engine: &Engine) {
        let inbox = engine.inbox("source");
        let gathering = engine.start(gather()).key("gather").await.expect("starts");
        while !self.left.is_empty() {
            let count = if self.left.len().is_multiple_of(5) {
                2
            } else {
                1
            };
            let events: Vec<u64> = self.left.iter().rev().take(count).copied().collect();
            let accepting = events.iter().map(|event| match event {
                0 => inbox.accept(*event).start(fulfil(*event)).into(),
                1 => inbox.accept(*event).start(fulfil(*event)).key("o-1").into(),
                2 => inbox
                    .accept(*event)
                    .start(fulfil(*event))
                    .queue("slow")
                    .into(),
                3 => inbox
                    .accept(*event)
                    .start(fulfil(*event))
                    .key("o-3")
                    .queue("slow")
                    .into(),
                _ => inbox
                    .accept(*event)
                    .signal(gathering.id(), "payment", event),
            });
            for (event, answer) in events.iter().zip(inbox.accept_all(accepting).await) {
                match answer {
                    Ok(accepted) => self.answers.entry(*event).or_default().push(accepted),
                    Err(InboxError::Keys(_) | InboxError::Engine(_)) => return, // the store has stopped
                    Err(other) => panic!("{other}"),
                }
            }
            self.left.truncate(self.left.len() - count);
        }
    }
}

/// Delivers everything through one crash, and checks that each event was acted on once.
async fn live_through(seed: u64, plan: FaultPlan) -> u64 {
    let ledger = Ledger::shared();
    let mut consumer = Consumer {
        left: deliveries(seed),
        answers: HashMap::new(),
    };
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = live(&store, &ledger, &mut consumer);
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => break,
        }
        store = store.reopen(Surviving::Synced);
    }
    for event in 0..EVENTS {
        let answers = &consumer.answers[&event];
        assert!(answers.len() >= 3);
        for answer in answers {
            let (first, same) = (&answers[0], (answer.run, answer.accepted_at));
            assert_eq!(same, (first.run, first.accepted_at), "{event}");
        }
    }
    assert_eq!(
        ledger.effects(),
        ["order 0", "order 1", "order 2", "order 3"]
    );
    store.writes()
}

/// One process: delivers, then waits for all that was caused.
async fn live(store: &MemoryStore, ledger: &Arc<Ledger>, consumer: &mut Consumer) {
    let engine = open(store, ledger).await;
    consumer.consume(&engine).await;
    if !consumer.left.is_empty() {
        return std::future::pending().await; // the process is about to die
    }
    let gathering = engine.start(gather()).key("gather").await.expect("starts");
    // It may have ended before the crash.
    let _ = gathering.signal("payment", &0u64).key("end").await;
    let mut payments = gathering.result().await.expect("ends");
    payments.sort_unstable();
    assert_eq!(payments, [4, 5, 6]);
    for event in 0..4 {
        let run = consumer.answers[&event][0].run;
        let run = engine.run::<fulfil>(run).await.expect("is there");
        run.result().await.expect("ends");
    }
    let runs = engine.runs().limit(100).await.expect("lists").runs;
    assert_eq!(runs.len(), 5);
}

#[tokio::test]
async fn a_crash_at_any_write_neither_loses_an_event_nor_acts_on_it_twice() {
    let writes = live_through(1, FaultPlan::none()).await;
    assert!(writes >= 12, "{writes}");
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let lived = live_through(1 + write, FaultPlan::at(write, fault));
            let lived = tokio::time::timeout(Duration::from_secs(30), lived).await;
            lived.unwrap_or_else(|_| panic!("{write} {fault:?}: it does not end"));
        }
    }
}

#[tokio::test]
async fn any_order_with_several_crashes_comes_out_the_same() {
    for seed in 0..60u64 {
        let plan = FaultPlan::at(seed % 17, Fault::CrashAfter);
        let plan = plan.and(seed % 11 + 20, Fault::CrashBefore);
        let lived = tokio::time::timeout(Duration::from_secs(30), live_through(seed, plan));
        lived
            .await
            .unwrap_or_else(|_| panic!("{seed}: it does not end"));
    }
}
