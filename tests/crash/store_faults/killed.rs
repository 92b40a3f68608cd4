//! kill -9 at random moments: nothing that was acknowledged is lost.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use workflow_runtime::store::Store;
use workflow_runtime::store::sled::{SledOptions, SledStore};

use super::child;
use super::said::Said;
use super::story;
use super::work::{Look, Numbers, look};

/// How many times the process is killed.
const KILLS: u64 = 30;

/// Kills a child again and again while it works, and looks at all it said after each time.
async fn kill_again_and_again(task: &str, kills: u64) -> Said {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let mut said = String::new();
    let mut numbers = Numbers(1);
    for kill in 0..kills {
        let mut running = child::command(task, &path)
            .spawn()
            .expect("the child starts");
        let mut output = BufReader::new(running.stdout.take().expect("piped"));
        // Sometimes while the store is being opened, mostly in the middle of the work.
        if kill % 4 > 0 {
            // However slow the disk is: so much it gets to do.
            for _ in 0..=numbers.below(8) {
                let mut line = String::new();
                while !line.starts_with("ack") {
                    line.clear();
                    assert!(output.read_line(&mut line).expect("text") > 0, "it gave up");
                    said.push_str(&line);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(numbers.below(50)));
        running.kill().expect("killed");
        running.wait().expect("gone");
        output.read_to_string(&mut said).expect("text");
        said.push('\n'); // what was cut off is no line; the next child begins a new one
        let store = SledStore::open(&path, SledOptions::default())
            .unwrap_or_else(|error| panic!("after kill {kill}: {error}"));
        assert!(kill == 0 || !store.stopped_cleanly());
        let heard = Said::of(&said);
        for expected in heard.acknowledged {
            let found = look(&store, expected).await;
            assert_eq!(found, Look::Sound, "after kill {kill}: {expected:?}");
        }
        for told in heard.told {
            let found = story::look(&store, told).await;
            assert_eq!(found, Look::Sound, "after kill {kill}: {told:?}");
        }
        store.check().await.expect("sound");
    }
    Said::of(&said)
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let said = kill_again_and_again("grow 1 1000000 300 sync", KILLS).await;
    let frames: u64 = said.acknowledged.iter().map(|run| run.frames).sum();
    assert!(
        frames > 2 * KILLS,
        "the child got to do something: {frames}"
    );
}

#[tokio::test]
async fn a_killed_process_that_forgets_keeps_what_it_did_not_forget() {
    let said = kill_again_and_again("forget 1 1000000 300", KILLS / 2).await;
    let frames: u64 = said.acknowledged.iter().map(|run| run.frames).sum();
    assert!(frames > 40, "the child got to do something: {frames}");
}

#[tokio::test]
async fn a_killed_process_leaves_every_story_where_its_note_says() {
    let said = kill_again_and_again("tell 1 1000000 300", KILLS / 2).await;
    let told = said.told;
    assert!(told.len() > 12, "the child got to do something");
    assert!(told.iter().any(|told| told.step == story::LAST));
    let said = kill_again_and_again("tell 1 1000000 9000", KILLS / 3).await;
    assert!(said.told.len() > 4);
}
