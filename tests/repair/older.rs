//! What the database said earlier is still in sled's file: a repair must not take it for the newest.

use std::fs;
use std::path::Path;
use std::time::Duration;

use workflow_runtime::repair::{Fate, repair};
use workflow_runtime::{Engine, Result, resource, step, wait_for, workflow};
use workflow_tests::Ledger;

use super::sound::{Content, content, copy_all};

/// What is damaged at once.
const PAGE: usize = 4_096;

/// Runs, and how often each is woken.
const RUNS: u64 = 12;
const TALKS: u64 = 4;

#[step]
async fn note(what: String) -> Result<String> {
    resource::<Ledger>().act(&what);
    Ok("x".repeat(400))
}

/// Hears a word, takes a note, and so on.
#[workflow]
async fn listen(number: u64) -> Result<u64> {
    for word in 0..=TALKS {
        note(format!("{number} heard {word}")).await?;
        wait_for::<u64>("word").await?;
    }
    Ok(number)
}

/// A store whose runs left memory again and again, with an orderly stop after each time: of what they were before, the log knows
/// nothing any more, and sled's file much.
async fn make(store: &Path) -> Content {
    for talk in 0..=TALKS {
        let ledger = Ledger::shared();
        let builder = Engine::builder().resource_arc(ledger.clone());
        let builder = builder.evict_after(Duration::from_millis(1));
        let engine = builder.register::<listen>().open(store).await;
        let engine = engine.expect("opens");
        for number in 0..RUNS {
            let run = engine.start(listen(number)).key(format!("run-{number}"));
            let run = run.await.expect("starts");
            if talk > 0 {
                run.signal("word", &talk).await.expect("takes it");
            }
        }
        while (ledger.effects().len() as u64) < RUNS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Until they have left memory and are in the archive.
        tokio::time::sleep(Duration::from_millis(300)).await;
        engine.shutdown().await.expect("stops");
    }
    let copy = store.with_extension("copy");
    copy_all(store, &copy);
    content(&copy).await
}

#[tokio::test]
async fn what_was_written_before_a_hole_is_not_taken_for_the_newest() {
    let root = tempfile::tempdir().expect("a directory");
    let (sound, from, to) = (
        root.path().join("sound"),
        root.path().join("from"),
        root.path().join("to"),
    );
    let was = make(&sound).await;
    let bytes = fs::read(sound.join("db")).expect("there");
    let pages = 0..bytes.len().div_ceil(PAGE);
    let used = pages.filter(|page| {
        let end = bytes.len().min((page + 1) * PAGE);
        bytes[page * PAGE..end].iter().any(|byte| *byte != 0)
    });
    let (mut parked, mut whole) = (0, 0);
    for page in used {
        for old in [&from, &to] {
            let _ = fs::remove_dir_all(old);
        }
        copy_all(&sound, &from);
        let mut damaged = bytes.clone();
        let end = bytes.len().min((page + 1) * PAGE);
        damaged[page * PAGE..end].fill(0xa5);
        fs::write(from.join("db"), damaged).expect("written");
        let repaired = repair(&from, &to).expect("repaired");
        let now = content(&to).await;
        for run in &repaired.runs {
            let (salvaged, frames) = (&now.runs[&run.run].1, &was.runs[&run.run].1);
            assert!(frames.starts_with(salvaged), "page {page}: {run}");
            match run.fate {
                Fate::Whole => {
                    let len = frames.len();
                    assert_eq!(salvaged.len(), len, "page {page}: {run} lost records");
                    whole += 1;
                }
                _ => parked += usize::from(salvaged.len() < frames.len()),
            }
        }
    }
    assert!(whole > 0, "some are whole");
    assert!(parked > 0, "some damage hits what was the newest");
}
