//! Every rule of the lock, proved by an engine: a run is recorded with the old code, cut at every record at which a
//! process could have died, and resumed with the new code. It goes on everywhere if and only if the change is safe.

use std::time::Duration;

use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::testing::{Class, Lock, TestEngine};
use workflow_runtime::{RunError, Workflow, WorkflowCall};
use workflow_tests::{cut, frames};

/// How long a run is waited for that may be waiting for somebody: virtual time.
const LONG: Duration = Duration::from_secs(30 * 86_400);

/// Records a run with the old code and resumes it with the new from every record on; gives how many records were left
/// where it was parked, and why.
pub(super) async fn parked<Old: Workflow, New: Workflow>(
    call: WorkflowCall<Old>,
) -> Vec<(usize, String)> {
    let store = MemoryStore::new();
    let engine = TestEngine::builder().register::<Old>().store(store.clone());
    let engine = engine.open().await.expect("opens");
    let run = engine.start(call).key("run").await.expect("starts");
    if let Ok(waits) = tokio::time::timeout(LONG, run.result()).await {
        assert!(waits.is_ok(), "the old code itself fails");
    } else {
        for name in ["go", "stop"] {
            run.signal(name, &true).await.expect("is sent");
        }
        assert!(run.result().await.is_ok(), "the old code itself fails");
    }
    let journal = engine.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    let mut parked = Vec::new();
    for records in 1..recorded.len() {
        let store = cut(journal.header(), &recorded, records).await;
        let engine = TestEngine::builder().register::<New>().store(store);
        let engine = engine.open().await.expect("opens");
        let run = engine.run::<New>(run.id()).await.expect("is there");
        match tokio::time::timeout(LONG, run.result()).await {
            Err(_) | Ok(Ok(_)) => {}
            Ok(Err(RunError::Parked(parking))) => {
                parked.push((records, parking.report.to_string()))
            }
            Ok(Err(_)) => panic!("the new code fails from record {records} on"),
        }
    }
    parked
}

/// Checks that the lock says of a change what an engine makes of it.
pub(super) async fn prove<Old: Workflow, New: Workflow>(call: WorkflowCall<Old>, expected: Class) {
    let old = Lock::new().workflow::<Old>().to_string();
    let changed = Lock::new()
        .workflow::<New>()
        .compare(&old)
        .expect("is a lock");
    let judged = changed.class().unwrap_or(Class::Safe);
    assert_eq!(
        judged,
        expected,
        "{changed}\n\n{old}\n{}",
        Lock::new().workflow::<New>()
    );
    let parked = parked::<Old, New>(call).await;
    assert_eq!(
        parked.is_empty(),
        expected == Class::Safe,
        "{changed}\n\n{parked:?}"
    );
}

/// Says that a change is of a class, and has an engine prove it.
macro_rules! proof {
    ($name:ident: $class:ident, { $($old:item)* } => { $($new:item)* }) => {
        mod $name {
            mod old {
                #[allow(unused_imports, reason = "each proof uses some")]
                use crate::lock::parts::*;
                $($old)*
            }
            mod new {
                #[allow(unused_imports, reason = "each proof uses some")]
                use crate::lock::parts::*;
                $($new)*
            }
            #[tokio::test]
            async fn the_lock_and_an_engine_agree() {
                use workflow_runtime::testing::Class;
                crate::lock::proofs::prove::<old::order, new::order>(old::order(7), Class::$class).await;
            }
        }
    };
}

proof!(nothing_changed: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { let x = a(n).await?; let _ = x; b().await } });

proof!(a_step_is_inserted_in_the_middle: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; c().await?; b().await } });

proof!(a_step_is_inserted_at_the_beginning: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { c().await?; a(n).await } });

proof!(a_step_is_inserted_behind_a_patch: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        a(n).await?;
        if patched("c too") { c().await?; }
        b().await
    } });

proof!(a_step_is_appended_at_the_end: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await?; c().await } });

proof!(a_step_is_appended_to_the_body_of_a_loop: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { for i in 0..2 { a(i).await?; } Ok(n) } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { for i in 0..2 { a(i).await?; c().await?; } Ok(n) } });

proof!(a_step_is_taken_out: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; c().await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } });

proof!(the_last_step_is_taken_out: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await } });

proof!(a_step_is_taken_out_behind_a_patch: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; c().await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        a(n).await?;
        if !patched("no c") { c().await?; }
        b().await
    } });

proof!(two_steps_change_places: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { b().await?; a(n).await } });

proof!(a_step_is_replaced_behind_a_patch: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        a(n).await?;
        if patched("c for b") { c().await } else { b().await }
    } });

proof!(a_step_function_is_renamed: Breaking,
{ #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
{
    #[step] async fn other_b() -> Result<u64> { Ok(2) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; other_b().await }
});

proof!(a_step_function_is_renamed_and_keeps_its_name: Safe,
{ #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
{
    #[step(name = "b")] async fn other_b() -> Result<u64> { Ok(2) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; other_b().await }
});

proof!(a_condition_is_another: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { if n > 5 { a(n).await?; } b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { if n > 50 { a(n).await?; } b().await } });

proof!(a_step_goes_into_a_branch: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { if n > 50 { a(n).await?; } b().await } });

proof!(a_loop_goes_on_for_longer: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { for i in 0..2 { a(i).await?; } b().await?; Ok(n) } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { for i in 0..3 { a(i).await?; } b().await?; Ok(n) } });

proof!(a_step_goes_into_an_async_block: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { async { a(n).await }.await?; b().await } });

proof!(a_step_goes_into_a_helper: NeedsPatch,
{ #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
{
    #[workflow(inline)] async fn part(n: u64) -> Result<u64> { a(n).await }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { part(n).await?; b().await }
});

proof!(a_block_is_made_before_others: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        join!(async { a(n).await }).0?; b().await
    } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        let (x, y) = join!(async { c().await }, async { a(n).await });
        x?; y?; b().await
    } });

proof!(branches_that_are_calls_change_places: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        let (x, y) = join!(a(n), b()); x?; y?; c().await
    } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        let (y, x) = join!(b(), a(n)); x?; y?; c().await
    } });

proof!(branches_that_are_blocks_change_places: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        let (x, y) = join!(async { a(n).await }, async { b().await }); x?; y?; c().await
    } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        let (y, x) = join!(async { b().await }, async { a(n).await }); x?; y?; c().await
    } });

proof!(a_branch_is_added_to_the_last_join: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        let (x, y) = join!(async { a(n).await }, async { b().await }); x?; y
    } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        let (x, y, z) = join!(async { a(n).await }, async { b().await }, async { c().await }); x?; y?; z
    } });

proof!(a_branch_is_added_to_a_join_with_steps_behind_it: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        let (x, y) = join!(async { a(n).await }, async { b().await }); x?; y?; d().await
    } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        let (x, y, z) = join!(async { a(n).await }, async { b().await }, async { c().await }); x?; y?; z?; d().await
    } });

proof!(a_step_is_appended_to_a_branch_of_the_last_join: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        let (x, y) = join!(async { a(n).await }, async { b().await }); x?; y
    } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> {
        let (x, y) = join!(async { a(n).await?; c().await }, async { b().await }); x?; y
    } });

proof!(a_call_gets_a_key: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).key("x").await?; b().await } });

proof!(a_scope_gets_another_name: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { scope("x", || async { a(n).await }).await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { scope("y", || async { a(n).await }).await } });

proof!(a_sleep_is_inserted: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; sleep(SECOND).await; b().await } });

proof!(a_sleep_is_taken_out: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; sleep(SECOND).await; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } });

proof!(a_wait_for_a_signal_is_inserted: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; let _: bool = wait_for("go").await?; b().await } });

proof!(a_wait_for_a_signal_is_taken_out: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; let _: bool = wait_for("go").await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } });

proof!(another_signal_is_waited_for: NeedsPatch,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; let _: bool = wait_for("go").await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; let _: bool = wait_for("walk").await?; b().await } });

proof!(something_is_published: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { publish("state", &1); a(n).await?; b().await } });

proof!(options_of_a_step_change: Safe,
{
    #[step(name = "s", max_attempts = 5, timeout = "10s")] async fn s() -> Result<u64> { Ok(1) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { s().await?; a(n).await }
} =>
{
    #[step(name = "s", effect = "read", fresh_for = "30d", durability = "buffered")] async fn s() -> Result<u64> { Ok(1) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { s().await?; a(n).await }
});

proof!(a_step_is_named_by_a_key: Breaking,
{
    #[step] async fn s(n: u64) -> Result<u64> { Ok(n) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { s(n).await?; a(n).await }
} =>
{
    #[step(key = n.to_string())] async fn s(n: u64) -> Result<u64> { Ok(n) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { s(n).await?; a(n).await }
});

proof!(a_step_becomes_at_most_once: Safe,
{
    #[step] async fn s(n: u64) -> Result<u64> { Ok(n) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { s(n).await?; a(n).await }
} =>
{
    #[step(at_most_once)] async fn s(n: u64) -> Result<u64> { Ok(n) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { s(n).await?; a(n).await }
});

proof!(replay_becomes_tolerant_and_a_step_is_inserted: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } } =>
    { #[workflow(name = "order", changes = "tolerant")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; c().await?; b().await } });

proof!(replay_is_tolerant_and_a_step_is_taken_out: Safe,
    { #[workflow(name = "order", changes = "tolerant")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; c().await?; b().await } } =>
    { #[workflow(name = "order", changes = "tolerant")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await?; b().await } });

proof!(replay_is_tolerant_and_a_call_takes_the_place_of_a_later_one: NeedsPatch,
    { #[workflow(name = "order", changes = "tolerant")] pub(super) async fn order(n: u64) -> Result<u64> { b().await?; a(n).await } } =>
    { #[workflow(name = "order", changes = "tolerant")] pub(super) async fn order(n: u64) -> Result<u64> { a(n + 1).await?; b().await?; a(n).await } });
