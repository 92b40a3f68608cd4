//! Crashes at every write with encryption on: the stories come out as without a crash.

use std::time::Duration;

use tokio::time::timeout;
use workflow_runtime::EngineError;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};

use super::stories::{builder, everything, failing, lives, passes, secret};
use super::{encryption, until};

const LONG: Duration = Duration::from_secs(60);

/// Lives through the stories and one crash, and gives what they ended with and how many writes there were.
async fn through(plan: FaultPlan) -> (Vec<String>, u64) {
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = builder().payload_codec(encryption());
            let engine = engine.open_with(store.clone()).await.expect("opens");
            let main = engine.start(everything(secret("run-input"))).key("main");
            let main = main.await.expect("starts");
            let line = engine.start(lives(secret("continued"), 0)).key("line");
            let line = line.await.expect("starts");
            let passing = engine.start(passes(secret("checkpoint"), 0)).key("p");
            let passing = passing.await.expect("starts");
            let failed = engine.start(failing()).key("f").await.expect("starts");
            for (run, name, way) in [
                (line.id(), "word", "line-signal"),
                (passing.id(), "word", "checkpoint-signal"),
                (main.id(), "word", "signal"),
                (main.id(), "event", "inbox-signal"),
            ] {
                let sent = engine.signal(run, name, &secret(way)).key("1").await;
                ended_or_sent(sent.map(drop));
            }
            let begin = engine.signal(line.id(), "begin", &()).key("1").await;
            ended_or_sent(begin.map(drop));
            until("the token was held", async || {
                match engine.signal_token("token", &secret("hook")).key("1").await {
                    Ok(_) => true,
                    Err(_) => !matches!(
                        main.status().await.expect("reads"),
                        workflow_runtime::RunStatus::Active
                    ),
                }
            })
            .await;
            vec![
                main.result().await.expect("ends well"),
                line.result().await.expect("ends well"),
                passing.result().await.expect_err("fails").to_string(),
                failed.result().await.expect_err("fails").to_string(),
            ]
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            ends = timeout(LONG, living) => return (ends.expect("does not hang"), store.writes()),
        }
        store = store.reopen(Surviving::Synced);
    }
}

fn ended_or_sent(sent: Result<(), EngineError>) {
    match sent {
        Ok(()) | Err(EngineError::Ended(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_encrypted_runs_changes_nothing() {
    let (ends, writes) = through(FaultPlan::none()).await;
    assert_eq!(
        ends[..2],
        [secret("run-output"), secret("line-signal")],
        "{ends:?}"
    );
    assert!(writes > 20, "{writes}");
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let (after, _) = through(FaultPlan::at(write, fault)).await;
            assert_eq!(after, ends, "{write} {fault:?}");
        }
    }
}
