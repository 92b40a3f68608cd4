//! Stores that are whole, with runs in every state, and what is in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use workflow_runtime::store::sled::{SledOptions, SledStore};
use workflow_runtime::store::{NoteKey, RunHeader, RunQuery, RunState, Store};
use workflow_runtime::{
    Engine, EngineBuilder, Result, RunId, resource, sleep, step, wait_for, workflow,
};
use workflow_tests::Ledger;

#[step]
pub(crate) async fn act(what: String, ballast: usize) -> Result<String> {
    resource::<Ledger>().act(&what);
    Ok("x".repeat(ballast))
}

/// Charges, books, waits for a word, settles.
#[workflow]
pub(crate) async fn pay(number: u64, ballast: usize) -> Result<u64> {
    act(format!("charge {number}"), ballast).await?;
    act(format!("book {number}"), 10).await?;
    let more: u64 = wait_for("go").await?;
    act(format!("settle {number}"), 10).await?;
    Ok(number + more)
}

/// Charges and ends.
#[workflow]
pub(crate) async fn tip(number: u64) -> Result<u64> {
    act(format!("tip {number}"), 200).await?;
    Ok(number)
}

/// Charges, sleeps for a day, settles.
#[workflow]
pub(crate) async fn rent(number: u64) -> Result<u64> {
    act(format!("rent {number}"), 50).await?;
    sleep(Duration::from_secs(86_400)).await;
    act(format!("more rent {number}"), 10).await?;
    Ok(number)
}

pub(crate) fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    let builder = Engine::builder().resource_arc(ledger.clone());
    builder
        .register::<pay>()
        .register::<tip>()
        .register::<rent>()
}

/// Everything that is in a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Content {
    pub(crate) runs: BTreeMap<RunId, (RunHeader, Vec<Bytes>, Vec<Bytes>)>,
    pub(crate) notes: BTreeMap<Bytes, Bytes>,
}

/// Reads a store as it is, without an engine.
pub(crate) async fn content(path: &Path) -> Content {
    let store = SledStore::open(path, SledOptions::default()).expect("it opens");
    store.check().await.expect("it is sound");
    let mut content = Content::default();
    let query = RunQuery {
        limit: 10_000,
        ..RunQuery::default()
    };
    for header in store.list(query).await.expect("lists") {
        let run = header.run;
        let frames = store.journal(run).await.expect("reads").frames;
        let mail = store.mail(run, 0).await.expect("reads");
        let mail = mail.into_iter().map(|mail| mail.body).collect();
        content.runs.insert(run, (header, frames, mail));
        let notes = store.notes(NoteKey::of_run(run, &[]), None, 10_000).await;
        for (key, value) in notes.expect("reads") {
            content.notes.insert(key.as_bytes().clone(), value);
        }
    }
    for space in 1..=u8::MAX {
        let notes = store.notes(NoteKey::new(space, &[]), None, 10_000).await;
        for (key, value) in notes.expect("reads") {
            content.notes.insert(key.as_bytes().clone(), value);
        }
    }
    store.close().await.expect("closes");
    content
}

/// How the last process that worked on a store ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Dropped,
    InOrder,
}

/// A store, and what is in it.
pub(crate) struct Sound {
    _directory: TempDir,
    pub(crate) store: PathBuf,
    pub(crate) content: Content,
}

/// Lets two processes work: finished runs, sleeping ones, ones in memory, some in the archive, some in the log only.
async fn make(stop: Stop) -> Sound {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    for round in 0..2_u64 {
        let ledger = Ledger::shared();
        // In the first round those that wait leave memory at once.
        let moment = [Duration::from_millis(1), Duration::from_secs(100)][round as usize];
        let engine = engine(&ledger).evict_after(moment).open(&store).await;
        let engine = engine.expect("opens");
        for number in round * 20..round * 20 + 20 {
            let key = format!("key-{number}");
            if number % 3 == 0 {
                let run = engine.start(tip(number)).key(key).await.expect("starts");
                run.result().await.expect("ends");
            } else if number % 3 == 1 {
                let ballast = if number % 2 == 0 { 9_000 } else { 100 };
                engine
                    .start(pay(number, ballast))
                    .key(key)
                    .await
                    .expect("starts");
            } else {
                engine.start(rent(number)).key(key).await.expect("starts");
            }
        }
        let kept = engine
            .once("kept")
            .run(|| async { Ok::<_, workflow_runtime::Error>(7_u64) });
        kept.await.expect("is kept");
        settled(&ledger, 20 + 7 * usize::from(round == 0)).await;
        // Long enough for the archive.
        tokio::time::sleep(Duration::from_millis(if round == 0 { 1_300 } else { 60 })).await;
        match stop {
            Stop::InOrder => engine.shutdown().await.expect("stops"),
            Stop::Dropped => drop(engine),
        }
        if stop == Stop::Dropped {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
    with_content(directory, store).await
}

async fn with_content(directory: TempDir, store: PathBuf) -> Sound {
    // Of a copy: to read it changes it.
    let copy = directory.path().join("copy");
    copy_all(&store, &copy);
    let content = content(&copy).await;
    fs::remove_dir_all(&copy).expect("removed");
    Sound {
        _directory: directory,
        store,
        content,
    }
}

/// Lets a process work whose log is so short that most of its runs lie in the annex alone, in several files.
async fn make_archived() -> Sound {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let short = SledOptions::default().log_file_bytes_for_tests(8 * 1024);
    let ledger = Ledger::shared();
    let opened = SledStore::open(&store, short).expect("opens");
    let builder = engine(&ledger).evict_after(Duration::from_millis(1));
    let engine = builder.open_with(opened).await.expect("opens");
    for number in 0..60 {
        let key = format!("key-{number}");
        if number % 6 == 5 {
            engine.start(rent(number)).key(key).await.expect("starts");
        } else if number % 6 == 4 {
            let pay = engine.start(pay(number, 2_500)).key(key);
            pay.await.expect("starts");
        } else {
            let run = engine.start(tip(number)).key(key).await.expect("starts");
            run.result().await.expect("ends");
        }
    }
    settled(&ledger, 70).await;
    // Long enough for the archive.
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    engine.shutdown().await.expect("stops");
    with_content(directory, store).await
}

async fn settled(ledger: &Ledger, least: usize) {
    let mut before = 0;
    for _ in 0..500 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let asked = ledger.asked();
        if asked >= least && asked == before {
            return;
        }
        before = asked;
    }
    panic!("{before} bodies ran, not {least}");
}

fn made(make: impl Future<Output = Sound> + Send + 'static) -> Sound {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    std::thread::spawn(move || runtime.block_on(make))
        .join()
        .expect("made")
}

static CLOSED: LazyLock<Sound> = LazyLock::new(|| made(make(Stop::InOrder)));
static DROPPED: LazyLock<Sound> = LazyLock::new(|| made(make(Stop::Dropped)));
static ARCHIVED: LazyLock<Sound> = LazyLock::new(|| made(make_archived()));

/// A store most of whose runs lie in the annex alone.
pub(crate) fn archived() -> &'static Sound {
    &ARCHIVED
}

pub(crate) fn sound(stop: Stop) -> &'static Sound {
    match stop {
        Stop::InOrder => &CLOSED,
        Stop::Dropped => &DROPPED,
    }
}

pub(crate) fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("readable") {
        let path = entry.expect("readable").path();
        let target = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy_all(&path, &target),
            false => {
                fs::copy(&path, &target).expect("copied");
            }
        }
    }
}

/// Reads every file below a directory, by its path inside of it.
pub(crate) fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn add(root: &Path, directory: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(directory).expect("readable") {
            let path = entry.expect("readable").path();
            match path.is_dir() {
                true => add(root, &path, found),
                false => {
                    let name = path.strip_prefix(root).expect("inside").to_path_buf();
                    found.insert(name, fs::read(&path).expect("readable"));
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    add(directory, directory, &mut found);
    found
}

pub(crate) fn has_ended(header: &RunHeader) -> bool {
    matches!(header.state, RunState::Ended(_))
}
