//! `engine.once(key)` on a store that fails: whoever waits for another's work hears of it at once.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::Notify;
use tokio::time::timeout;
use workflow_runtime::idempotency::{KeyError, OnceError};
use workflow_runtime::store::StoreError;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore};
use workflow_runtime::{Engine, Error, Health};

/// Far more than anything here takes on a busy machine, and far less than the lease.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nobody waits until it is over.
const LEASE: Duration = Duration::from_secs(86_400);

/// Whether the one that has the key ends when the store has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Ends,
    Hangs,
}

async fn hear_of_a_failure(owner: Owner) {
    let store = MemoryStore::new();
    let engine = Engine::builder().open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let (begun, failed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let working = tokio::spawn({
        let (begun, failed) = (begun.clone(), failed.clone());
        let once = engine.once("guarded").lease(LEASE);
        once.run(async move || {
            begun.notify_one();
            match owner {
                Owner::Ends => failed.notified().await,
                Owner::Hangs => pending().await,
            }
            Ok::<u64, Error>(1)
        })
    });
    begun.notified().await;
    let waiting = (0..3).map(|_| {
        let once = engine.once("guarded").lease(LEASE);
        tokio::spawn(once.run(async || Ok::<u64, Error>(2)))
    });
    let waiting: Vec<_> = waiting.collect();
    tokio::time::sleep(Duration::from_millis(20)).await; // so that they wait
    store.set_faults(FaultPlan::at(store.writes(), Fault::FailWrite));
    let refused = engine.once("another").run(async || Ok::<u64, Error>(3));
    refused.await.expect_err("the store fails");
    failed.notify_one();
    let heard = timeout(PATIENCE, join_all(waiting)).await;
    for heard in heard.unwrap_or_else(|_| panic!("{owner:?}: they wait for ever")) {
        match heard.expect("no panic") {
            Err(OnceError::Keys(KeyError::Store(StoreError::Failed { error }))) => {
                assert!(error.contains("injected fault"), "{error}");
            }
            other => panic!("{owner:?}: {other:?}"),
        }
    }
    assert!(matches!(engine.health(), Health::StoreFailed(_)));
    match owner {
        Owner::Hangs => working.abort(),
        Owner::Ends => {
            let ended = timeout(PATIENCE, working).await.expect("it ends");
            let ended = ended.expect("no panic");
            assert!(matches!(ended, Err(OnceError::NotRecorded(_))), "{ended:?}");
        }
    }
    let mended = timeout(PATIENCE, engine.reopen()).await.expect("no hang");
    let again = mended.expect("reopens");
    let again = again.once("guarded").run(async || Ok::<u64, Error>(4));
    let done = timeout(PATIENCE, again).await.expect("no hang");
    assert_eq!(done.expect("nobody has it any more"), 4);
}

#[tokio::test]
async fn who_waits_for_anothers_work_hears_that_the_store_failed_however_long_the_lease() {
    hear_of_a_failure(Owner::Hangs).await;
}

#[tokio::test]
async fn who_waits_for_anothers_work_hears_that_the_store_failed_when_that_work_ends() {
    hear_of_a_failure(Owner::Ends).await;
}
