//! Golden vectors of derivation 1: run ids, step ids, timers, effects, random values.

use futures::join;
use std::time::Duration;
use workflow_runtime::journal::Event;
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{
    Engine, Result, RunId, StepId, checkpoint, continue_as_new, get_step_metadata, random, scope,
    sleep, step, uuid, workflow,
};

#[step(name = "pay")]
async fn pay(item: &str) -> Result<StepId> {
    let _ = item;
    Ok(get_step_metadata().step_id)
}

#[workflow(inline)]
async fn helper(item: &str) -> Result<StepId> {
    pay(item).await
}

#[workflow(name = "golden")]
async fn golden() -> Result<Vec<String>> {
    let mut seen = vec![
        format!("random {}", random::<u64>()),
        format!("uuid {}", uuid()),
    ];
    seen.push(format!("first {}", pay("a").await?));
    seen.push(format!("second {}", pay("b").await?));
    seen.push(format!("keyed {}", pay("c").key("order-7").await?));
    let effect = pay("d").await?;
    seen.push(format!("effect {}", effect.for_effect("mail")));
    let (block, other) = join!(async { pay("e").await }, async {
        let inner = async { pay("f").await };
        inner.await
    });
    seen.push(format!("block {}", block?));
    seen.push(format!("nested {}", other?));
    let closure = async |item: &str| pay(item).await;
    seen.push(format!("closure {}", closure("g").await?));
    seen.push(format!("helper {}", helper("h").await?));
    let named = scope("x/y#%", || async { pay("i").await }).await?;
    seen.push(format!("named {named}"));
    let inside = async { random::<u32>() }.await;
    seen.push(format!("random in a block {inside}"));
    sleep(Duration::ZERO).await;
    Ok(seen)
}

#[tokio::test]
async fn ids_of_derivation_1_never_change() {
    let engine = Engine::builder()
        .namespace("tenant-1")
        .register::<golden>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine
        .start(golden())
        .key("order 1 / ä")
        .await
        .expect("starts");
    let mut seen = run.result().await.expect("ends well");
    seen.insert(0, format!("run {}", run.id()));
    let journal = engine.journal(run.id()).await.expect("reads");
    for record in journal.records() {
        if let Event::TimerFired(timer) = &record.event {
            seen.push(format!("timer {}", timer.timer));
        }
    }
    assert_eq!(seen, GOLDEN, "{seen:#?}");
    let Event::RunStarted(started) = &journal.records()[0].event else {
        panic!("{journal}");
    };
    assert_eq!((started.derivation, started.generation), (1, 0));
}

const GOLDEN: [&str; 14] = [
    "run run_28zc4y9wz4q029jq39f8km2t6c",
    "random 4959111015533623327",
    "uuid d75479c8-1d63-422d-ae36-77e20cd324a1",
    "first step_6v14nv6c4fp6ctzds7jd5xgzp4",
    "second step_2a766kqhskq9f5456cdnzdwrgn",
    "keyed step_5gppxbhr8t6zfvv8caj8wp1j8z",
    "effect step_29sd3smvqtmjmj1tcqcr7zyezq",
    "block step_0kwvzqtw0qthj9gk9d6149kcd4",
    "nested step_0c8j9nsqh5qr1d6g3v4snwn3mf",
    "closure step_2csed2qa1m8z6fthgjer065sz9",
    "helper step_5gh24dx3tb7s2j5197t66xy797",
    "named step_688s26pz05m2wfraat3rctxf9m",
    "random in a block 1097879758",
    "timer step_7rj4etf3cy4rhmpadaj2bt1708",
];

/// BLAKE3 in derive-key mode over fields that are each prefixed with their length.
fn hash(context: &str, fields: &[&[u8]]) -> [u8; 16] {
    let mut hash = blake3::Hasher::new_derive_key(context);
    for field in fields {
        hash.update(&(field.len() as u64).to_le_bytes());
        hash.update(field);
    }
    hash.finalize().as_bytes()[..16]
        .try_into()
        .expect("16 bytes")
}

/// Derives a step's id as the documentation says, independently of the library.
fn step_id(run: RunId, scope: &str, kind: &str, name: &str, which: [&[u8]; 2]) -> StepId {
    let fields: [&[u8]; 7] = [
        &1u16.to_le_bytes(),
        run.as_bytes(),
        scope.as_bytes(),
        kind.as_bytes(),
        name.as_bytes(),
        which[0],
        which[1],
    ];
    StepId::from_bytes(hash("workflow-runtime 2026-11 step id", &fields))
}

#[test]
fn ids_of_derivation_1_are_what_the_documentation_says() {
    let zero = 0u64.to_le_bytes();
    let fields: [&[u8]; 5] = [
        &1u16.to_le_bytes(),
        b"tenant-1",
        b"golden",
        "order 1 / ä".as_bytes(),
        &zero,
    ];
    let run = RunId::from_bytes(hash("workflow-runtime 2026-11 run id", &fields));
    let nth = |n: u64| n.to_le_bytes();
    let pay = |scope: &str, n: u64| step_id(run, scope, "step", "pay", [b"occurrence", &nth(n)]);
    let fourth = pay("", 2); // a keyed call does not count
    let effect = hash(
        "workflow-runtime 2026-11 effect id",
        &[fourth.as_bytes(), b"mail"],
    );
    let derived = [
        format!("run {run}"),
        format!("first {}", pay("", 0)),
        format!("second {}", pay("", 1)),
        format!(
            "keyed {}",
            step_id(run, "", "step", "pay", [b"key", b"order-7"])
        ),
        format!("effect {}", StepId::from_bytes(effect)),
        format!("block {}", pay("a0", 0)),
        format!("nested {}", pay("a1/a0", 0)),
        format!("closure {}", pay("c0", 0)),
        format!("helper {}", pay("h:helper#0", 0)),
        format!("named {}", pay("n:x%2Fy%23%25/a0", 0)),
        format!(
            "timer {}",
            step_id(run, "", "timer", "sleep", [b"occurrence", &zero])
        ),
    ];
    for id in derived {
        assert!(GOLDEN.contains(&&*id), "{id}");
    }
}

#[workflow(name = "golden keys")]
async fn golden_keys(pass: u32, seen: Vec<String>) -> Result<Vec<String>> {
    let mut seen = seen;
    let within = pay("a").idempotency_key("order-7").await?;
    seen.push(format!("within {within}"));
    if pass == 1 {
        return Ok(seen);
    }
    let ttl = Duration::from_secs(60);
    for _ in 0..2 {
        let shared = pay("b").idempotency_key("order-7").shared(ttl).await?;
        seen.push(format!("shared {shared}"));
        sleep(ttl).await;
    }
    checkpoint(&(pass + 1, seen)).await
}

const GOLDEN_KEYS: [&str; 4] = [
    "within step_5p0x5chzcy01nm0w96cbb4engq",
    "shared step_46n8g3eqvdvfdzqgqkrmsy3kz8",
    "shared step_4t9xxwkvy4m8ymkyew9yyzr878",
    "within step_4p6xcjgyhba83wysdq2h9pg1zy",
];

#[tokio::test]
async fn the_ids_of_keyed_and_shared_steps_never_change() {
    let engine = TestEngine::builder()
        .configure(|engine| engine.namespace("tenant-1"))
        .register::<golden_keys>()
        .open()
        .await
        .expect("opens");
    let run = engine.start(golden_keys(0, vec![])).key("order 1 / ä");
    let run = run.await.expect("starts");
    let seen = run.result().await.expect("ends well");
    assert_eq!(seen, GOLDEN_KEYS, "{seen:#?}");

    let version = 1u16.to_le_bytes();
    let id = run.id();
    let within = |pass: &str| {
        let fields: [&[u8]; 5] = [&version, id.as_bytes(), pass.as_bytes(), b"pay", b"order-7"];
        let id = hash("workflow-runtime 2026-11 keyed step id", &fields);
        format!("within {}", StepId::from_bytes(id))
    };
    let shared = |generation: u64| {
        let generation = generation.to_le_bytes();
        let fields: [&[u8]; 5] = [&version, b"tenant-1", b"pay", b"order-7", &generation];
        let id = hash("workflow-runtime 2026-11 shared step id", &fields);
        format!("shared {}", StepId::from_bytes(id))
    };
    let derived = [within(""), shared(0), shared(1), within("k1")];
    assert_eq!(seen, derived, "what the documentation says");
}

#[test]
fn ids_survive_their_text_form_and_nothing_else_is_one() {
    for text in &GOLDEN[3..12] {
        let text = text.rsplit(' ').next().expect("an id");
        assert_eq!(text.parse::<StepId>().expect("an id").to_string(), text);
        assert!(text.parse::<RunId>().is_err());
        assert!(text.to_uppercase().parse::<StepId>().is_err());
        assert!(text[..text.len() - 1].parse::<StepId>().is_err());
    }
}

#[workflow(name = "golden line")]
async fn golden_line(more: bool) -> Result<()> {
    match more {
        true => continue_as_new(golden_line(false)).await,
        false => Ok(()),
    }
}

#[tokio::test]
async fn the_id_of_a_run_that_continues_another_never_changes() {
    let engine = Engine::builder()
        .namespace("tenant-1")
        .register::<golden_line>()
        .open_in_memory()
        .await
        .expect("opens");
    let start = engine.start(golden_line(true)).key("line");
    let run = start.await.expect("starts");
    run.result().await.expect("ends well");
    let line = engine.lineage(run.id()).await.expect("reads");
    let first = run.id();
    let fields: [&[u8]; 3] = [&1u16.to_le_bytes(), first.as_bytes(), &1u64.to_le_bytes()];
    let derived = hash("workflow-runtime 2026-11 continued run id", &fields);
    assert_eq!(line.newest, RunId::from_bytes(derived));
    assert_eq!(line.newest.to_string(), "run_0sx8s7vh5abtrrg23923fnv2hv");
}
