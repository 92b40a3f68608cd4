//! Payloads open at their own place only; and whatever the engine itself copies goes on opening.

use std::sync::Arc;

use bytes::Bytes;
use workflow_runtime::encryption::{Encryption, OVERHEAD};
use workflow_runtime::journal::Outcome;
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::{
    CodecError, Engine, EngineBuilder, PayloadCodec, PayloadContext, PayloadKind, Result, RunError,
    RunId, checkpoint, step, wait_for, workflow,
};
use workflow_tests::{Edited, frames, steps};

use super::{encryption, until};

#[step]
async fn balance(account: u64) -> Result<u64> {
    Ok(account * 100)
}

#[workflow]
async fn paying_out(account: u64) -> Result<u64> {
    let cents = balance(account).await?;
    wait_for::<()>("go on").await?;
    Ok(cents)
}

/// A codec that says where a payload stands, in clear, before it: to see which place it is bound to.
struct Telling(Encryption);

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
    let rich = engine.start(paying_out(9)).await.expect("starts").id();
    let poor = engine.start(paying_out(1)).await.expect("starts").id();
    let much = outcome_of(&engine, rich).await;
    let little = outcome_of(&engine, poor).await;
    assert!(much.len() > OVERHEAD);
    drop(engine);
    let forged = replace(&frames(&store, poor).await, &little, &much);
    let forged = workflow_runtime::testing::rechained(poor, &forged);
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
    assert_eq!(parking.reason, ParkReason::Undecodable, "{}", parking.report);
    assert!(parking.report.contains("moved"), "{}", parking.report);
    // The other one is as it was.
    let handle = engine.run::<paying_out>(rich).await.expect("is there");
    handle.signal("go on", &()).await.expect("sent");
    assert_eq!(handle.result().await.expect("ends well"), 900);
}
