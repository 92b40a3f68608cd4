//! Changes whose proof is not one run of the old code: patches that are taken out, steps that are done again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::testing::{Class, Lock};
use workflow_runtime::{Engine, Workflow, get_step_metadata};

use super::parts::*;
use super::proofs::parked;

/// Judges a change from one workflow to another.
fn judged<Old: Workflow, New: Workflow>() -> Option<Class> {
    let old = Lock::new().workflow::<Old>().to_string();
    let changed = Lock::new().workflow::<New>().compare(&old);
    changed.expect("is a lock").class()
}

mod patches {
    use super::*;

    #[workflow(name = "patching")]
    pub(super) async fn before(n: u64) -> Result<u64> {
        a(n).await?;
        b().await
    }

    #[workflow(name = "patching")]
    pub(super) async fn during(n: u64) -> Result<u64> {
        a(n).await?;
        if patched("c first") {
            c().await?;
        }
        b().await
    }

    #[workflow(name = "patching")]
    pub(super) async fn deprecated(n: u64) -> Result<u64> {
        a(n).await?;
        deprecate_patch("c first");
        c().await?;
        b().await
    }

    #[workflow(name = "patching")]
    pub(super) async fn after(n: u64) -> Result<u64> {
        a(n).await?;
        c().await?;
        b().await
    }
}

#[tokio::test]
async fn a_patch_that_is_taken_out_breaks_the_runs_from_before_it_and_no_others() {
    use patches::{after, before, deprecated, during};
    assert_eq!(judged::<before, during>(), Some(Class::Safe));
    assert!(parked::<before, during>(before(1)).await.is_empty());

    assert_eq!(judged::<during, deprecated>(), Some(Class::Breaking));
    assert_eq!(judged::<during, after>(), Some(Class::Breaking));
    assert!(!parked::<before, deprecated>(before(1)).await.is_empty());
    assert!(!parked::<before, after>(before(1)).await.is_empty());
    assert!(parked::<during, deprecated>(during(1)).await.is_empty());
    assert!(parked::<during, after>(during(1)).await.is_empty());

    assert_eq!(judged::<deprecated, after>(), None);
    assert!(parked::<deprecated, after>(deprecated(1)).await.is_empty());
}

/// Counts the bodies that were begun.
#[derive(Default)]
struct Begun(AtomicU32);

mod guarded {
    use super::*;

    #[step(name = "pay", at_most_once)]
    async fn pay(#[resource] begun: &Begun) -> Result<u32> {
        begun.0.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }

    #[workflow(name = "paying")]
    pub(super) async fn order() -> Result<u32> {
        pay().await
    }
}

mod unguarded {
    use super::*;

    #[step(name = "pay")]
    async fn pay(#[resource] begun: &Begun) -> Result<u32> {
        begun.0.fetch_add(1, Ordering::SeqCst);
        Ok(get_step_metadata().attempt)
    }

    #[workflow(name = "paying")]
    pub(super) async fn order() -> Result<u32> {
        pay().await
    }
}

#[tokio::test]
async fn a_step_that_is_no_longer_at_most_once_is_done_again_by_a_run_that_was_interrupted_in_it() {
    assert_eq!(
        judged::<guarded::order, unguarded::order>(),
        Some(Class::Breaking)
    );
    for again in [false, true] {
        let begun = Arc::new(Begun::default());
        let store = MemoryStore::new();
        let engine = Engine::builder()
            .register::<guarded::order>()
            .resource_arc(begun.clone());
        let engine = engine.open_with(store.clone()).await.expect("opens");
        let run = engine
            .start(guarded::order())
            .key("run")
            .await
            .expect("starts");
        while begun.0.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        drop(engine);
        let store = store.reopen(Surviving::Synced);
        let builder = Engine::builder().resource_arc(begun.clone());
        if again {
            let engine = builder.register::<unguarded::order>().open_with(store);
            let engine = engine.await.expect("opens");
            let run = engine
                .run::<unguarded::order>(run.id())
                .await
                .expect("is there");
            run.result().await.expect("ends well");
            assert_eq!(begun.0.load(Ordering::SeqCst), 2);
        } else {
            let engine = builder.register::<guarded::order>().open_with(store);
            let engine = engine.await.expect("opens");
            let run = engine
                .run::<guarded::order>(run.id())
                .await
                .expect("is there");
            assert!(
                run.result().await.is_err(),
                "it is told that it was interrupted"
            );
            assert_eq!(begun.0.load(Ordering::SeqCst), 1);
        }
    }
}

mod versions {
    use super::*;

    #[workflow(name = "versioned")]
    pub(super) async fn first(n: u64) -> Result<u64> {
        a(n).await
    }

    #[workflow(name = "versioned", version = 2)]
    pub(super) async fn second(n: u64) -> Result<u64> {
        b().await?;
        a(n).await
    }

    #[workflow(name = "renamed")]
    pub(super) async fn renamed(n: u64) -> Result<u64> {
        a(n).await
    }
}

#[test]
fn a_version_is_missed_until_the_old_one_stands_beside_it() {
    use versions::{first, renamed, second};
    let old = Lock::new().workflow::<first>().to_string();
    let alone = Lock::new().workflow::<second>().compare(&old).unwrap();
    assert_eq!(alone.class(), Some(Class::Breaking));
    let fix = alone.changes().next().unwrap().fix();
    assert!(
        fix.contains("#[workflow(name = \"versioned\", version = 1)]"),
        "{fix}"
    );

    let both = Lock::new().workflow::<second>().workflow::<first>();
    let both = both.compare(&old).unwrap();
    assert_eq!(both.class(), Some(Class::Safe), "{both}");

    let renamed = Lock::new().workflow::<renamed>().compare(&old).unwrap();
    assert_eq!(renamed.class(), Some(Class::Breaking));
    let fix = renamed.changes().next().unwrap().fix();
    assert_eq!(fix, "keep the name: `#[workflow(name = \"versioned\")]`");
}
