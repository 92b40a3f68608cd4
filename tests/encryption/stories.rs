//! Workflows that carry a secret on every way on which a value reaches a store.

use std::time::Duration;

use workflow_runtime::{
    Engine, EngineBuilder, Error, Queue, RelayOptions, Result, checkpoint, continue_as_new,
    get_step_metadata, hook, outbox, publish, step, undo_with, wait_for, workflow,
};

/// What no file and no log may hold: a word that says on which way it came.
pub(super) fn secret(way: &str) -> String {
    format!("canary-{way}.")
}

const AN_HOUR: Duration = Duration::from_secs(3600);

#[step]
async fn work(word: &str, way: &str) -> Result<String> {
    assert!(word.starts_with("canary-"), "{word}");
    outbox("mail").push(&secret("message-of-step"))?;
    Ok(secret(way))
}

#[step(max_attempts = 2, backoff = "1ms..1ms")]
async fn flaky() -> Result<String> {
    match get_step_metadata().attempt {
        1 => Err(Error::new(secret("attempt"))),
        _ => Ok(secret("second-attempt")),
    }
}

#[step]
async fn wrong() -> Result<()> {
    Err(Error::fatal(secret("step-error")))
}

#[step(max_attempts = 1)]
async fn panics() -> Result<()> {
    panic!("{}", secret("step-panic"));
}

#[step]
async fn done_before() -> Result<String> {
    Err(Error::already_done(secret("already-done")))
}

#[step(intent)]
async fn announced(word: String) -> Result<usize> {
    Ok(word.len())
}

#[step]
async fn fetch(word: String) -> Result<String> {
    Ok(format!("{word}{}", secret("keyed")))
}

#[step(undo = put_back)]
async fn take(word: String) -> Result<String> {
    Ok(format!("{word}{}", secret("undo-output")))
}

#[step]
async fn put_back(word: String, taken: Option<String>) -> Result<()> {
    assert_eq!(word, secret("undo-input"));
    let taken = taken.expect("it had an outcome");
    assert_eq!(taken, word + &secret("undo-output"));
    Ok(())
}

#[step]
async fn say(_word: String) -> Result<()> {
    Ok(())
}

#[workflow]
pub(super) async fn child(word: String) -> Result<String> {
    assert_eq!(word, secret("child-input"));
    Ok(secret("child-output"))
}

#[workflow]
pub(super) async fn bad_child() -> Result<String> {
    Err(Error::fatal(secret("child-error")))
}

/// Most ways in one run. It waits for two signals and a hook.
#[workflow]
pub(super) async fn everything(input: String) -> Result<String> {
    assert_eq!(input, secret("run-input"));
    publish("state", &secret("published"));
    assert_eq!(
        work(&secret("step-input"), "step-output").await?,
        secret("step-output")
    );
    assert_eq!(flaky().await?, secret("second-attempt"));
    let error = wrong().await.expect_err("fails");
    assert!(error.to_string().contains(&secret("step-error")));
    let error = panics().await.expect_err("panics");
    assert!(error.to_string().contains(&secret("step-panic")));
    assert_eq!(done_before().await?, secret("already-done"));
    announced(secret("intent")).await?;
    let first = fetch(secret("fetched")).idempotency_key("k").await?;
    assert_eq!(fetch(secret("fetched")).idempotency_key("k").await?, first);
    let shared = || fetch(secret("shared")).idempotency_key("k").shared(AN_HOUR);
    assert_eq!(shared().await?, shared().await?);
    outbox("mail").push(&secret("message-of-workflow"))?;
    assert_eq!(child(secret("child-input")).await?, secret("child-output"));
    let error = bad_child().await.expect_err("fails");
    assert!(error.to_string().contains(&secret("child-error")));
    let mut callback = hook::<String>("token").await?;
    assert_eq!(wait_for::<String>("word").await?, secret("signal"));
    assert_eq!(callback.next().await?, secret("hook"));
    assert_eq!(wait_for::<String>("event").await?, secret("inbox-signal"));
    Ok(secret("run-output"))
}

/// Has something to undo, by a step and by a kept call, and fails.
#[workflow]
pub(super) async fn failing() -> Result<()> {
    take(secret("undo-input")).idempotency_key("t").await?;
    take(secret("undo-input")).idempotency_key("t").await?;
    undo_with(say(secret("kept-call")));
    Err(Error::fatal(secret("run-error")))
}

/// Fails in its second pass, and undoes what the first one did.
#[workflow]
pub(super) async fn passes(state: String, pass: u32) -> Result<()> {
    assert_eq!(state, secret("checkpoint"));
    if pass == 0 {
        take(secret("undo-input")).await?;
        checkpoint(&(state, 1)).await
    }
    wait_for::<String>("word").await?;
    Err(Error::fatal(secret("late-error")))
}

/// Goes on as a new run twice; the signals that it has not taken go along.
#[workflow]
pub(super) async fn lives(state: String, life: u32) -> Result<String> {
    assert_eq!(state, secret("continued"));
    if life < 2 {
        say(secret("life")).await?;
        if life == 0 {
            wait_for::<()>("begin").await?;
        }
        publish("life", &secret("line-published"));
        continue_as_new(lives(state, life + 1)).await
    }
    wait_for::<String>("word").await
}

/// Panics until it is mended, with a secret that its parking report may not show.
#[workflow]
pub(super) async fn stuck(word: String) -> Result<()> {
    panic!("{word}");
}

#[workflow]
pub(super) async fn plain(word: String) -> Result<usize> {
    Ok(word.len())
}

pub(super) fn builder() -> EngineBuilder {
    Engine::builder()
        .register::<child>()
        .register::<bad_child>()
        .register::<everything>()
        .register::<failing>()
        .register::<passes>()
        .register::<lives>()
        .register::<stuck>()
        .register::<plain>()
        .queue(Queue::named("queue").concurrency(1))
        .outbox_with(
            "mail",
            RelayOptions::default().max_attempts(1),
            |message| async move {
                let word: String = message.decode()?;
                assert!(word.starts_with("canary-message"), "{word}");
                match word.contains("workflow") {
                    true => Err(Error::fatal(secret("aside-problem"))),
                    false => Ok(()),
                }
            },
        )
}
