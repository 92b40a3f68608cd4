//! A workflow that takes its process with it, for real: it is parked, and what shared the process goes on.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use workflow_runtime::store::ParkReason;
use workflow_runtime::{Engine, Result, RunStatus, nondeterministic, step, wait_for, workflow};

/// Where the child's store is.
const DIR: &str = "POISON_TEST_DIR";

/// A child that neither dies nor ends after so long is stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// The signal of `abort`.
const SIGABRT: i32 = 6;

#[step]
async fn tick() -> Result<()> {
    Ok(())
}

/// Runs a step, and kills the process in its own code behind it.
#[workflow]
async fn fatal() -> Result<()> {
    tick().await?;
    nondeterministic!(std::process::abort())
}

#[workflow]
async fn innocent() -> Result<u32> {
    tick().await?;
    wait_for::<u32>("go").await
}

/// What a child does: it starts both, and lives only if the one that kills it is parked.
async fn live(dir: &Path) -> Result<()> {
    let builder = Engine::builder().register::<fatal>().register::<innocent>();
    let engine = builder.open(dir.join("store")).await?;
    let other = engine.start(innocent()).key("innocent").await?;
    let killer = engine.start(fatal()).key("fatal").await?;
    let parking = loop {
        if let RunStatus::Parked(parking) = killer.status().await? {
            break parking;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(parking.reason, ParkReason::Poison, "{}", parking.report);
    other.signal("go", &7_u32).await?;
    assert_eq!(other.result().await?, 7);
    engine.shutdown().await?;
    Ok(())
}

/// Runs one process and says how it ended.
fn process(dir: &Path) -> ExitStatus {
    let mut child = Command::new(std::env::current_exe().expect("a test knows itself"))
        .args(["--exact", "poisoned::child_entry", "--nocapture"])
        .env(DIR, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("the child starts");
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status;
        }
        if began.elapsed() > PATIENCE {
            child.kill().expect("it can be killed");
            child.wait().expect("it can be waited for");
            panic!("a child is stuck");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_workflow_that_aborts_its_process_again_and_again_is_parked_and_the_other_goes_on() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut deaths = 0;
    loop {
        let status = process(dir.path());
        if status.success() {
            break;
        }
        assert_eq!(status.signal(), Some(SIGABRT), "{status}");
        deaths += 1;
        assert!(deaths < 10, "it is never parked");
    }
    // Twice among others, then three times alone; the other may have been ahead of it once or twice.
    assert!(deaths >= 3, "parked after {deaths} deaths");
}

/// Not a test by itself: what the child process runs. Does nothing unless it is told to.
#[tokio::test]
async fn child_entry() {
    if let Some(dir) = std::env::var_os(DIR) {
        live(Path::new(&dir)).await.expect("lives");
    }
}
