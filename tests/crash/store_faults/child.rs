//! The process that gets killed: this test binary, started again with a task.
//!
//! It appends to a store and prints one line per acknowledgement: run, number of frames
//! that are acknowledged, their length.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::store::sled::{SledOptions, SledStore};
use workflow_runtime::store::{Append, Creation, Durability, Epoch, Store, StoreError};

use super::story::{LAST, Told, tell};
use super::tidying;
use super::work::{append, ending, forgets, id, new_run};

/// The variable that says what the child is to do.
const TASK: &str = "STORE_CHILD_TASK";

/// No task takes nearly as long, unless the store never answers.
const HANGS_AFTER: Duration = Duration::from_secs(120);

/// How many runs grow at the same time, so that commits are groups.
const WRITERS: u64 = 4;

/// Which writes are synced and spoken of; the others are buffered and silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Synced {
    All,
    /// The creation and every fourth append.
    Mixed,
    /// Those of one run in many, so that archives find commits that are not synced.
    Rare,
}

/// Prepares to start this binary again as a child with a task.
pub(super) fn command(task: &str, store: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
    command
        .args(["store_faults::child::the_child_does_its_task", "--exact"])
        .args(["--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .env("STORE_DIR", store)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Not a test of its own: what the child runs. Without a task it does nothing.
#[test]
fn the_child_does_its_task() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let store = std::env::var("STORE_DIR").expect("the parent says where");
    std::thread::spawn(|| {
        std::thread::sleep(HANGS_AFTER);
        say("it hangs");
        std::process::abort();
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let words: Vec<&str> = task.split(' ').collect();
    match words[..] {
        ["hold"] => hold(Path::new(&store)),
        ["until", "it", "fails"] => runtime.block_on(until_it_fails(Path::new(&store))),
        ["tidy", runs, len] => {
            let (runs, len) = (runs.parse().expect("a number"), len.parse());
            let len = len.expect("a length");
            runtime.block_on(tidying::tidy(Path::new(&store), runs, len));
        }
        ["tell", rounds, stories, len, ref files @ ..] => {
            let number = |word: &str| word.parse::<u64>().expect("a number");
            let len = usize::try_from(number(len)).expect("a length");
            for round in 0..number(rounds) {
                let options = match files {
                    ["small"] => small_log(),
                    ["short"] => short_log(),
                    _ => SledOptions::default(),
                };
                let open = SledStore::open(&store, options);
                let open = Arc::new(open.expect("the store opens"));
                runtime.block_on(tell_stories(&open, round, number(stories), len));
                match round % 2 {
                    _ if round + 1 == number(rounds) => std::mem::forget(open),
                    0 => drop(open),
                    _ => runtime.block_on(open.close()).expect("closed"),
                }
            }
        }
        ["forget", rounds, each, len] => {
            let number = |word: &str| word.parse::<u64>().expect("a number");
            let len = usize::try_from(number(len)).expect("a length");
            for round in 0..number(rounds) {
                let open = SledStore::open(&store, small_log()).expect("the store opens");
                let open = Arc::new(open);
                runtime.block_on(forget(&open, number(each), len));
                match round % 2 {
                    _ if round + 1 == number(rounds) => std::mem::forget(open),
                    0 => runtime.block_on(open.close()).expect("closed"),
                    _ => drop(open),
                }
            }
        }
        ["doze", runs, len] => {
            let (runs, len) = (runs.parse().expect("a number"), len.parse());
            let open = SledStore::open(&store, short_log()).expect("the store opens");
            runtime.block_on(doze(&open, runs, len.expect("a length")));
            std::mem::forget(open);
        }
        ["grow", rounds, each, len, skip] => {
            let number = |word: &str| word.parse::<u64>().expect("a number");
            let (options, synced) = match skip {
                "skip" => (
                    SledOptions::default().unsafe_skip_fdatasync_for_tests(),
                    Synced::All,
                ),
                "mixed" => (SledOptions::default(), Synced::Mixed),
                "rare" => (SledOptions::default(), Synced::Rare),
                _ => (SledOptions::default(), Synced::All),
            };
            let len = usize::try_from(number(len)).expect("a length");
            for round in 0..number(rounds) {
                let last = round + 1 == number(rounds);
                let store = SledStore::open(&store, options.clone()).expect("the store opens");
                let store = Arc::new(store);
                runtime.block_on(grow(&store, number(each), len, synced));
                // Closed, dropped, and at last left as it is.
                match round % 2 {
                    _ if last => std::mem::forget(store),
                    0 => runtime.block_on(store.close()).expect("closed"),
                    _ => drop(store),
                }
            }
        }
        _ => panic!("unknown task `{task}`"),
    }
}

/// A log, and an annex, in so small files that many come and go while a run begins anew a few times.
pub(super) fn small_log() -> SledOptions {
    SledOptions::default().log_file_bytes_for_tests(8 * 1024)
}

/// A log in small files, of which there are enough at a time for runs to sleep in it.
fn short_log() -> SledOptions {
    SledOptions::default().log_file_bytes_for_tests(32 * 1024)
}

/// Lets runs fall asleep, each with two acknowledged frames, and has an archive follow before anything else asks for a sync: of runs that
/// end, which nobody is told of. Every third run is woken and falls asleep once more.
async fn doze(store: &SledStore, runs: u64, len: usize) {
    for n in 0..runs {
        store.create(new_run(n, len)).await.expect("created");
        say(&format!("ack {n} 1 {len}"));
        let mut epoch = Epoch::FIRST;
        let is_woken = n % 3 == 2;
        for seq in 1..=1 + u64::from(is_woken) {
            if seq > 1 {
                let claim = store.claim(id(n), 0).await.expect("claimed");
                epoch = claim.expect("there").epoch;
            }
            let one = append(n, epoch, seq, len);
            store.append(one).await.expect("appended");
            say(&format!("ack {n} {} {len}", seq + 1));
            let asleep = store.put_to_sleep(id(n), epoch, None).await;
            asleep.expect("it sleeps");
        }
        if n % 8 == 7 {
            let other = 1_000_000 + n;
            let mut run = new_run(other, 9_000);
            run.durability = Durability::Buffered;
            store.create(run).await.expect("created");
            let mut end = ending(other, Epoch::FIRST, 1, 9_000);
            end.durability = Durability::Buffered;
            store.append(end).await.expect("ended");
            // Longer than the archiver waits in a lull.
            tokio::time::sleep(std::time::Duration::from_millis(40)).await;
        }
    }
}

/// Lets some runs grow that forget again and again what they had, as a checkpoint has them do it. One of them
/// sleeps in between, so that what it forgets was archived before.
async fn forget(store: &Arc<SledStore>, each: u64, len: usize) {
    let mut writers = Vec::new();
    for n in 0..WRITERS {
        let store = Arc::clone(store);
        writers.push(tokio::spawn(async move {
            if let Creation::Created(_) = store.create(new_run(n, len)).await.expect("created") {
                say(&format!("ack {n} 1 {len}"));
            }
            let (mut epoch, mut seq) = claim_kept(&store, n).await;
            for _ in 0..each {
                let mut one = append(n, epoch, seq, len);
                if n % 2 == 1 && !seq.is_multiple_of(5) {
                    one.durability = Durability::Buffered;
                }
                let is_synced = one.durability == Durability::Synced;
                store.append(one).await.expect("appended");
                seq += 1;
                if is_synced {
                    say(&format!("ack {n} {seq} {len}"));
                }
                if let Some(below) = forgets(seq) {
                    drop(store.forget(id(n), epoch, below));
                }
                if n == 0 && seq.is_multiple_of(11) {
                    let asleep = store.put_to_sleep(id(n), epoch, None).await;
                    asleep.expect("it sleeps");
                    tokio::time::sleep(std::time::Duration::from_millis(30)).await;
                    epoch = claim_kept(&store, n).await.0;
                }
            }
        }));
    }
    for writer in writers {
        writer.await.expect("no writer panics");
    }
}

/// Claims a run that forgets. Returns how many frames it has had.
async fn claim_kept(store: &SledStore, n: u64) -> (Epoch, u64) {
    let kept = store.journal(id(n)).await.expect("readable");
    let claim = store.claim(id(n), kept.kept_from).await;
    let epoch = claim.expect("claimed").expect("there").epoch;
    (
        epoch,
        kept.frames.len() as u64 + kept.kept_from.saturating_sub(2),
    )
}

/// Holds the store until the parent has seen enough.
fn hold(path: &Path) {
    let _store = SledStore::open(path, SledOptions::default()).expect("the store opens");
    say("holding");
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

pub(super) fn say(line: &str) {
    // One write per line: what the parent reads whole was said after what it tells of.
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())
        .and_then(|()| out.flush())
        .expect("the parent listens");
}

/// Appends until the disk refuses, and then looks whether the store keeps its promise to
/// acknowledge nothing more.
async fn until_it_fails(path: &Path) {
    let store = SledStore::open(path, SledOptions::default()).expect("the store opens");
    let Creation::Created(epoch) = store.create(new_run(1, 300)).await.expect("created") else {
        panic!("the store is new");
    };
    say("ack 1 1 300");
    let mut seq = 1;
    loop {
        // Two at a time: in one group or in two.
        let pair = [0, 1].map(|more| store.append(append(1, epoch, seq + more, 300)));
        let mut refused = false;
        for one in pair {
            match one.await {
                Ok(()) if refused => panic!("one behind a refused one was acknowledged"),
                Ok(()) => {
                    seq += 1;
                    say(&format!("ack 1 {seq} 300"));
                }
                Err(StoreError::Failed { .. }) => refused = true,
                Err(other) => panic!("{other:?}"),
            }
        }
        if refused {
            break;
        }
        // The archiver writes behind the log, and the later the busier the machine is.
        assert!(seq < 100_000, "the disk never refused");
    }
    expect_stopped(&store, append(1, epoch, 1, 300)).await;
}

/// Looks whether a store that failed acknowledges nothing more, and says so.
pub(super) async fn expect_stopped(store: &SledStore, one: Append) {
    let reason = store.failure().expect("it says why");
    let answers = [
        store.create(new_run(1_000_000, 300)).await.map(|_| ()),
        store.frames(one.run, 0, 1).await.map(|_| ()),
        store.append(one).await,
        store.unfinished().await.map(|_| ()),
        store.close().await,
    ];
    for answer in answers {
        match answer {
            Err(StoreError::Failed { error }) => assert_eq!(error, reason),
            other => panic!("after `{reason}`: {other:?}"),
        }
    }
    say("stopped");
}

/// Lets some runs grow until each round's share is done, and ends every second one.
async fn grow(store: &Arc<SledStore>, each: u64, len: usize, synced: Synced) {
    let earlier = store.unfinished().await.expect("readable");
    let begun = first_unused(store).await;
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(store);
        writers.push(tokio::spawn(async move {
            let mut n = begun + writer;
            let mut left = each;
            while left > 0 {
                let grown = grow_one(&store, n, left.min(8), len, synced).await;
                left -= grown;
                n += WRITERS;
            }
        }));
    }
    for unfinished in earlier {
        go_on(store, unfinished.run, len).await;
    }
    for writer in writers {
        writer.await.expect("no writer panics");
    }
}

/// Tells stories: those of the rounds before to their ends, and new ones up to a step each.
async fn tell_stories(store: &Arc<SledStore>, round: u64, stories: u64, len: usize) {
    let begun = first_unused(store).await.max(stories * round);
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(store);
        writers.push(tokio::spawn(async move {
            let said = |told: Told| say(&format!("ack-story {} {} {len}", told.n, told.step));
            let earlier = (0..begun).filter(|n| n % WRITERS == writer);
            for n in earlier.chain((begun..begun + stories).filter(|n| n % WRITERS == writer)) {
                let step = match n < begun {
                    true => LAST,
                    false => n % (LAST + 1),
                };
                let told = tell(&store, Told { n, step, len }, said).await;
                told.expect("the store goes on");
            }
        }));
    }
    for writer in writers {
        writer.await.expect("no writer panics");
    }
}

/// Returns a run number that no earlier round used.
async fn first_unused(store: &SledStore) -> u64 {
    let query = workflow_runtime::store::RunQuery {
        limit: 1,
        ..Default::default()
    };
    let newest = store.list(query).await.expect("listed");
    // The numbers are in the creation times.
    newest
        .first()
        .map_or(0, |header| header.created_at.as_micros() - 1_000 + WRITERS)
}

/// Lets one run grow. Where an append is silent, the synced one behind it speaks for it.
async fn grow_one(store: &SledStore, n: u64, frames: u64, len: usize, synced: Synced) -> u64 {
    let is_silent = |seq: u64| match synced {
        Synced::All => false,
        Synced::Mixed => !seq.is_multiple_of(4),
        Synced::Rare => !n.is_multiple_of(37),
    };
    let mut run = new_run(n, len);
    if is_silent(0) {
        run.durability = Durability::Buffered;
    }
    let epoch = match store.create(run).await.expect("created") {
        Creation::Created(epoch) => epoch,
        Creation::Exists(_) => return 1,
    };
    if !is_silent(0) {
        say(&format!("ack {n} 1 {len}"));
    }
    for seq in 1..frames {
        let last = seq + 1 == frames && n.is_multiple_of(2);
        let mut one = if last {
            ending(n, epoch, seq, len)
        } else {
            append(n, epoch, seq, len)
        };
        if is_silent(seq) {
            one.durability = Durability::Buffered;
        }
        store.append(one).await.expect("appended");
        if !is_silent(seq) {
            say(&format!("ack {n} {} {len}", seq + 1));
        }
    }
    frames.max(1)
}

/// Claims a run of an earlier round and appends to it.
async fn go_on(store: &SledStore, run: workflow_runtime::RunId, len: usize) {
    let claim = store.claim(run, 0).await.expect("claimed").expect("there");
    let n = claim.header.created_at.as_micros() - 1_000;
    if run != id(n) || claim.frames.is_empty() {
        panic!("{run} is not what was written");
    }
    let next = claim.frames.len() as u64;
    let one = append(n, claim.epoch, next, len);
    if store.append(one).await.is_ok() {
        say(&format!("ack {n} {} {len}", next + 1));
    }
}
