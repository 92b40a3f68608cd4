//! The audit of workflows: which steps it finds, what it says of them, and what it looks like.

use std::panic::catch_unwind;
use std::time::Duration;

use futures::join;
use workflow_runtime::audit::{Audit, CHECKLIST, Guard, STAGES, Severity};
use workflow_runtime::store::Durability;
use workflow_runtime::testing::assert_audit_clean;
use workflow_runtime::{Engine, Result, get_step_metadata, step, workflow};

/// The chapter that explains the audit.
const CHAPTER: &str = include_str!("../../docs/audit.md");

mod money {
    use super::*;

    #[step(
        effect = "payment",
        undo = refund,
        key = order,
        max_attempts = 5,
        timeout = "10s"
    )]
    pub(super) async fn charge(order: u64) -> Result<String> {
        Ok(format!("{order} under {}", get_step_metadata().step_id))
    }

    #[step(effect = "payment", timeout = "10s")]
    pub(super) async fn refund(order: u64, receipt: Option<String>) -> Result<()> {
        let _ = (order, receipt, get_step_metadata().step_id);
        Ok(())
    }
}

#[step(effect = "create", at_most_once, timeout = "1m")]
async fn ship(_order: u64) -> Result<()> {
    Ok(())
}

#[step(effect = "message")]
async fn mail(_text: &str) -> Result<()> {
    Ok(())
}

#[step(audit = "the tracker drops what it knows")]
async fn track(_text: &str) -> Result<()> {
    Ok(())
}

#[step(effect = "read", fresh_for = "30s")]
async fn quote(_order: u64) -> Result<u64> {
    Ok(1)
}

#[step(effect = "update", timeout = "5s")]
async fn book(_order: u64) -> Result<()> {
    let _key = get_step_metadata();
    Ok(())
}

#[workflow(inline)]
async fn tell(text: &str) -> Result<()> {
    track(text).await?;
    mail(text).await
}

#[workflow]
async fn accounting(order: u64) -> Result<()> {
    book(order).await
}

#[workflow]
async fn checkout(order: u64) -> Result<()> {
    if quote(order).await? > 0 {
        let receipt = money::charge(order).await?;
        let (shipped, booked) = join!(async { ship(order).await }, accounting(order));
        shipped?;
        booked.map_err(|error| workflow_runtime::Error::new(format!("{error:?}")))?;
        tell(&receipt).await?;
    }
    Ok(())
}

fn codes(audit: &Audit) -> Vec<(&str, &str)> {
    let open = audit.open();
    open.map(|finding| (finding.step(), finding.code()))
        .collect()
}

#[test]
fn every_step_is_found_wherever_it_is_called() {
    let audit = Audit::of::<checkout>();
    let mut names: Vec<_> = audit.steps().map(|step| step.name()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["book", "charge", "mail", "quote", "refund", "ship", "track"]
    );
    let book = audit
        .steps()
        .find(|step| step.name() == "book")
        .expect("is there");
    assert_eq!(book.workflows().collect::<Vec<_>>(), ["accounting"]);
    let charge = audit
        .steps()
        .find(|step| step.name() == "charge")
        .expect("is there");
    assert_eq!(
        charge.guards().collect::<Vec<_>>(),
        [Guard::StepId, Guard::BusinessKey, Guard::Undo]
    );
}

#[test]
fn the_failure_of_an_audit_shows_the_table_and_what_to_do() {
    let panic = catch_unwind(assert_audit_clean::<checkout>).expect_err("is not clean");
    let message = panic.downcast::<String>().expect("a text");
    insta::assert_snapshot!(message);
}

#[test]
fn a_workflow_without_findings_passes() {
    assert_audit_clean::<accounting>();
    let audit = Audit::of::<accounting>();
    assert!(audit.findings().next().is_none(), "{audit}");
}

#[test]
fn a_finding_with_a_reason_is_shown_and_does_not_count() {
    #[workflow]
    async fn tracked() -> Result<()> {
        track("x").await
    }
    assert_audit_clean::<tracked>();
    let audit = Audit::of::<tracked>();
    let worst = audit.findings().next().expect("a finding");
    assert_eq!(
        (worst.code(), worst.severity()),
        ("unguarded-effect", Severity::Error)
    );
    assert_eq!(
        worst.acknowledged(),
        Some("the tracker drops what it knows")
    );
    let text = audit.to_string();
    assert!(
        text.contains("accepted: the tracker drops what it knows"),
        "{text}"
    );
}

#[test]
fn every_stage_of_the_review_is_a_section_and_a_row_in_the_book() {
    let text = Audit::of::<checkout>().to_string();
    for (at, stage) in STAGES.iter().enumerate() {
        let heading = format!("\n{}. {stage}\n   ", at + 1);
        assert_eq!(text.matches(&heading).count(), 1, "{heading:?} in\n{text}");
        let row = format!("| {}. {stage} |", at + 1);
        assert_eq!(CHAPTER.matches(&row).count(), 1, "{row:?}");
    }
    for point in CHECKLIST {
        assert_eq!(
            text.matches(&format!("] {point}")).count(),
            1,
            "{point:?} in\n{text}"
        );
        assert_eq!(
            CHAPTER.matches(&format!("| {point} |")).count(),
            1,
            "{point:?}"
        );
    }
}

#[test]
fn the_checklist_names_the_steps_that_fail_a_point() {
    let text = Audit::of::<checkout>().to_string();
    let line = |point: &str| {
        text.lines()
            .find(|line| line.contains(point))
            .expect("a line")
    };
    assert!(line(CHECKLIST[0]).ends_with("not track, mail"), "{text}");
    assert!(line(CHECKLIST[1]).starts_with("  [?]"), "{text}");
    let clean = Audit::of::<accounting>().to_string();
    assert_eq!(clean.matches("[x]").count(), CHECKLIST.len() - 1, "{clean}");
    assert_eq!(clean.matches("[?]").count(), 1, "{clean}");
}

/// One step for every rule, each breaking only that one, as far as that is possible.
mod breaking {
    use super::*;

    #[step(effect = "create", key = n, timeout = "1s")]
    async fn unguarded(n: u64) -> Result<()> {
        let _ = n;
        Ok(())
    }

    #[step(timeout = "1s")]
    async fn unclassified() -> Result<()> {
        let _ = get_step_metadata().step_id;
        Ok(())
    }

    #[step(effect = "payment", timeout = "1s")]
    async fn forgotten() -> Result<()> {
        let _ = get_step_metadata().step_id;
        Ok(())
    }

    #[step(effect = "read", at_most_once)]
    async fn once_read() -> Result<()> {
        Ok(())
    }

    #[step(effect = "update", durability = "buffered", undo = take_back, timeout = "1s", max_attempts = 1)]
    async fn buffered() -> Result<()> {
        Ok(())
    }

    #[step(effect = "update", undo = take_back, timeout = "1s")]
    async fn undone() -> Result<()> {
        Ok(())
    }

    #[step(effect = "update", timeout = "1s")]
    async fn take_back(_done: Option<()>) -> Result<()> {
        let _ = get_step_metadata().step_id;
        Ok(())
    }

    #[step(effect = "message", at_most_once)]
    async fn endless() -> Result<()> {
        Ok(())
    }

    #[workflow(name = "audit breaking")]
    pub(super) async fn breaking() -> Result<()> {
        unguarded(1).await?;
        unclassified().await?;
        forgotten().await?;
        once_read().await?;
        buffered().await?;
        undone().await?;
        endless().await
    }
}

#[tokio::test]
async fn every_rule_finds_the_step_that_breaks_it() {
    use breaking::breaking;
    let engine = Engine::builder()
        .register::<breaking>()
        .key_ttl(Duration::from_secs(60 * 60))
        .open_in_memory()
        .await
        .expect("opens");
    let audit = engine.audit();
    let found: Vec<_> = audit.findings().map(|it| (it.step(), it.code())).collect();
    assert_eq!(
        found,
        [
            ("unguarded", "unguarded-effect"),
            ("unclassified", "unclassified-effect"),
            ("forgotten", "short-key-retention"),
            ("once_read", "guarded-read"),
            ("buffered", "buffered-effect"),
            ("undone", "undone-and-repeated"),
            ("endless", "no-timeout"),
        ],
        "{audit}"
    );
    let text = audit.to_string();
    assert!(text.contains("forgotten 1h after the run ended"), "{text}");
    assert!(
        text.contains("a run's key is kept for 1h after the end"),
        "{text}"
    );
    assert!(text.contains("namespace `default`"), "{text}");
    for (_, code) in found {
        assert!(CHAPTER.contains(&format!("| `{code}` |")), "{code}");
    }
}

#[tokio::test]
async fn an_engine_that_buffers_is_asked_about_the_steps_that_do_not_say() {
    let builder = Engine::builder().register::<checkout>();
    let builder = builder.register::<accounting>().max_attempts(9);
    let builder = builder.durability(Durability::Buffered);
    let engine = builder.open_in_memory().await.expect("opens");
    let audit = engine.audit();
    assert!(
        codes(&audit).contains(&("mail", "buffered-effect")),
        "{audit}"
    );
    let buffered = |step: &str| {
        audit
            .findings()
            .any(|it| (it.step(), it.code()) == (step, "buffered-effect"))
    };
    assert!(!buffered("ship"), "at most once is always synced: {audit}");
    assert!(!buffered("charge"), "its key makes it safe: {audit}");
    let text = audit.to_string();
    assert!(
        text.contains("mail: run again under the same id, 9 attempts in all"),
        "{text}"
    );
}

#[tokio::test]
async fn a_step_that_no_shape_names_is_listed_once_it_ran() {
    #[step(effect = "read")]
    async fn hidden() -> Result<u64> {
        Ok(3)
    }
    #[workflow(name = "audit hiding")]
    async fn hiding() -> Result<u64> {
        hidden().await
    }
    let builder = Engine::builder().register::<hiding>();
    let engine = builder.open_in_memory().await.expect("opens");
    assert_eq!(engine.audit().steps().count(), 0, "nothing ran yet");
    let run = engine.start(hiding()).await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 3);
    let audit = engine.audit();
    assert_eq!(codes(&audit), [("hidden", "not-in-shape")]);
    let text = audit.to_string();
    assert!(
        text.contains("hidden (called only)  audit hiding"),
        "{text}"
    );
    assert_eq!(
        Audit::of::<hiding>().steps().count(),
        0,
        "and no other engine knows"
    );
}
