//! What the testing kit and the newer parts of the engine do with encryption on.

use workflow_runtime::journal::Event;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::testing::{Ledger, Replayer, Stopped, TestEngine, crash_everywhere};
use workflow_runtime::{
    Engine, EngineBuilder, Error, Result, checkpoint, get_step_metadata, step, wait_for, workflow,
};

use super::places::Telling;
use super::{encryption, until};

#[step(effect = "payment", backoff = "1s..2s")]
async fn charge(#[resource] ledger: &Ledger, who: &str, cents: u64) -> Result<u64> {
    let posted = ledger.post(get_step_metadata().step_id, ("charge", who, cents))?;
    Ok(posted.receipt)
}

#[workflow]
async fn delivery(to: String) -> Result<String> {
    Ok(format!("brought to {to}"))
}

#[workflow]
async fn checkout(who: String) -> Result<String> {
    let receipt = charge(&who, 500).await?;
    let word: String = wait_for("word").await?;
    let brought = delivery(who).await?;
    Ok(format!("{receipt} {word} {brought}"))
}

fn encrypted(builder: EngineBuilder) -> EngineBuilder {
    builder.payload_codec(Telling(encryption()))
}

#[tokio::test]
async fn stubs_and_calls_see_arguments_and_answers_in_clear() {
    let engine = TestEngine::builder()
        .register::<checkout>()
        .register::<delivery>()
        .configure(encrypted)
        .stub::<charge>(|(who, cents): (String, u64)| Ok(who.len() as u64 + cents))
        .open()
        .await
        .expect("opens");
    let run = engine
        .start(checkout("lovelace".into()))
        .await
        .expect("starts");
    run.signal("word", "now").await.expect("sent");
    let result = run.result().await.expect("ends");
    assert_eq!(result, "508 now brought to lovelace");
    let calls = engine.calls::<charge>();
    calls.assert_inputs([("lovelace".to_owned(), 500)]);
    assert!(calls.assert_called_once().is_stubbed());
    let file = engine.export(run.id()).await.expect("exports");
    assert_eq!(file.key_ids(), [1]);
    assert!(!file.to_json().contains("lovelace"), "{}", file.to_json());
}

#[workflow]
async fn ends_in_a_word(word: String) -> Result<String> {
    match &*word {
        "fail" => Err(Error::fatal("a sad word")),
        "panic" => panic!("a loud word"),
        _ => Ok(format!("a good {word}")),
    }
}

/// The text of a test that waits for a signal which the run does not wait for.
fn in_vain(word: &'static str) -> String {
    let test = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime is made");
        runtime.block_on(async {
            let engine = TestEngine::builder()
                .register::<ends_in_a_word>()
                .configure(encrypted)
                .open()
                .await
                .expect("opens");
            let run = engine.start(ends_in_a_word(word.into())).await;
            let run = run.expect("starts");
            engine.until_waiting_for_signal(&run, "never").await;
        });
    };
    let panic = std::thread::spawn(test)
        .join()
        .expect_err("it waits in vain");
    *panic.downcast::<String>().expect("a text")
}

#[test]
fn a_test_that_waits_in_vain_is_shown_what_the_run_ended_with() {
    for (word, shown) in [
        ("fine", "it completed with: \"a good fine\""),
        ("fail", "it failed with: a sad word"),
        ("panic", "more: a loud word"),
    ] {
        let text = in_vain(word);
        assert!(text.contains(shown), "{text}");
    }
}

#[tokio::test]
async fn crash_everywhere_comes_out_the_same_with_encryption() {
    let report = crash_everywhere(|| checkout("ada".into()))
        .engine(|engine, ledger: &Ledger| {
            let engine = engine.register::<delivery>().configure(encrypted);
            engine.resource(ledger.clone())
        })
        .drive(async |_, run| {
            run.signal("word", "now").key("once").await?;
            Ok(())
        })
        .run()
        .await;
    assert!(report.writes() > 5, "{report:#}");
    assert_eq!(report.cases(), 2 * report.writes());
}

#[step]
async fn count(word: String) -> Result<usize> {
    Ok(word.len())
}

/// More records than a run keeps for long, and a word that goes along.
#[workflow]
async fn circling(word: String, pass: u64) -> Result<String> {
    for n in 0..40 {
        count(format!("{word} {n}")).await?;
    }
    if pass == 8 {
        let end: String = wait_for("end").await?;
        return Ok(format!("{word} {end}"));
    }
    checkpoint(&(word, pass + 1)).await
}

#[tokio::test]
async fn a_run_that_forgot_passes_goes_on_is_forked_and_exported_with_its_key() {
    let builder = || encrypted(Engine::builder().register::<circling>());
    let store = MemoryStore::new();
    let engine = builder().open_with(store.clone()).await.expect("opens");
    let run = engine.start(circling("round".into(), 0)).await;
    let run = run.expect("starts").id();
    until("it waits", async || {
        let journal = engine.journal(run).await.expect("reads");
        let mut newest = journal.records().iter().rev();
        let steps = newest.by_ref().take(40);
        let all = steps.filter(|it| matches!(it.event, Event::StepCompleted(_)));
        all.count() == 40
            && newest.next().is_some_and(
                |it| matches!(&it.event, Event::Checkpoint(checkpoint) if checkpoint.pass == 8),
            )
    })
    .await;
    engine.shutdown().await.expect("stops");

    let store = store.reopen(Surviving::All);
    let engine = builder().open_with(store).await.expect("opens");
    let journal = engine.journal(run).await.expect("reads");
    assert_ne!(journal.records()[2].seq, 2, "it has forgotten passes");
    let fork = engine.fork(run).await.expect("forks");
    for (run, word) in [(run, "and round"), (fork, "and out")] {
        engine.signal(run, "end", word).await.expect("sent");
        let handle = engine.run::<circling>(run).await.expect("is there");
        let result = handle.result().await.expect("ends");
        assert_eq!(result, format!("round {word}"));
        let file = engine.export(run).await.expect("exports");
        assert!(file.is_coded() && !file.to_json().contains("round"));
        let replayer = Replayer::new().register::<circling>().configure(encrypted);
        let replayed = replayer.journal(&file).expect("fits");
        assert_eq!(replayed.stopped, Stopped::Ended);
    }
}
