//! Payloads open at their own place only; and whatever the engine itself copies goes on opening.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use workflow_runtime::encryption::{Encryption, OVERHEAD};
use workflow_runtime::journal::Outcome;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::store::{Commit, NoteChange, NoteKey, ParkReason, Store};
use workflow_runtime::{
    CodecError, Engine, EngineBuilder, EngineError, Error, PayloadCodec, PayloadContext,
    PayloadError, PayloadKind, Result, RunError, RunId, checkpoint, continue_as_new, step,
    wait_for, workflow,
};
use workflow_tests::{Edited, frames, ids_of, steps};

use super::stories::{self, everything, failing, lives, passes, secret};
use super::{encryption, until};

#[step]
async fn balance(account: u64) -> Result<u64> {
    Ok(account * 1000) // as many bytes for each account
}

#[workflow]
async fn paying_out(account: u64) -> Result<u64> {
    let cents = balance(account).await?;
    wait_for::<()>("go on").await?;
    Ok(cents)
}

/// Encrypts, and sees to it that every payload stands somewhere.
pub(super) struct Telling(pub(super) Encryption);

impl PayloadCodec for Telling {
    fn encode(&self, plain: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
        self.0.encode(plain)
    }

    fn decode(&self, coded: &[u8]) -> std::result::Result<Vec<u8>, String> {
        self.0.decode(coded)
    }

    fn encode_at(
        &self,
        plain: Vec<u8>,
        context: &PayloadContext<'_>,
    ) -> std::result::Result<Vec<u8>, CodecError> {
        assert_ne!(context.kind(), PayloadKind::Other, "it stands nowhere");
        assert_eq!(context.namespace(), "default");
        self.0.encode_at(plain, context)
    }

    fn decode_at(
        &self,
        coded: &[u8],
        context: &PayloadContext<'_>,
    ) -> std::result::Result<Vec<u8>, CodecError> {
        assert_ne!(context.kind(), PayloadKind::Other, "it stands nowhere");
        self.0.decode_at(coded, context)
    }

    fn binds(&self) -> bool {
        self.0.binds()
    }
}

fn builder() -> EngineBuilder {
    Engine::builder()
        .register::<paying_out>()
        .payload_codec(Telling(encryption()))
}

/// Replaces all of one payload in a journal by another one of the same length. The chain is not keyed: whoever can
/// write can make it fit, so it is made to fit here.
fn replace(frames: &[Bytes], one: &[u8], other: &[u8]) -> Vec<Bytes> {
    assert_eq!(one.len(), other.len());
    let replaced = frames.iter().map(|frame| {
        let mut bytes = frame.to_vec();
        let found = bytes.windows(one.len()).position(|found| found == one);
        if let Some(at) = found {
            bytes[at..at + one.len()].copy_from_slice(other);
        }
        Bytes::from(bytes)
    });
    replaced.collect()
}

async fn outcome_of(engine: &Engine, run: RunId) -> Bytes {
    let mut found = None;
    until("the step is done", async || {
        let journal = engine.journal(run).await.expect("reads");
        found = steps(&journal).first().map(|step| step.outcome.clone());
        found.is_some()
    })
    .await;
    match found {
        Some(Outcome::Ok(payload)) => payload,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_outcome_that_was_moved_to_another_run_does_not_open_there() {
    let store = MemoryStore::new();
    let engine = builder().open_with(store.clone()).await.expect("opens");
    let rich = engine.start(paying_out(90)).await.expect("starts").id();
    let poor = engine.start(paying_out(70)).await.expect("starts").id();
    let much = outcome_of(&engine, rich).await;
    let little = outcome_of(&engine, poor).await;
    assert!(much.len() > OVERHEAD);
    drop(engine);
    let forged = replace(&frames(&store, poor).await, &little, &much);
    let forged = workflow_runtime::hostile::rechained(poor, &forged);
    let of_poor = forged.clone();
    let edited = Edited {
        store: store.reopen(Surviving::Synced),
        edit: move |frames: &mut Vec<Bytes>| {
            if frames.first().map(Bytes::len) == of_poor.first().map(Bytes::len)
                && frames.first() == of_poor.first()
            {
                *frames = of_poor.clone();
            }
        },
    };
    let engine = builder().open_with(edited).await.expect("opens");
    let handle = engine.run::<paying_out>(poor).await.expect("is there");
    handle.signal("go on", &()).await.expect("sent");
    let Err(RunError::Parked(parking)) = handle.result().await else {
        panic!("is parked");
    };
    assert_eq!(
        parking.reason,
        ParkReason::Undecodable,
        "{}",
        parking.report
    );
    assert!(parking.report.contains("moved"), "{}", parking.report);
    // The other one is as it was.
    let handle = engine.run::<paying_out>(rich).await.expect("is there");
    handle.signal("go on", &()).await.expect("sent");
    assert_eq!(handle.result().await.expect("ends well"), 90_000);
}

#[tokio::test]
async fn forks_and_retries_of_encrypted_runs_read_what_was_copied() {
    let builder = stories::builder().payload_codec(Telling(encryption()));
    let engine = builder.open_in_memory().await.expect("opens");
    let run = engine.start(everything(secret("run-input"))).await;
    let run = run.expect("starts");
    for (name, way) in [("word", "signal"), ("event", "inbox-signal")] {
        run.signal(name, &secret(way)).await.expect("sent");
    }
    until("the token is held", async || {
        let sent = engine.signal_token("token", &secret("hook")).await;
        sent.is_ok()
    })
    .await;
    assert_eq!(run.result().await.expect("ends"), secret("run-output"));
    // All of its signals are in the part that is copied.
    let fork = run.fork().await.expect("forks");
    assert_eq!(fork.result().await.expect("ends"), secret("run-output"));
    let again = fork.fork().await.expect("forks");
    assert_eq!(again.result().await.expect("ends"), secret("run-output"));

    let line = engine.start(lives(secret("continued"), 0)).await;
    let line = line.expect("starts");
    let word = secret("line-signal");
    line.signal("word", &word).await.expect("sent");
    line.signal("begin", &()).await.expect("sent");
    assert_eq!(line.result().await.expect("ends"), word);
    let newest = engine.lineage(line.id()).await.expect("is there").newest;
    assert_ne!(newest, line.id());
    let newest = engine.run::<lives>(newest).await.expect("is there");
    let fork = newest.fork().await.expect("forks");
    assert_eq!(fork.result().await.expect("ends"), word);

    // With a checkpoint in it, and a signal that was carried over it.
    let run = engine.start(passes(secret("checkpoint"), 0)).await;
    let run = run.expect("starts");
    let word = secret("checkpoint-signal");
    run.signal("word", &word).await.expect("sent");
    let error = run.result().await.expect_err("fails").to_string();
    assert!(error.contains(&secret("late-error")), "{error}");

    let run = engine.start(failing()).await.expect("starts");
    let error = run.result().await.expect_err("fails").to_string();
    assert!(error.contains(&secret("run-error")), "{error}");
}

/// Fails until it was mended; before that it has heard a signal, as a run of a line and after a checkpoint.
#[workflow]
async fn mended(stage: u32) -> Result<String> {
    match stage {
        0 => continue_as_new(mended(1)).await,
        1 => checkpoint(&2).await,
        _ => {
            let word = wait_for::<String>("word").await?;
            shaky().await?;
            Ok(word)
        }
    }
}

#[step(max_attempts = 1)]
async fn shaky(#[resource] works: &Arc<AtomicBool>) -> Result<()> {
    match works.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(Error::fatal("not yet")),
    }
}

#[tokio::test]
async fn a_retried_run_and_a_fork_of_it_read_the_signals_that_they_were_sent() {
    let works = Arc::new(AtomicBool::new(false));
    let builder = Engine::builder()
        .register::<mended>()
        .resource(works.clone())
        .payload_codec(Telling(encryption()));
    let engine = builder.open_in_memory().await.expect("opens");
    let run = engine.start(mended(0)).await.expect("starts");
    run.signal("word", "heard").await.expect("sent");
    run.result().await.expect_err("fails");
    let newest = engine.lineage(run.id()).await.expect("is there").newest;
    let newest = engine.run::<mended>(newest).await.expect("is there");
    let records = engine.journal(newest.id()).await.expect("reads");
    let failed = ids_of(&records, "shaky")[0];
    works.store(true, Ordering::SeqCst);
    newest.retry().await.expect("is taken up again");
    assert_eq!(run.result().await.expect("ends"), "heard");
    let fork = newest.fork().at(failed).await.expect("forks");
    assert_eq!(fork.result().await.expect("ends"), "heard");
}

#[tokio::test]
async fn a_published_value_that_was_moved_to_another_run_is_refused() {
    let store = MemoryStore::new();
    let builder = stories::builder().payload_codec(encryption());
    let engine = builder.open_with(store.clone()).await.expect("opens");
    let (mut runs, mut notes) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let run = engine.start(everything(secret("run-input"))).await;
        let run = run.expect("starts");
        until("it has published", async || {
            let found = run.published::<String>("state").await.expect("reads");
            found.is_some()
        })
        .await;
        let name = NoteKey::of_run(run.id(), &[b"published", b"state"]);
        notes.push((name.clone(), store.note(name).await.expect("reads")));
        runs.push(run);
    }
    let mut commit = Commit::default();
    commit.changes.notes.push(NoteChange {
        key: notes[0].0.clone(),
        value: notes[1].1.clone(),
    });
    store.commit(commit).await.expect("writes");
    let refused = runs[0].published::<String>("state").await;
    let Err(EngineError::Payload {
        run,
        problem: PayloadError::Locked(text),
        ..
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(run, runs[0].id());
    assert!(text.contains("moved"), "{text}");
    let other = runs[1].published::<String>("state").await.expect("reads");
    assert_eq!(other, Some(secret("published")));
}
