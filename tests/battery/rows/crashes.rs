//! A crash at every write: of seven kinds of workflows in several sizes, before the write and after it.
//!
//! What is compared is the kit's business (`crash_everywhere`): results, the ledger outside, the journals' rules.

use std::time::Duration;

use futures::future::try_join_all;
use workflow_runtime::testing::{CrashFailure, CrashReport, Ledger, crash_everywhere};
use workflow_runtime::{
    Error, Result, checkpoint, get_step_metadata, sleep, step, timeout, wait_for, workflow,
};

use super::Case;
use super::scratch;

/// What `case` knows, by the seed.
const KINDS: u64 = 7;

#[step(max_attempts = 3, backoff = "5ms..50ms")]
async fn post(#[resource] ledger: &Ledger, what: u64, failures: u32) -> Result<u64> {
    let meta = get_step_metadata();
    let posted = ledger.post(meta.step_id, ("post", what))?;
    match meta.attempt <= failures {
        true => Err(Error::new("the answer was lost on the way")),
        false => Ok(posted.receipt),
    }
}

#[step(undo = take_back)]
async fn hold(#[resource] ledger: &Ledger, what: u64) -> Result<()> {
    ledger.post(get_step_metadata().step_id, ("hold", what))?;
    Ok(())
}

#[step]
async fn take_back(#[resource] ledger: &Ledger, what: u64, _held: Option<()>) -> Result<()> {
    ledger.post(get_step_metadata().step_id, ("take back", what))?;
    Ok(())
}

#[workflow]
async fn in_a_row(steps: u64) -> Result<u64> {
    for at in 0..steps {
        post(at, u32::from(at % 3 == 2)).await?;
    }
    Ok(steps)
}

#[workflow]
async fn at_once(branches: u64) -> Result<u64> {
    let branch = |at: u64| async move {
        post(at, 0).await?;
        post(100 + at, 0).await
    };
    try_join_all((0..branches).map(branch)).await?;
    Ok(branches)
}

#[workflow]
async fn talking(words: u64) -> Result<Vec<u64>> {
    let mut heard = Vec::new();
    for _ in 0..words {
        let word: u64 = wait_for("word").await?;
        post(word, 0).await?;
        heard.push(word);
    }
    Ok(heard)
}

#[workflow]
async fn with_children(children: u64) -> Result<u64> {
    for at in 0..children {
        in_a_row(1 + at % 2).await?;
    }
    post(900, 0).await?;
    Ok(children)
}

#[workflow]
async fn undoing(steps: u64) -> Result<()> {
    for at in 0..steps {
        hold(at).await?;
    }
    Err(Error::fatal("nobody at home"))
}

#[workflow]
async fn in_passes(pass: u64, passes: u64) -> Result<u64> {
    post(pass, 0).await?;
    if pass + 1 >= passes {
        return Ok(pass);
    }
    checkpoint(&(pass + 1, passes)).await
}

#[workflow]
async fn waiting(times: u64) -> Result<u64> {
    for at in 0..times {
        sleep(Duration::from_secs(at * 3_600)).await;
        let late = timeout(Duration::from_secs(60), wait_for::<u64>("never")).await;
        post(at, u32::from(late.is_err())).await?;
    }
    Ok(times)
}

pub(super) fn case(seed: u64) -> Case {
    let size = 1 + seed / KINDS % 6;
    let reported = scratch::runtime().block_on(async {
        match seed % KINDS {
            0 => check!(move || in_a_row(size), seed),
            1 => check!(move || at_once(size), seed),
            2 => talk(size).await,
            3 => check!(move || with_children(size), seed),
            4 => check!(move || undoing(size), seed),
            5 => check!(move || in_passes(0, size), seed),
            _ => check!(move || waiting(size), seed),
        }
    });
    let mut case = Case::default();
    match reported {
        Ok(report) => case.count = report.cases() as u64,
        Err(failure) => case.wrong(failure.to_string()),
    }
    case
}

/// Checks one workflow; with two crashes where there are not too many pairs.
macro_rules! check {
    ($call:expr, $seed:expr) => {{
        let check = crash_everywhere($call)
            .engine(|engine, ledger| engine.register::<in_a_row>().resource(ledger.clone()));
        match $seed / KINDS % 6 < 2 {
            true => check.two_crashes_drawn_by($seed).try_run().await,
            false => check.try_run().await,
        }
    }};
}
use check;

async fn talk(words: u64) -> std::result::Result<CrashReport, CrashFailure> {
    crash_everywhere(move || talking(words))
        .engine(|engine, ledger| engine.resource(ledger.clone()))
        .drive(async move |_, run| {
            for word in 0..words {
                run.signal("word", &word).key(word).await?;
            }
            Ok(())
        })
        .try_run()
        .await
}
