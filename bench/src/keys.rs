//! Keys: how fast one is answered that has an outcome.

use std::time::{Duration, Instant};

use workflow_runtime::idempotency::{KeyId, KeyStore, OwnerId, Reservation, Reserve};
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{Engine, step, workflow};

use crate::report::{Figure, median};

/// Lookups of one measurement.
const LOOKUPS: u32 = 200_000;

/// Keys that are asked for in turn.
const KEYS: u32 = 1_000;

#[step]
async fn rate(key: u32) -> u64 {
    u64::from(key) * 7
}

#[workflow]
async fn asking() -> u64 {
    let mut sum = 0;
    for key in 0..KEYS {
        let hour = Duration::from_secs(3600);
        sum += rate(key).idempotency_key(key).shared(hour).await;
    }
    sum
}

/// Lookups per second on one core, of keys that steps share: what a call does before it records its copy. Checks that
/// none of them writes.
fn shared_lookups_per_second() -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let store = MemoryStore::new();
        let engine = Engine::builder()
            .register::<asking>()
            .open_with(store.clone())
            .await
            .expect("it opens");
        let run = engine.start(asking()).await.expect("it starts");
        run.result().await.expect("it ends");
        let keys = engine.keys();
        let mut requests = Vec::new();
        for key in 0..KEYS {
            let key = KeyId::derive("step", "rate", &key.into());
            let entry = keys.look_up(key).await.expect("it is read");
            requests.push(Reserve {
                key,
                body: entry.expect("it has an outcome").body,
                owner: OwnerId::next(),
                lease: Duration::MAX,
            });
        }
        let writes = store.writes();
        let began = Instant::now();
        for n in 0..LOOKUPS {
            let request = requests[(n % KEYS) as usize];
            let answer = keys.reserve(request).await.expect("it is answered");
            assert!(matches!(answer, Reservation::Done(_)));
        }
        let seconds = began.elapsed().as_secs_f64();
        assert_eq!(store.writes(), writes, "a lookup writes nothing");
        f64::from(LOOKUPS) / seconds
    })
}

/// Measures lookups. Says whether they are as fast as asked.
pub fn shared_lookups(repeats: usize) -> bool {
    let mut rates: Vec<f64> = (0..repeats).map(|_| shared_lookups_per_second()).collect();
    Figure::engine("shared-lookups", "lookups_per_s", median(&mut rates))
        .at_least(100_000.0)
        .print()
}
