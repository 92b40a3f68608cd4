//! Lines on a disk: runs that go on as new ones while processes stop and the archive takes their journals.

use std::time::Duration;

use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Lineage, Result, Retention, RunId, Sent, continue_as_new,
    publish, step, wait_for, workflow,
};
use workflow_tests::Ledger;

use super::{BOTH, Disk, until, until_memory_is_empty};

#[step]
async fn act(#[resource] ledger: &Ledger, what: String) -> Result<()> {
    ledger.act(&what);
    Ok(())
}

/// Takes one text in each of its runs; most of what it is sent is larger than the store keeps in one value.
#[workflow]
async fn listening(heard: String, until: usize) -> Result<String> {
    let text = wait_for::<String>("text").await?;
    let heard = heard + &text[..1];
    act(format!("heard {heard}")).await?;
    publish("heard", &heard);
    if heard.len() == until {
        return Ok(heard);
    }
    continue_as_new(listening(heard, until)).await
}

/// Waits for a line.
#[workflow]
async fn parent(until: usize) -> Result<String> {
    let heard = listening(String::new(), until).await?;
    act("the child has ended".into()).await?;
    Ok(heard)
}

fn engine() -> EngineBuilder {
    Engine::builder()
        .register::<listening>()
        .register::<parent>()
        .evict_after(Duration::from_millis(2))
}

fn sweeping() -> EngineBuilder {
    engine().retention(Retention::of(Duration::from_millis(1)))
}

async fn line_of(engine: &Engine, run: RunId) -> Lineage {
    let asked = engine.lineage(run).await.expect("is there");
    engine.lineage(asked.newest).await.expect("is there")
}

#[tokio::test]
async fn signals_to_the_first_run_reach_the_newest_through_every_stop() {
    for stop in BOTH {
        let disk = Disk::new(engine);
        let mut engine = disk.open().await;
        let start = engine.start(listening(String::new(), 12)).key("line");
        let run = start.await.expect("starts").id();
        for (round, texts) in ["abc", "def", "ghi", "jkl"].into_iter().enumerate() {
            for text in texts.chars() {
                let body = text.to_string().repeat(6_000);
                let send = engine.signal(run, "text", &body).key(text.to_string());
                assert_eq!(send.await.expect("sends"), Sent::Accepted);
            }
            // At once, or when all of it is done and the archiver has taken what it can.
            if round % 2 == 1 {
                until_memory_is_empty(&engine).await;
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            engine = disk.restart(engine, stop).await;
            let again = engine.signal(run, "text", "z").key(texts[..1].to_owned());
            match again.await {
                Ok(sent) => assert_eq!(sent, Sent::Duplicate),
                Err(EngineError::Ended(_)) => assert_eq!(round, 3),
                Err(error) => panic!("{error}"),
            }
        }
        let again = engine.start(listening(String::new(), 12)).key("line");
        let newest = again.await.expect("the same");
        assert_eq!(newest.result().await.expect("ends well"), "abcdefghijkl");
        assert_eq!(disk.ledger.effects().len(), 12);
        let first = engine.run::<listening>(run).await.expect("is there");
        assert_eq!(first.result().await.expect("ends well"), "abcdefghijkl");
        let heard = first.published::<String>("heard").await.expect("reads");
        assert_eq!(heard.as_deref(), Some("abcdefghijkl"));
        let line = line_of(&engine, run).await;
        assert_eq!((line.run, line.ordinal), (newest.id(), 11));
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn a_parent_on_a_disk_hears_from_the_last_run_of_its_childs_line() {
    for stop in BOTH {
        let disk = Disk::new(engine);
        let mut engine = disk.open().await;
        let run = engine.start(parent(4)).key("parent").await;
        let run = run.expect("starts").id();
        let child = async |engine: &Engine| {
            let runs = engine.runs().workflow("listening").await;
            runs.expect("lists").runs.pop().map(|header| header.run)
        };
        until("the child is there", async || {
            child(&engine).await.is_some()
        })
        .await;
        let child = child(&engine).await.expect("is there");
        for text in ["a", "b", "c", "d"] {
            engine.signal(child, "text", text).await.expect("sends");
            engine = disk.restart(engine, stop).await;
        }
        let handle = engine.run::<parent>(run).await.expect("is there");
        assert_eq!(handle.result().await.expect("ends well"), "abcd");
        assert_eq!(disk.ledger.effects().len(), 5);
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn a_long_line_on_a_disk_is_swept_but_for_its_ends() {
    let disk = Disk::new(sweeping);
    let mut engine = disk.open().await;
    let start = engine.start(listening(String::new(), 30)).key("line");
    let run = start.await.expect("starts").id();
    for n in 0..29 {
        engine.signal(run, "text", "x").await.expect("sends");
        until("it goes on", async || {
            line_of(&engine, run).await.ordinal > n
        })
        .await;
        if n % 10 == 9 {
            engine = disk.restart(engine, BOTH[usize::from(n == 19)]).await;
        }
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    engine.sweep().await.expect("sweeps");
    let newest = line_of(&engine, run).await.newest;
    let left = engine.runs().await.expect("lists").runs;
    let left: Vec<_> = left.iter().map(|header| header.run).collect();
    assert_eq!(left, [newest, run]);
    engine = disk.restart(engine, BOTH[0]).await;
    engine.signal(run, "text", "y").await.expect("sends");
    let handle = engine.run::<listening>(run).await.expect("is there");
    let heard = handle.result().await.expect("ends well");
    assert_eq!(heard, "x".repeat(29) + "y");
    disk.is_sound(engine).await;
}
