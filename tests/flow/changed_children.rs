//! Children in replay: what the journal knows of them is compared with what the code calls now.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use workflow_runtime::journal::{Event, Record};
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{
    Engine, Result, RunError, Workflow, WorkflowCall, start_child, step, wait_for, workflow,
};
use workflow_tests::{cut, frames};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Parcel {
    weight: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct InsuredParcel {
    weight: u32,
    #[serde(default)]
    insured: bool,
}

#[workflow(name = "ship")]
async fn ship(parcel: Parcel) -> Result<u32> {
    Ok(parcel.weight)
}

#[workflow(name = "ship")]
async fn ship_insured(parcel: InsuredParcel) -> Result<u32> {
    Ok(parcel.weight + u32::from(parcel.insured))
}

#[workflow(name = "other")]
async fn other(parcel: Parcel) -> Result<u32> {
    Ok(parcel.weight)
}

#[workflow(name = "count")]
async fn count(all: HashSet<u32>) -> Result<u32> {
    Ok(all.into_iter().sum())
}

#[step]
async fn nothing() -> Result<u32> {
    Ok(0)
}

#[workflow(name = "parent")]
async fn original() -> Result<u32> {
    let weight = ship(Parcel { weight: 7 }).await?;
    nothing().await?;
    Ok(weight)
}

#[workflow(name = "parent")]
async fn with_a_set() -> Result<u32> {
    count((0..100).collect()).await // its order differs in every process, and in every set
}

/// Records `old` and resumes it with `New`, without its last records and without the child.
async fn resumed_by<New, Old>(
    old: WorkflowCall<Old>,
    without: usize,
) -> (Result<u32, RunError<New::Error>>, Engine)
where
    Old: Workflow<Ok = u32>,
    New: Workflow<Ok = u32>,
    Old::Error: std::fmt::Debug,
{
    let builder = || Engine::builder().register::<other>().register::<count>();
    let store = MemoryStore::new();
    let engine = builder()
        .register::<Old>()
        .register::<ship>()
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(old).await.expect("starts");
    run.result().await.expect("ends well");
    let journal = engine.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    let before = cut(journal.header(), &recorded, recorded.len() - without).await;
    let engine = builder()
        .register::<New>()
        .register::<ship_insured>()
        .open_with(before)
        .await
        .expect("opens");
    let run = engine.run::<New>(run.id()).await.expect("is there");
    (run.result().await, engine)
}

#[workflow(name = "waiting")]
async fn waiting() -> Result<u32> {
    wait_for::<u32>("weight").await
}

#[workflow(name = "parent")]
async fn calls_one_that_waits() -> Result<u32> {
    nothing().await?;
    waiting().await
}

#[workflow(name = "parent")]
async fn calls_it_later() -> Result<u32> {
    nothing().await?;
    let weight = wait_for::<u32>("weight").await?;
    Ok(weight + waiting().await?)
}

#[tokio::test]
async fn a_cancelled_run_is_not_parked_for_a_child_that_it_did_not_come_to() {
    let store = MemoryStore::new();
    let engine = Engine::builder()
        .register::<calls_one_that_waits>()
        .register::<waiting>();
    let engine = engine.open_with(store.clone()).await.expect("opens");
    let run = engine.start(calls_one_that_waits()).await.expect("starts");
    while engine.runs().await.expect("lists").runs.len() < 2 {
        tokio::task::yield_now().await;
    }
    run.cancel().reason("enough").await.expect("asks");
    run.result().await.expect_err("is cancelled");
    let journal = engine.journal(run.id()).await.expect("reads");
    let is_request = |record: &Record| matches!(record.event, Event::CancelRequested(_));
    let request = journal.records().iter().position(is_request);
    let request = request.expect("is on record");
    let is_child = |record: &Record| matches!(record.event, Event::ChildStarted(_));
    assert!(journal.records()[..request].iter().any(is_child));

    // As it was before it had ended; and code that comes to the child later than it did.
    let recorded = frames(&store, run.id()).await;
    let before = cut(journal.header(), &recorded, request + 1).await;
    let engine = Engine::builder()
        .register::<calls_it_later>()
        .register::<waiting>();
    let engine = engine.open_with(before).await.expect("opens");
    let run = engine.run::<calls_it_later>(run.id()).await;
    let error = run.expect("is there").result().await;
    let error = error.expect_err("it was asked to stop");
    assert!(
        matches!(&error, RunError::Cancelled { reason } if reason == "enough"),
        "{error}"
    );
}

/// Parks, and gives the report.
async fn report_of<New: Workflow<Ok = u32>>(without: usize) -> String {
    match resumed_by::<New, original>(original(), without).await {
        (Err(RunError::Parked(parking)), _) => {
            assert_eq!(parking.reason, ParkReason::Diverged);
            parking.report.to_string()
        }
        (Err(_), _) => panic!("not parked"),
        (Ok(value), _) => panic!("went on to {value}"),
    }
}

#[workflow(name = "parent")]
async fn calls_another() -> Result<u32> {
    other(Parcel { weight: 7 }).await
}

#[workflow(name = "parent")]
async fn waits_for_a_signal() -> Result<u32> {
    wait_for::<u32>("weight").await
}

#[workflow(name = "parent")]
async fn returns_at_once() -> Result<u32> {
    Ok(7)
}

#[tokio::test]
async fn a_child_that_the_code_no_longer_calls_parks_the_run_and_both_sides_are_named() {
    // With the child's end in the journal, and with its start only.
    for without in [2, 3] {
        let report = report_of::<calls_another>(without).await;
        assert!(
            report.contains("the child workflow `ship` (run_"),
            "{report}"
        );
        assert!(
            report.contains("the code asked for: the child workflow `other`"),
            "{report}"
        );
        assert_eq!(
            report.matches("changed_children.rs:").count(),
            2,
            "{report}"
        );
        let report = report_of::<waits_for_a_signal>(without).await;
        assert!(
            report.contains("the child workflow `ship` (run_"),
            "{report}"
        );
        assert!(
            report.contains("the code asked for: the signal `weight`"),
            "{report}"
        );
    }
    let report = report_of::<returns_at_once>(3).await;
    assert!(
        report.contains("the child workflow `ship` (run_"),
        "{report}"
    );
    assert!(
        report.contains("returned without asking for it"),
        "{report}"
    );
}

#[workflow(name = "parent")]
async fn ships_last() -> Result<u32> {
    nothing().await?;
    ship(Parcel { weight: 7 }).await
}

#[tokio::test]
async fn a_child_that_is_called_later_than_it_ended_parks_the_run() {
    let report = report_of::<ships_last>(1).await;
    assert!(
        report.contains("the child workflow `ship` (run_"),
        "{report}"
    );
    assert!(report.contains("the code asked for:"), "{report}");
    assert!(report.contains("nothing"), "{report}");
}

#[workflow(name = "parent")]
async fn heavier() -> Result<u32> {
    ship_insured(InsuredParcel {
        weight: 987_654,
        insured: false,
    })
    .await
}

#[tokio::test]
async fn a_child_with_other_input_parks_the_run_and_the_field_is_named() {
    let (result, engine) = resumed_by::<heavier, original>(original(), 3).await;
    let Err(RunError::Parked(parking)) = result else {
        panic!("{result:?}");
    };
    assert_eq!(parking.reason, ParkReason::Diverged);
    assert!(
        parking.report.contains("other input: parcel.weight"),
        "{}",
        parking.report
    );
    assert!(
        !parking.report.contains("987654"),
        "a value is shown: {}",
        parking.report
    );
    let run = engine.runs().await.expect("lists").runs[0].run;
    let detail = engine
        .parked_detail(run)
        .await
        .expect("reads")
        .expect("is there");
    assert!(
        detail.contains("parcel.weight: journal 7 | code 987654"),
        "{detail}"
    );
}

#[workflow(name = "parent")]
async fn insured() -> Result<u32> {
    let weight = ship_insured(InsuredParcel {
        weight: 7,
        insured: true,
    })
    .await?;
    nothing().await?;
    Ok(weight)
}

#[tokio::test]
async fn a_childs_input_with_an_added_field_is_a_warning() {
    let (result, engine) = resumed_by::<insured, original>(original(), 1).await;
    assert_eq!(result.expect("ends well"), 7, "what was recorded");
    let warnings = engine.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].message.contains("fields"), "{warnings:?}");
}

#[tokio::test]
async fn a_childs_input_in_another_order_is_a_warning() {
    let (result, engine) = resumed_by::<with_a_set, with_a_set>(with_a_set(), 1).await;
    assert_eq!(result.expect("ends well"), 4950);
    let warnings = engine.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].message.contains("order of a sequence"),
        "{warnings:?}"
    );
}

#[workflow(name = "parent")]
async fn edited() -> Result<u32> {
    // More of everything around it, and nothing of it in the same scope and of the same name.
    nothing().await?;
    let inner = async { ship(Parcel { weight: 1 }).await };
    let keyed = ship(Parcel { weight: 2 }).key("second");
    let first = start_child(ship(Parcel { weight: 7 }));
    let first = first.id().to_string();
    inner.await?;
    keyed.await?;
    nothing().await?;
    Ok(first.len() as u32)
}

#[tokio::test]
async fn edits_elsewhere_leave_a_childs_id_alone() {
    let engine = Engine::builder()
        .namespace("ids")
        .register::<ship>()
        .register::<edited>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(edited()).key("same").await.expect("starts");
    run.result().await.expect("ends well");
    let plain = Engine::builder()
        .namespace("ids")
        .register::<ship>()
        .register::<original>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = plain.start(original()).key("same").await.expect("starts");
    run.result().await.expect("ends well");
    let ids = |page: workflow_runtime::RunsPage| -> HashSet<_> {
        page.runs.into_iter().map(|header| header.run).collect()
    };
    let before = ids(plain.runs().workflow("ship").await.expect("lists"));
    let after = ids(engine.runs().workflow("ship").await.expect("lists"));
    assert_eq!((before.len(), after.len()), (1, 3));
    assert!(before.is_subset(&after), "{before:?} {after:?}");
}
