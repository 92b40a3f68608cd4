//! The file: what it says, that it is read as it was written, and what is said about it.

use std::collections::BTreeMap;
use std::process::Command;

use workflow_runtime::testing::{Class, Lock, LockError};
use workflow_runtime::{checkpoint, start_child, timeout};

use super::parts::*;

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    customer: String,
    items: Vec<Item>,
    #[serde(default)]
    note: String,
    #[serde(alias = "sum")]
    total: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Item {
    sku: String,
    bundle: Option<Box<Item>>,
    paid: Payment,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Receipt {
    id: u64,
    by_item: BTreeMap<String, (u32, f64)>,
}

#[derive(Clone, Serialize, Deserialize)]
enum Payment {
    Cash,
    Card(String),
    Transfer { iban: String, memo: Option<String> },
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Answer {
    Yes(bool),
    Text(String),
}

#[step(effect = "payment", key = order.customer.clone(), undo = refund)]
async fn charge(order: &Order, cents: u64) -> Result<Receipt, String> {
    Ok(Receipt {
        id: cents,
        by_item: order
            .items
            .iter()
            .map(|it| (it.sku.clone(), (1, 1.0)))
            .collect(),
    })
}

#[step]
async fn refund(_order: Order, _cents: u64, _done: Option<Receipt>) -> Result<()> {
    Ok(())
}

#[step(at_most_once)]
async fn mail(_to: &str, _cc: &[String], _about: Option<&str>) -> Result<()> {
    Ok(())
}

#[step(effect = "read", fresh_for = "30s", on_stale = "abort")]
async fn ask<T: Clone + Send + Serialize>(_what: T, _how: impl Clone + Send + Serialize) -> Answer {
    Answer::Yes(true)
}

#[workflow(inline)]
async fn remind(times: u64) -> Result<()> {
    for _ in 0..times {
        sleep(SECOND).await;
        mail("a", &[], None).await?;
    }
    Ok(())
}

#[workflow(version = 3, changes = "tolerant")]
async fn accounting(_year: u16) {}

#[workflow]
async fn checkout(order: Order, cents: u64) -> Result<Receipt> {
    publish("state", "begun");
    if patched("ask first") {
        ask("a", 1).await;
    }
    let receipt = charge(&order, cents)
        .await
        .map_err(workflow_runtime::Error::new)?;
    let Some(item) = order.items.first() else {
        return Ok(receipt);
    };
    for item in &order.items {
        mail(&item.sku, &[], None).key(&item.sku).await?;
    }
    match item.paid {
        Payment::Cash => remind(3).await?,
        _ => {
            let _: Result<bool, _> = timeout(SECOND, wait_for("paid")).await.unwrap_or(Ok(false));
        }
    }
    let (_, mailed) = join!(start_child(accounting(2030)), async {
        mail("b", &[], None).await
    });
    scope("stock", || async { a(1).await }).await?;
    mailed?;
    if cents == 0 {
        checkpoint(&(order, 1_u64)).await;
    }
    Ok(receipt)
}

fn lock() -> Lock {
    Lock::new().workflow::<checkout>().workflow::<accounting>()
}

#[test]
fn a_lock_file_says_what_runs_rely_on() {
    insta::assert_snapshot!("workflows_lock", lock());
}

#[test]
fn a_lock_file_is_read_as_it_was_written_whatever_the_line_ends() {
    for text in [lock().to_string(), lock().to_string().replace('\n', "\r\n")] {
        let changed = lock().compare(&text).expect("is a lock");
        assert_eq!(changed.class(), None, "{changed}");
        assert!(changed.is_current());
    }
    let twice = Lock::new()
        .workflow::<accounting>()
        .workflow::<checkout>()
        .workflow::<accounting>();
    assert_eq!(
        twice.to_string(),
        lock().to_string(),
        "the order of the workflows does not count"
    );
}

#[test]
fn every_line_of_a_lock_file_counts() {
    let whole = lock().to_string();
    let lines: Vec<_> = whole.lines().collect();
    for left_out in 0..lines.len() {
        if lines[left_out].is_empty() {
            continue;
        }
        let rest: String = (0..lines.len())
            .filter(|at| *at != left_out)
            .map(|at| format!("{}\n", lines[at]))
            .collect();
        match lock().compare(&rest) {
            Ok(changed) => assert!(!changed.is_current(), "{left_out}: {}", lines[left_out]),
            Err(LockError::Unreadable { line, .. }) => assert!(line <= left_out + 2),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_its_line() {
    let mut said = String::new();
    for text in [
        "",
        "format 2\n",
        "format 1\n\nworkflow a\n  version x\n",
        "format 1\n\nworkflow a\n  returns u8\n",
        "format 1\nworkflow a\n  version 1\n   body\n",
        "format 1\nworkflow a\n  version 1\n  body\n    jump b\n",
        "format 1\nstep a\n  argument x: list<u8\n",
        "format 1\nstruct A\n  field x\n",
        "format 1\n<<<<<<< HEAD\n",
    ] {
        let refused = lock().compare(text).expect_err("it is none");
        said.push_str(&format!("{refused}\n"));
    }
    insta::assert_snapshot!("unreadable", said);
}

mod before {
    use super::*;

    #[derive(Clone, Serialize, Deserialize)]
    pub(super) struct Slip {
        id: u64,
        total: u64,
    }

    #[step]
    async fn pay(_cents: u64) -> Result<Slip> {
        Ok(Slip { id: 1, total: 1 })
    }

    #[step]
    async fn ship() -> Result<()> {
        Ok(())
    }

    #[step]
    async fn tell(_who: &str) -> Result<Slip> {
        pay(1).await
    }

    #[workflow(name = "billing")]
    pub(super) async fn billing(cents: u64) -> Result<u64> {
        let slip = pay(cents).await?;
        for _ in 0..cents {
            ship().await?;
        }
        if cents > 5 {
            tell("ada").await?;
        }
        b().await?;
        c().await?;
        a(slip.id + slip.total).await
    }

    #[workflow(name = "dunning")]
    pub(super) async fn dunning(cents: u64) -> Result<u64> {
        a(cents).await
    }
}

mod after {
    use super::*;

    #[derive(Clone, Serialize, Deserialize)]
    pub(super) struct Slip {
        id: u64,
        sum: u64,
        paid: Option<bool>,
    }

    #[step]
    async fn pay(_cents: u64) -> Result<Slip> {
        Ok(Slip {
            id: 1,
            sum: 1,
            paid: None,
        })
    }

    #[step]
    async fn send() -> Result<()> {
        Ok(())
    }

    #[step(key = _who)]
    async fn tell(_who: &str) -> Result<Slip> {
        pay(1).await
    }

    #[workflow(name = "billing")]
    pub(super) async fn billing(cents: u64, _when: u64) -> Result<u64> {
        d().await?;
        let slip = pay(cents).await?;
        for _ in 0..cents {
            send().await?;
        }
        if cents > 6 {
            tell("ada").await?;
        }
        c().await?;
        a(slip.id + slip.sum + u64::from(slip.paid.is_some())).await?;
        b().await
    }

    #[workflow(name = "dunning", version = 2)]
    pub(super) async fn dunning(cents: u64) -> Result<u64> {
        a(cents).await
    }
}

#[test]
fn changes_are_said_with_the_reason_the_line_and_the_fix() {
    let old = Lock::new()
        .workflow::<before::billing>()
        .workflow::<before::dunning>();
    let new = Lock::new()
        .workflow::<after::billing>()
        .workflow::<after::dunning>();
    let changed = new.compare(&old.to_string()).expect("is a lock");
    insta::assert_snapshot!("changes", changed);
    for change in changed.changes() {
        let (file, line) = change.place().rsplit_once(':').expect("has a line");
        assert!(
            file.ends_with("files.rs") || file.ends_with(".lock"),
            "{change}"
        );
        assert!(line.parse::<u32>().is_ok(), "{change}");
        assert!(!change.why().is_empty(), "{change}");
        assert_eq!(
            change.fix().is_empty(),
            change.class() == Class::Safe,
            "{change}"
        );
    }
}

/// Run by another test in a process of its own, with an environment of its own.
#[test]
#[ignore = "run by the tests below"]
fn child() {
    let path = std::env::var("LOCK_OF_THE_CHILD").expect("is told");
    match std::env::var("CODE_OF_THE_CHILD").as_deref() {
        Ok("after") => Lock::new()
            .workflow::<after::billing>()
            .assert_unchanged(path),
        _ => Lock::new()
            .workflow::<before::billing>()
            .assert_unchanged(path),
    }
}

/// Has the assertion made with a file and an environment; gives whether it held and what was said.
fn asserted(path: &std::path::Path, variables: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().expect("has a path"));
    command.args(["--ignored", "--exact", "lock::files::child", "--nocapture"]);
    command
        .env_remove("WORKFLOWS_LOCK")
        .env_remove("CI")
        .env("RUST_BACKTRACE", "0");
    command
        .env("LOCK_OF_THE_CHILD", path)
        .envs(variables.iter().copied());
    let out = command.output().expect("runs");
    let said =
        String::from_utf8_lossy(&out.stderr).replace(&path.display().to_string(), "workflows.lock");
    let said = said
        .lines()
        .filter(|line| !line.contains("panicked at") && !line.contains("RUST_BACKTRACE"));
    (
        out.status.success(),
        said.collect::<Vec<_>>().join("\n").trim().to_owned(),
    )
}

#[test]
fn the_file_is_written_only_where_somebody_asks_for_it_and_reads_it() {
    let dir = tempfile::tempdir().expect("is made");
    let path = dir.path().join("workflows.lock");
    let update = ("WORKFLOWS_LOCK", "update");

    let (held, missing) = asserted(&path, &[]);
    assert!(!held && !path.exists());
    let (held, in_ci) = asserted(&path, &[update, ("CI", "true")]);
    assert!(!held && !path.exists());
    let (held, mistyped) = asserted(&path, &[("WORKFLOWS_LOCK", "yes")]);
    assert!(!held && !path.exists());

    let (held, written) = asserted(&path, &[update]);
    assert!(held && path.exists(), "{written}");
    let first = std::fs::read_to_string(&path).expect("is there");
    assert_eq!(first, Lock::new().workflow::<before::billing>().to_string());
    assert!(asserted(&path, &[]).0);

    let changed = ("CODE_OF_THE_CHILD", "after");
    let (held, said) = asserted(&path, &[changed]);
    assert!(!held, "{said}");
    assert_eq!(std::fs::read_to_string(&path).expect("is there"), first);
    assert!(said.starts_with("workflows.lock: changed since"), "{said}");
    let (held, accepted) = asserted(&path, &[changed, update]);
    assert!(
        held && accepted.starts_with("workflows.lock was written. changed since"),
        "{accepted}"
    );
    assert!(asserted(&path, &[changed]).0);

    let (held, back) = asserted(&path, &[]);
    assert!(!held, "{back}");
    insta::assert_snapshot!(
        "messages",
        format!(
            "--- missing\n{missing}\n--- in CI\n{in_ci}\n--- mistyped\n{mistyped}\n--- written\n{written}"
        )
    );
    insta::assert_snapshot!("assertion", said);
}

#[test]
fn what_to_run_before_a_deploy_says_what_is_wrong_with_the_lock_and_with_the_journals() {
    let dir = tempfile::tempdir().expect("is made");
    let path = dir.path().join("workflows.lock");
    let code = Lock::new().workflow::<before::dunning>();
    let said = |replayed: std::result::Result<(), &str>| {
        let asserted = std::panic::catch_unwind(|| code.assert_compatible(&path, replayed));
        let said = asserted
            .err()
            .map(|panic| panic.downcast_ref::<String>().cloned());
        said.map(|text| {
            text.expect("is a text")
                .replace(&path.display().to_string(), "workflows.lock")
        })
    };
    let missing =
        "there is no workflows.lock: make it with WORKFLOWS_LOCK=update cargo test, and commit it";
    let unfit = "recorded journals do not fit this code:\ntests/journals/a: diverged";
    assert_eq!(said(Ok(())).as_deref(), Some(missing));
    assert_eq!(
        said(Err("tests/journals/a: diverged")).as_deref(),
        Some(&*format!("{missing}\n\n{unfit}"))
    );
    std::fs::write(&path, code.to_string()).expect("is written");
    assert_eq!(
        said(Err("tests/journals/a: diverged")).as_deref(),
        Some(unfit)
    );
    assert_eq!(said(Ok(())), None);
}

#[test]
fn a_file_that_differs_only_in_what_runs_do_not_rely_on_is_still_to_be_written_anew() {
    let text = lock().to_string().replace("# Made by", "# Once made by");
    let changed = lock().compare(&text).expect("is a lock");
    assert_eq!(changed.class(), None);
    assert!(!changed.is_current());
}
