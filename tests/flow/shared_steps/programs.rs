//! Random programs of several runs with few keys, random failures and random crashes: every key has one outcome in all
//! journals, and one id outside.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{Either, join_all, select};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Error, Result, StepId, get_step_metadata, sleep, step, workflow,
};

use super::AN_HOUR;

/// What a run does, one after the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Act {
    /// A call under a key that all runs share.
    Shared(u8),
    /// A call under a key of the run's own.
    Own(u8),
    /// Several under shared keys at once.
    Join(Vec<u8>),
    /// One that is dropped if another is faster.
    Race(u8, u8),
    /// A durable sleep.
    Nap,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let key = 0..3u8;
    let act = prop_oneof![
        4 => key.clone().prop_map(Act::Shared),
        2 => key.clone().prop_map(Act::Own),
        2 => prop::collection::vec(key.clone(), 1..4).prop_map(Act::Join),
        2 => (key.clone(), key).prop_map(|(a, b)| Act::Race(a, b)),
        1 => Just(Act::Nap),
    ];
    prop::collection::vec(act, 1..5)
}

/// What is decided anew whenever a body runs, and what the bodies saw.
struct Outside {
    chance: AtomicU64,
    /// The ids that were seen for a key, with the generation-less name of who may use it.
    ids: Mutex<BTreeMap<String, HashSet<StepId>>>,
}

impl Outside {
    fn saw(&self, name: String, id: StepId) {
        let mut ids = self.ids.lock().expect("not poisoned");
        ids.entry(name).or_default().insert(id);
    }

    fn draw(&self) -> u64 {
        let mut x = self
            .chance
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// Takes its time, sometimes fails, and never gives the same value twice.
#[step(max_attempts = 2, backoff = "1ms..1ms")]
async fn work(#[resource] outside: &Outside, name: String) -> Result<u64> {
    outside.saw(name, get_step_metadata().step_id);
    for _ in 0..(outside.draw() % 6).saturating_sub(2) {
        tokio::task::yield_now().await;
    }
    match outside.draw() {
        n if n.is_multiple_of(7) => Err(Error::new("not now")),
        n => Ok(n),
    }
}

/// What a run was given under each key, in order.
type Seen = Vec<(String, u64)>;

async fn shared(key: u8) -> Result<(String, u64)> {
    let name = format!("shared {key}");
    loop {
        let call = work(name.clone()).idempotency_key(key).shared(AN_HOUR);
        match call.await {
            Ok(value) => return Ok((name, value)),
            Err(error) if error.to_string() == "not now" => {}
            Err(error) => return Err(error),
        }
    }
}

#[workflow]
async fn acting(who: u8, acts: Vec<Act>) -> Result<Seen> {
    let mut seen = Seen::new();
    for act in acts {
        match act {
            Act::Shared(key) => seen.push(shared(key).await?),
            Act::Own(key) => {
                let name = format!("own {who} {key}");
                loop {
                    if let Ok(value) = work(name.clone()).idempotency_key(key).await {
                        seen.push((name, value));
                        break;
                    }
                }
            }
            Act::Join(keys) => {
                for one in join_all(keys.into_iter().map(shared)).await {
                    seen.push(one?);
                }
            }
            Act::Race(a, b) => match select(Box::pin(shared(a)), Box::pin(shared(b))).await {
                Either::Left((one, _)) | Either::Right((one, _)) => seen.push(one?),
            },
            Act::Nap => sleep(Duration::from_millis(1)).await,
        }
    }
    Ok(seen)
}

fn engine(outside: &Arc<Outside>) -> EngineBuilder {
    Engine::builder()
        .register::<acting>()
        .resource_arc(outside.clone())
}

async fn every_key_has_one_outcome(programs: Vec<Vec<Act>>, seed: u64, crashes: Vec<u64>) {
    let outside = Arc::new(Outside {
        chance: AtomicU64::new(seed),
        ids: Mutex::default(),
    });
    let faults = [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear];
    let plan = |write: &u64| FaultPlan::at(*write, faults[(seed % 3) as usize]);
    let mut plans = crashes.iter().map(plan);
    let mut store = MemoryStore::with_faults(plans.next().unwrap_or_default());
    let all_seen: Vec<Seen> = loop {
        let living = async {
            let engine = engine(&outside).open_with(store.clone()).await;
            let engine = engine.expect("opens");
            let runs = (0u8..).zip(&programs).map(|(who, acts)| {
                let engine = engine.clone();
                async move {
                    let run = engine.start(acting(who, acts.clone())).key(who).await;
                    run.expect("starts").result().await.expect("ends well")
                }
            });
            join_all(runs).await
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            seen = living => break seen,
        }
        store = store.reopen(Surviving::Synced);
        store.set_faults(plans.next().unwrap_or_default());
    };
    let mut values: HashMap<&str, u64> = HashMap::new();
    for (name, value) in all_seen.iter().flatten() {
        let first = *values.entry(name).or_insert(*value);
        assert_eq!(first, *value, "two outcomes of `{name}`: {all_seen:?}");
    }
    for (name, ids) in &*outside.ids.lock().expect("not poisoned") {
        assert_eq!(ids.len(), 1, "`{name}` was seen under {ids:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_runs_that_share_keys_agree_on_their_outcomes_through_crashes(
        programs in prop::collection::vec(acts(), 1..5),
        seed: u64,
        crashes in prop::collection::vec(0..24u64, 0..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let living = every_key_has_one_outcome(programs, seed, crashes);
            tokio::time::timeout(Duration::from_secs(60), living).await.expect("a run hangs");
        });
    }
}
