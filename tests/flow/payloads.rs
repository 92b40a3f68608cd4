//! What crosses the journal: limits, types that do not come back, the codec hook, the audit key.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use workflow_runtime::journal::Outcome;
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineError, Error, PayloadCodec, PayloadError, Result, RunError, get_step_metadata,
    step, workflow,
};
use workflow_tests::{Edited, Ledger, frames, steps};

#[step]
async fn produce(#[resource] ledger: &Ledger, bytes: usize) -> Result<String> {
    ledger.act("produce");
    Ok("x".repeat(bytes))
}

#[workflow]
async fn producing(bytes: usize) -> Result<usize> {
    Ok(produce(bytes).await?.len())
}

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn an_output_past_the_limit_is_a_recorded_fatal_error_and_never_retried() {
    for (limit, fits, too_large) in [(None, 2 * MIB - 8, 2 * MIB), (Some(1000), 900, 1000)] {
        let ledger = Ledger::shared();
        let mut builder = Engine::builder()
            .register::<producing>()
            .resource_arc(ledger.clone());
        if let Some(limit) = limit {
            builder = builder.payload_limit(limit);
        }
        let engine = builder.open_in_memory().await.expect("opens");
        let run = engine.start(producing(fits)).await.expect("starts");
        assert_eq!(run.result().await.expect("fits"), fits);
        ledger.forget_asking();

        let run = engine.start(producing(too_large)).await.expect("starts");
        let error = run.result().await.expect_err("is too large");
        let RunError::Failed(error) = error else {
            panic!("{error:?}");
        };
        let limit = limit.unwrap_or(2 * MIB).to_string();
        assert!(error.is_fatal());
        assert!(error.to_string().contains(&limit), "{error}");
        assert!(error.to_string().contains("step `produce`"), "{error}");
        assert_eq!(ledger.asked(), 1, "it was tried again");
        let journal = engine.journal(run.id()).await.expect("reads");
        assert!(matches!(steps(&journal)[0].outcome, Outcome::Broken(_)));
    }
}

#[workflow]
async fn consuming(text: String) -> Result<usize> {
    Ok(text.len())
}

#[workflow]
async fn returning(bytes: usize) -> Result<String> {
    Ok("y".repeat(bytes))
}

#[tokio::test]
async fn an_oversized_input_is_refused_and_an_oversized_result_fails_the_run() {
    let engine = Engine::builder()
        .register::<consuming>()
        .register::<returning>()
        .payload_limit(500)
        .open_in_memory()
        .await
        .expect("opens");
    let refused = engine.start(consuming("x".repeat(600))).key("k").await;
    assert!(matches!(
        refused,
        Err(EngineError::Input {
            workflow: "consuming",
            problem: PayloadError::TooLarge { limit: 500 }
        })
    ));
    assert!(engine.runs().await.expect("lists").runs.is_empty());
    let run = engine.start(returning(600)).await.expect("starts");
    let error = run.result().await.expect_err("is too large");
    assert!(
        matches!(&error, RunError::Broken(e) if e.to_string().contains("500")),
        "{error:?}"
    );
}

/// Serializes as one thing and wants to be read as another.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OneWay {
    #[serde(serialize_with = "as_text")]
    number: u32,
}

fn as_text<S: serde::Serializer>(number: &u32, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(&number.to_string())
}

#[step]
async fn one_way(#[resource] ledger: &Ledger) -> Result<OneWay> {
    ledger.act("one way");
    Ok(OneWay { number: 1 })
}

#[workflow]
async fn going_one_way() -> Result<u32> {
    Ok(one_way().await?.number)
}

#[tokio::test]
async fn a_value_that_does_not_come_back_fails_at_once_and_is_not_retried() {
    let ledger = Ledger::shared();
    let engine = Engine::builder()
        .register::<going_one_way>()
        .resource_arc(ledger.clone())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(going_one_way()).await.expect("starts");
    let error = run.result().await.expect_err("cannot be read");
    let text = format!("{error:?}");
    assert!(
        text.contains("one_way") && text.contains("OneWay"),
        "{text}"
    );
    assert_eq!(ledger.asked(), 1);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Lossy {
    kept: u32,
    #[serde(skip)]
    lost: u32,
}

#[step]
async fn lossy() -> Result<Lossy> {
    Ok(Lossy { kept: 1, lost: 2 })
}

#[workflow]
async fn sees_what_a_replay_sees() -> Result<u32> {
    Ok(lossy().await?.lost)
}

#[tokio::test]
async fn the_first_run_sees_the_value_as_a_replay_would() {
    let engine = Engine::builder()
        .register::<sees_what_a_replay_sees>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine
        .start(sees_what_a_replay_sees())
        .await
        .expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 0);
}

/// "Encrypts" with one byte.
struct Xor(u8);

impl PayloadCodec for Xor {
    fn encode(&self, plain: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
        Ok(plain.into_iter().map(|byte| byte ^ self.0).collect())
    }

    fn decode(&self, coded: &[u8]) -> std::result::Result<Vec<u8>, String> {
        Ok(coded.iter().map(|byte| byte ^ self.0).collect())
    }
}

#[step(backoff = "1ms", max_attempts = 2)]
async fn secretly(word: &str) -> Result<String> {
    match get_step_metadata().attempt {
        1 => Err(Error::new("secret-failure")),
        _ => Ok(format!("{word} and secret-output")),
    }
}

#[step]
async fn secret_error() -> Result<()> {
    Err(Error::fatal("secret-error"))
}

#[workflow]
async fn secret(word: String) -> Result<String> {
    let answer = secretly(&word).await?;
    let error = secret_error().await.expect_err("fails");
    Ok(format!("{answer} {error}"))
}

#[tokio::test]
async fn with_a_codec_no_payload_is_in_the_store_in_plain() {
    let store = MemoryStore::new();
    let builder = || Engine::builder().register::<secret>();
    let engine = builder()
        .payload_codec(Xor(0x5a))
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine
        .start(secret("secret-input".into()))
        .await
        .expect("starts");
    let answer = "secret-input and secret-output secret-error";
    assert_eq!(run.result().await.expect("ends well"), answer);
    for frame in frames(&store, run.id()).await {
        let text = String::from_utf8_lossy(&frame).into_owned();
        assert!(!text.contains("secret-"), "{text}");
    }
    // Without the hook, the same words are there: the check above can fail.
    let plain = MemoryStore::new();
    let engine = builder().open_with(plain.clone()).await.expect("opens");
    let run = engine
        .start(secret("secret-input".into()))
        .await
        .expect("starts");
    run.result().await.expect("ends well");
    let all = frames(&plain, run.id()).await.concat();
    let all = String::from_utf8_lossy(&all);
    for word in [
        "secret-input",
        "secret-failure",
        "secret-output",
        "secret-error",
    ] {
        assert!(all.contains(word), "{word}");
    }
}

#[step]
async fn gate(#[resource] open: &Arc<tokio::sync::Semaphore>) -> Result<()> {
    open.acquire().await?.forget();
    Ok(())
}

#[workflow]
async fn guarded(word: String) -> Result<String> {
    gate().await?;
    Ok(word)
}

#[tokio::test]
async fn a_run_whose_payloads_cannot_be_decoded_is_parked_and_goes_on_with_the_right_codec() {
    let open = Arc::new(tokio::sync::Semaphore::new(0));
    let store = MemoryStore::new();
    let builder = || {
        Engine::builder()
            .register::<guarded>()
            .resource(open.clone())
    };
    let engine = builder()
        .payload_codec(Xor(1))
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine
        .start(guarded("word".into()))
        .await
        .expect("starts")
        .id();
    drop(engine);
    open.add_permits(1);
    let store = store.reopen(Surviving::Synced);
    let engine = builder()
        .payload_codec(Xor(2))
        .open_with(store.clone())
        .await
        .expect("opens");
    let handle = engine.run::<guarded>(run).await.expect("is there");
    let Err(RunError::Parked(parking)) = handle.result().await else {
        panic!("is parked");
    };
    assert_eq!(parking.reason, ParkReason::Undecodable);
    drop(engine);
    let engine = builder()
        .payload_codec(Xor(1))
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    engine.resume(run).await.expect("resumes");
    let handle = engine.run::<guarded>(run).await.expect("is there");
    assert_eq!(handle.result().await.expect("ends well"), "word");
}

#[tokio::test]
async fn with_an_audit_key_a_journal_rewritten_without_it_is_found() {
    let store = MemoryStore::new();
    let builder = || {
        Engine::builder()
            .register::<consuming>()
            .resource_arc(Ledger::shared())
    };
    // An attacker rewrites the whole journal with a chain that is right but not keyed.
    let engine = builder().open_with(store.clone()).await.expect("opens");
    let run = engine
        .start(consuming("forged".into()))
        .key("k")
        .await
        .expect("starts");
    run.result().await.expect("ends well");
    let forged = frames(&store, run.id()).await;
    assert!(engine.verify().await.expect("verifies").damaged.is_empty());
    drop(engine);

    let own = MemoryStore::new();
    let key = [7; 32];
    let engine = builder()
        .audit_key(key)
        .open_with(own.clone())
        .await
        .expect("opens");
    let run = engine
        .start(consuming("honest".into()))
        .key("k")
        .await
        .expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 6);
    assert!(engine.verify().await.expect("verifies").damaged.is_empty());
    drop(engine);

    let edited = Edited {
        store: own.reopen(Surviving::Synced),
        edit: move |frames: &mut Vec<bytes::Bytes>| *frames = forged.clone(),
    };
    let engine = builder()
        .audit_key(key)
        .open_with(edited)
        .await
        .expect("opens");
    let damaged = engine.verify().await.expect("verifies").damaged;
    assert_eq!(damaged.len(), 1);
    assert_eq!(damaged[0].run(), run.id());
    let run = engine.run::<consuming>(run.id()).await.expect("is there");
    assert!(matches!(
        run.result().await,
        Err(RunError::Engine(EngineError::Journal(_)))
    ));
}
