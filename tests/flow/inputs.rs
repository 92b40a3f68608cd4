//! Which differences of a step's input replay tolerates, and which it reports.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{Engine, Result, RunError, Workflow, WorkflowCall, step, workflow};
use workflow_tests::{Ledger, cut, frames};

/// Records `old` and resumes it, without its end, with `New`; gives the result and the warnings.
async fn resumed_by<New, Old>(
    old: WorkflowCall<Old>,
) -> (Result<u32, RunError<New::Error>>, Vec<String>)
where
    Old: Workflow<Ok = u32>,
    New: Workflow<Ok = u32>,
    Old::Error: std::fmt::Debug,
{
    let ledger: Arc<Ledger> = Ledger::shared();
    let store = MemoryStore::new();
    let engine = Engine::builder()
        .register::<Old>()
        .resource_arc(ledger.clone())
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(old).await.expect("starts");
    run.result().await.expect("ends well");
    let journal = engine.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    ledger.forget_asking();
    let engine = Engine::builder()
        .register::<New>()
        .resource_arc(ledger.clone())
        .open_with(cut(journal.header(), &recorded, recorded.len() - 1).await)
        .await
        .expect("opens");
    let run = engine.run::<New>(run.id()).await.expect("is there");
    let result = run.result().await;
    assert_eq!(ledger.asked(), 0, "all outcomes were recorded");
    let warnings = engine.warnings();
    assert!(warnings.iter().all(|warning| warning.run == Some(run.id())));
    (
        result,
        warnings
            .iter()
            .map(|warning| warning.message.to_string())
            .collect(),
    )
}

#[step]
async fn count(#[resource] ledger: &Ledger, prices: &HashMap<String, u32>) -> Result<u32> {
    ledger.act("count");
    Ok(prices.values().sum())
}

#[workflow]
async fn with_a_map() -> Result<u32> {
    // Another order of iteration in every process, and in every map.
    let prices = (0..50).map(|n| (format!("item {n}"), n)).collect();
    count(&prices).await
}

#[tokio::test]
async fn the_order_of_a_hash_map_never_diverges() {
    for _ in 0..5 {
        let (result, warnings) = resumed_by::<with_a_map, _>(with_a_map()).await;
        assert_eq!(result.expect("ends well"), 1225);
        assert_eq!(warnings, [""; 0]);
    }
}

#[step]
async fn largest(#[resource] ledger: &Ledger, of: HashSet<u32>) -> Result<u32> {
    ledger.act("largest");
    Ok(of.into_iter().max().unwrap_or_default())
}

#[workflow]
async fn with_a_set() -> Result<u32> {
    largest((0..50).collect()).await
}

#[tokio::test]
async fn the_order_of_a_hash_set_warns_and_goes_on() {
    let (result, warnings) = resumed_by::<with_a_set, _>(with_a_set()).await;
    assert_eq!(result.expect("ends well"), 49);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("HashSet"), "{warnings:?}");
}

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    item: String,
    cents: u32,
}

#[step]
async fn book(#[resource] ledger: &Ledger, order: &Order) -> Result<u32> {
    ledger.act("book");
    Ok(order.cents)
}

#[workflow(name = "booking")]
async fn booking() -> Result<u32> {
    let item = "lamp".to_owned();
    book(&Order { item, cents: 5 }).await
}

mod with_a_field {
    use super::*;

    #[derive(Clone, Serialize, Deserialize)]
    struct Order {
        item: String,
        cents: u32,
        note: Option<String>,
        tags: BTreeMap<String, String>,
    }

    #[step]
    async fn book(#[resource] ledger: &Ledger, order: &Order, gift: Option<u8>) -> Result<u32> {
        let _ = (&order.note, &order.tags, gift);
        ledger.act("book");
        Ok(order.cents)
    }

    #[workflow(name = "booking")]
    pub(super) async fn booking() -> Result<u32> {
        let order = Order {
            item: "lamp".into(),
            cents: 5,
            note: None,
            tags: BTreeMap::new(),
        };
        book(&order, None).await
    }

    #[workflow(name = "booking")]
    pub(super) async fn at_another_price() -> Result<u32> {
        let order = Order {
            item: "lamp".into(),
            cents: 6,
            note: None,
            tags: BTreeMap::new(),
        };
        book(&order, None).await
    }
}

#[tokio::test]
async fn added_fields_and_arguments_warn_and_go_on() {
    let (result, warnings) = resumed_by::<with_a_field::booking, _>(booking()).await;
    assert_eq!(result.expect("ends well"), 5);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("has fields"), "{warnings:?}");
}

#[tokio::test]
async fn removed_fields_warn_and_go_on() {
    let (result, warnings) = resumed_by::<booking, _>(with_a_field::booking()).await;
    assert_eq!(result.expect("ends well"), 5);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[tokio::test]
async fn added_fields_do_not_hide_a_changed_one() {
    let (result, _) = resumed_by::<with_a_field::at_another_price, _>(booking()).await;
    let Err(RunError::Parked(parking)) = result else {
        panic!("is parked");
    };
    assert!(parking.report.contains("order.cents"), "{}", parking.report);
}

#[step]
async fn floats(#[resource] ledger: &Ledger, values: (f64, f32, &[u8], Option<()>)) -> Result<u32> {
    let _ = values;
    ledger.act("floats");
    Ok(3)
}

#[workflow]
async fn with_odd_values() -> Result<u32> {
    floats((f64::NAN, f32::NEG_INFINITY, b"bytes", None)).await
}

#[tokio::test]
async fn not_a_number_is_equal_to_itself_in_replay() {
    let (result, warnings) = resumed_by::<with_odd_values, _>(with_odd_values()).await;
    assert_eq!(result.expect("ends well"), 3);
    assert_eq!(warnings, [""; 0]);
}

#[workflow]
async fn large_input() -> Result<u32> {
    let prices = (0..4000).map(|n| (format!("item {n}"), n)).collect();
    count(&prices).await
}

#[tokio::test]
async fn an_input_too_large_to_be_kept_is_compared_by_its_digest() {
    let store = MemoryStore::new();
    let builder = || {
        Engine::builder()
            .register::<large_input>()
            .resource_arc(Ledger::shared())
    };
    let engine = builder().open_with(store.clone()).await.expect("opens");
    let run = engine.start(large_input()).await.expect("starts");
    run.result().await.expect("ends well");
    let journal = engine.journal(run.id()).await.expect("reads");
    assert!(workflow_tests::steps(&journal)[0].input.is_none());
    let (result, _) = resumed_by::<large_input, _>(large_input()).await;
    result.expect("ends well");
}
