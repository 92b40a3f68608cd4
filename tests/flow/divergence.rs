//! Code that no longer fits a journal is parked before any side effect, with a report; with the
//! old code back, the run carries on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::store::{ParkReason, Parking};
use workflow_runtime::{
    Engine, Error, Result, RunError, RunStatus, Workflow, sleep, step, workflow,
};
use workflow_tests::{Ledger, cut, frames};

#[step]
async fn reserve(#[resource] ledger: &Ledger, item: &str) -> Result<String> {
    ledger.act("reserve");
    Ok(format!("reserved {item}"))
}

#[step]
async fn charge(#[resource] ledger: &Ledger, customer: &str, cents: u64) -> Result<u64> {
    let _ = customer;
    ledger.act("charge");
    Ok(cents)
}

#[step]
async fn inspect(#[resource] ledger: &Ledger) -> Result<()> {
    ledger.act("inspect");
    Ok(())
}

#[workflow(name = "order")]
async fn original() -> Result<u64> {
    reserve("book").await?;
    sleep(Duration::from_millis(1)).await;
    charge("ada", 100).await
}

/// The line of the charge in [`original`].
const CHARGED_AT: u32 = line!() - 4;

/// A journal of `Old` with all outcomes and no end, and what `New` makes of it.
struct Deployed {
    ledger: Arc<Ledger>,
    store: MemoryStore,
    parking: Parking,
    run: workflow_runtime::RunId,
}

/// Records `order` with the original code and resumes it with `New`, which must be parked
/// without having touched anything.
async fn deploy<New: Workflow>() -> Deployed
where
    New::Ok: std::fmt::Debug,
    New::Error: std::fmt::Debug,
{
    let store = MemoryStore::new();
    let engine = Engine::builder()
        .register::<original>()
        .resource_arc(Ledger::shared())
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(original()).key("o-1").await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 100);
    let journal = engine.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    let store = cut(journal.header(), &recorded, recorded.len() - 1).await;

    let ledger = Ledger::shared();
    let engine = Engine::builder()
        .register::<New>()
        .resource_arc(ledger.clone())
        .open_with(store.clone())
        .await
        .expect("opens");
    let handle = engine.run::<New>(run.id()).await.expect("is there");
    let parking = match handle.result().await {
        Err(RunError::Parked(parking)) => *parking,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        handle.status().await.expect("reads"),
        RunStatus::Parked(Box::new(parking.clone()))
    );
    assert_eq!(ledger.asked(), 0, "a body ran");
    assert_eq!(
        frames(&store, run.id()).await,
        recorded[..recorded.len() - 1],
        "the journal was touched"
    );
    Deployed {
        ledger,
        store,
        parking,
        run: run.id(),
    }
}

impl Deployed {
    fn detail(&self) -> String {
        let detail = self.parking.detail.as_ref().expect("there is more to say");
        rmp_serde::from_slice(detail).expect("is text")
    }

    fn report_names(&self, parts: &[&str]) {
        assert_eq!(self.parking.reason, ParkReason::Diverged);
        for part in parts {
            let report = &self.parking.report;
            assert!(report.contains(part), "`{part}` is not in: {report}");
        }
        assert!(self.parking.report.contains("engine.resume(run)"));
        let says_other_input = self.parking.report.contains("other input");
        let means_it = parts.iter().any(|part| part.contains("other input"));
        assert_eq!(says_other_input, means_it, "{}", self.parking.report);
        assert!(
            !self.parking.report.contains("waits for nothing"),
            "it does"
        );
    }

    /// Brings the old code back: the run stays parked until it is resumed, then ends well.
    async fn goes_on_with_the_old_code(self) {
        let engine = Engine::builder()
            .register::<original>()
            .resource_arc(self.ledger.clone())
            .open_with(self.store.reopen(Surviving::Synced))
            .await
            .expect("opens");
        let run = engine.run::<original>(self.run).await.expect("is there");
        assert!(matches!(run.result().await, Err(RunError::Parked(_))));
        engine.resume(self.run).await.expect("resumes");
        assert_eq!(run.result().await.expect("ends well"), 100);
        assert_eq!(self.ledger.asked(), 0, "all outcomes were recorded");
        assert_eq!(run.status().await.expect("reads"), RunStatus::Completed);
    }
}

mod renamed {
    use super::*;

    #[step]
    async fn take_money(#[resource] ledger: &Ledger, customer: &str, cents: u64) -> Result<u64> {
        let _ = customer;
        ledger.act("take_money");
        Ok(cents)
    }

    #[workflow(name = "order")]
    pub(super) async fn deployed() -> Result<u64> {
        reserve("book").await?;
        sleep(Duration::from_millis(1)).await;
        take_money("ada", 100).await
    }
    pub(super) const LINE: u32 = line!() - 2;
}

#[tokio::test]
async fn a_renamed_step_parks_the_run() {
    let deployed = deploy::<renamed::deployed>().await;
    deployed.report_names(&[
        "step `charge`",
        &format!("tests/flow/divergence.rs:{CHARGED_AT}"),
        "step `take_money`",
        &format!("tests/flow/divergence.rs:{}", renamed::LINE),
    ]);
    deployed.goes_on_with_the_old_code().await;
}

#[workflow(name = "order")]
async fn removed() -> Result<u64> {
    sleep(Duration::from_millis(1)).await;
    charge("ada", 100).await
}

#[tokio::test]
async fn a_removed_step_parks_the_run() {
    let deployed = deploy::<removed>().await;
    deployed.report_names(&["step `reserve`", "record 1", "a timer (step_"]);
    deployed.goes_on_with_the_old_code().await;
}

#[workflow(name = "order")]
async fn inserted() -> Result<u64> {
    reserve("book").await?;
    inspect().await?;
    sleep(Duration::from_millis(1)).await;
    charge("ada", 100).await
}

#[tokio::test]
async fn an_inserted_step_parks_the_run() {
    let deployed = deploy::<inserted>().await;
    deployed.report_names(&["a timer that fired", "step `inspect`"]);
    deployed.goes_on_with_the_old_code().await;
}

#[workflow(name = "order")]
async fn reordered() -> Result<u64> {
    let cents = charge("ada", 100).await?;
    sleep(Duration::from_millis(1)).await;
    reserve("book").await?;
    Ok(cents)
}

#[tokio::test]
async fn reordered_steps_park_the_run() {
    let deployed = deploy::<reordered>().await;
    deployed.report_names(&["step `reserve`", "step `charge`"]);
    deployed.goes_on_with_the_old_code().await;
}

#[workflow(name = "order")]
async fn other_input() -> Result<u64> {
    reserve("book").await?;
    sleep(Duration::from_millis(1)).await;
    charge("ada", 250).await
}

#[tokio::test]
async fn another_input_parks_the_run_and_names_the_field() {
    let deployed = deploy::<other_input>().await;
    deployed.report_names(&["step `charge`", "other input: cents"]);
    assert!(!deployed.parking.report.contains("250"), "no payload in it");
    assert_eq!(deployed.detail().trim(), "cents: journal 100 | code 250");
    deployed.goes_on_with_the_old_code().await;
}

#[step]
async fn pay(#[resource] ledger: &Ledger, amounts: BTreeMap<String, u64>) -> Result<u64> {
    ledger.act("pay");
    Ok(amounts["total"])
}

#[workflow(name = "bill")]
async fn itemized() -> Result<u64> {
    let mut amounts: BTreeMap<_, _> = (0..30).map(|n| (format!("item {n}"), n)).collect();
    amounts.insert("total".to_owned(), 435);
    pay(amounts).await
}

#[workflow(name = "bill")]
async fn in_one_sum() -> Result<u64> {
    pay(BTreeMap::from([("total".to_owned(), 500)])).await
}

#[tokio::test]
async fn a_changed_amount_behind_many_removed_fields_parks_the_run() {
    let store = MemoryStore::new();
    let ledger = Ledger::shared();
    let builder = || Engine::builder().resource_arc(ledger.clone());
    let engine = builder()
        .register::<itemized>()
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(itemized()).await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 435);
    let journal = engine.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    let engine = builder()
        .register::<in_one_sum>()
        .open_with(cut(journal.header(), &recorded, recorded.len() - 1).await)
        .await
        .expect("opens");
    let run = engine.run::<in_one_sum>(run.id()).await.expect("there");
    let Err(RunError::Parked(parking)) = run.result().await else {
        panic!("the outcome of another payment was taken for this one");
    };
    assert_eq!(parking.reason, ParkReason::Diverged);
    assert!(parking.report.contains("total"), "{}", parking.report);
    let detail: String = rmp_serde::from_slice(&parking.detail.expect("is there")).expect("text");
    assert!(detail.contains("journal 435 | code 500"), "{detail}");
    assert_eq!(ledger.asked(), 1, "only the first process paid");
}

#[workflow(name = "order")]
async fn early() -> Result<u64> {
    reserve("book").await?;
    Ok(0)
}

#[tokio::test]
async fn returning_early_parks_the_run() {
    let deployed = deploy::<early>().await;
    deployed.report_names(&["a timer that fired", "returned without asking for it"]);
    deployed.goes_on_with_the_old_code().await;
}

#[workflow(name = "order")]
async fn failing() -> Result<u64> {
    reserve("book").await?;
    Err(Error::new("changed our mind"))
}

#[tokio::test]
async fn failing_early_parks_the_run_instead_of_ending_it() {
    let deployed = deploy::<failing>().await;
    deployed.report_names(&["returned without asking for it"]);
    deployed.goes_on_with_the_old_code().await;
}

#[workflow(name = "order")]
async fn shorter_sleep() -> Result<u64> {
    reserve("book").await?;
    sleep(Duration::from_hours(1)).await;
    charge("ada", 100).await
}

#[tokio::test]
async fn a_changed_duration_of_a_recorded_sleep_does_not_matter() {
    let store = MemoryStore::new();
    let builder = || Engine::builder().resource_arc(Ledger::shared());
    let engine = builder()
        .register::<original>()
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(original()).await.expect("starts");
    run.result().await.expect("ends well");
    let journal = engine.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    let engine = builder()
        .register::<shorter_sleep>()
        .open_with(cut(journal.header(), &recorded, recorded.len() - 1).await)
        .await
        .expect("opens");
    let run = engine.run::<shorter_sleep>(run.id()).await.expect("there");
    assert_eq!(run.result().await.expect("ends well"), 100);
}

mod other_type {
    use super::*;

    #[step]
    async fn charge(#[resource] ledger: &Ledger, customer: &str, cents: u64) -> Result<String> {
        ledger.act("charge");
        Ok(format!("{customer} paid {cents}"))
    }

    #[workflow(name = "order")]
    pub(super) async fn deployed() -> Result<String> {
        reserve("book").await?;
        sleep(Duration::from_millis(1)).await;
        charge("ada", 100).await
    }
}

#[tokio::test]
async fn an_outcome_that_cannot_be_read_any_more_parks_the_run() {
    let deployed = deploy::<other_type::deployed>().await;
    assert_eq!(deployed.parking.reason, ParkReason::Undecodable);
    for part in ["step `charge`", "String", "divergence.rs:"] {
        assert!(
            deployed.parking.report.contains(part),
            "{}",
            deployed.parking.report
        );
    }
    // What the decoder says quotes the recorded value.
    assert!(deployed.detail().contains("100"), "{}", deployed.detail());
    assert!(!deployed.parking.report.contains("100"));
    deployed.goes_on_with_the_old_code().await;
}

#[workflow(name = "order")]
async fn panicking() -> Result<u64> {
    reserve("book").await?;
    panic!("an index out of bounds");
}

#[tokio::test]
async fn a_panic_in_workflow_code_parks_the_run() {
    let deployed = deploy::<panicking>().await;
    assert_eq!(deployed.parking.reason, ParkReason::Panicked);
    let report = &deployed.parking.report;
    assert!(
        !report.contains("out of bounds"),
        "it may quote a value: {report}"
    );
    assert_eq!(deployed.detail(), "an index out of bounds");
    deployed.goes_on_with_the_old_code().await;
}

#[workflow(name = "order", version = 2)]
async fn next_version() -> Result<u64> {
    inspect().await?;
    Ok(2)
}

#[tokio::test]
async fn a_version_that_is_not_registered_parks_and_goes_on_when_it_is_back() {
    let deployed = deploy::<next_version>().await;
    assert_eq!(deployed.parking.reason, ParkReason::Unregistered);
    for part in ["`order` version 1", "registered versions: 2"] {
        assert!(
            deployed.parking.report.contains(part),
            "{}",
            deployed.parking.report
        );
    }
    // Both versions beside each other: the old run goes on with the old one by itself.
    let engine = Engine::builder()
        .register::<next_version>()
        .register::<original>()
        .resource_arc(deployed.ledger.clone())
        .open_with(deployed.store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let old = engine.run::<original>(deployed.run).await.expect("there");
    assert_eq!(old.result().await.expect("ends well"), 100);
    let new = engine.start(next_version()).await.expect("starts");
    assert_eq!(new.result().await.expect("ends well"), 2);
}
