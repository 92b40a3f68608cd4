//! Directories that are not what they should be: each has a typed answer, and is left as it
//! was.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use workflow_runtime::store::sled::{SledOptions, SledStore};
use workflow_runtime::store::{Creation, Store, StoreError};

use super::child;
use super::story::{self, LAST, Told};
use super::work::{Expected, Look, Numbers, append, ending, look, new_run};

/// Frames of the damaged stores.
pub(super) const LEN: usize = 300;

/// How many bits are flipped, one at a time, unless the variable `STORE_FLIPS` says more.
const FLIPS: u64 = 300;

/// No open and no read takes this long unless it hangs.
const HANGS_AFTER: Duration = Duration::from_secs(20);

pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Reads every file below a directory.
pub(super) fn files(directory: &Path) -> Files {
    let mut found = Files::new();
    for entry in fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).expect("readable"));
        }
    }
    found
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("readable") {
        let path = entry.expect("readable").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("copied");
        }
    }
}

pub(super) fn open(path: &Path) -> Result<SledStore, StoreError> {
    SledStore::open(path, SledOptions::default())
}

/// Asserts that opening is refused, without a change on the disk, and returns why.
pub(super) fn refused(path: &Path) -> StoreError {
    let parent = path.parent().expect("a parent");
    let before = files(parent);
    let error = match open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    };
    let after = files(parent);
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>(),
        "{error}"
    );
    for (name, bytes) in &before {
        assert!(after[name] == *bytes, "{} changed: {error}", name.display());
    }
    error
}

/// The stories in a furnished store: one for each step, archived by the end, and one more for
/// each in the log.
pub(super) fn stories() -> Vec<Told> {
    let steps = (0..=LAST).flat_map(|step| [(5_000 + step, step), (5_100 + step, step)]);
    let len = LEN;
    steps.map(|(n, step)| Told { n, step, len }).collect()
}

/// Fills a store with finished, long and short runs, and with stories, over several openings,
/// and closes it.
pub(super) async fn furnish(path: &Path) -> Vec<Expected> {
    let mut expected = Vec::new();
    for round in 0..3 {
        let store = open(path).expect("it opens");
        for n in round * 20..round * 20 + 20 {
            let created = store.create(new_run(n, LEN)).await.expect("created");
            let Creation::Created(epoch) = created else {
                panic!("{n} is taken");
            };
            let frames = if n % 10 == 0 { 60 } else { 4 };
            for seq in 1..frames {
                let one = if seq + 1 == frames && n % 2 == 1 {
                    ending(n, epoch, seq, LEN)
                } else {
                    append(n, epoch, seq, LEN)
                };
                store.append(one).await.expect("appended");
            }
            expected.push(Expected {
                n,
                frames,
                len: LEN,
            });
        }
        for story in stories() {
            if story.n < 5_100 && round == 0 || round == 2 {
                let told = story::tell(&store, story, |_| {}).await;
                told.expect("the store goes on");
            }
        }
        match round {
            1 => drop(store),
            _ => store.close().await.expect("closed"),
        }
    }
    expected
}

#[tokio::test]
async fn a_file_is_not_a_database() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("notes.txt");
    fs::write(&path, "hello").expect("written");
    let error = refused(&path);
    assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
}

#[tokio::test]
async fn a_directory_with_other_files_is_not_a_database() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("photos");
    fs::create_dir(&path).expect("made");
    fs::write(path.join("cat.jpg"), "meow").expect("written");
    let error = refused(&path);
    assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
    fs::write(path.join("FORMAT"), "JPEG 2000\n").expect("written");
    let error = refused(&path);
    assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
}

#[tokio::test]
async fn an_empty_directory_becomes_a_private_store() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("a/b/store");
    let store = open(&path).expect("made with its parents");
    assert!(store.stopped_cleanly());
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("log")), 0o700);
    for name in ["FORMAT", "lock", "mark", "log/00000000000000000000.log"] {
        assert_eq!(mode(&path.join(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_newer_format_is_refused_by_number() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    furnish(&path).await;
    fs::write(path.join("FORMAT"), "workflow-runtime store, format 7\n").expect("written");
    match refused(&path) {
        StoreError::NewerFormat {
            found, supported, ..
        } => assert_eq!((found, supported), (7, 3)),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_store_is_open_once_in_one_process() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let store = open(&path).expect("it opens");
    let error = refused(&path);
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    drop(store);
    open(&path).expect("released");
}

#[tokio::test]
async fn a_store_is_open_once_among_processes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let mut holder = child::command("hold", &path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let mut said = BufReader::new(holder.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("holding") {
        line.clear();
        assert!(said.read_line(&mut line).expect("text") > 0, "it gave up");
    }
    let error = refused(&path);
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    holder
        .stdin
        .take()
        .expect("piped")
        .write_all(b"\n")
        .expect("heard");
    holder.wait().expect("gone");
    open(&path).expect("released");
}

#[tokio::test]
async fn a_truncated_database_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sound = directory.path().join("sound");
    furnish(&sound).await;
    let len = fs::metadata(sound.join("db")).expect("there").len();
    let mut damaged = 0;
    for part in 0..8 {
        let place = directory.path().join(format!("{part}"));
        let path = place.join("store");
        copy(&sound, &path);
        let db = fs::File::options()
            .write(true)
            .open(path.join("db"))
            .expect("there");
        db.set_len(len * part / 8).expect("cut");
        // A cut through space that sled does not use loses nothing, and may be accepted.
        match open(&path) {
            Ok(store) => {
                assert!(part > 0, "an empty database was accepted");
                store.check().await.expect("sound");
                continue;
            }
            Err(StoreError::Corrupt { .. }) => damaged += 1,
            Err(other) => panic!("{other}"),
        }
        let path = directory.path().join(format!("{part}/again"));
        copy(&sound, &path);
        let db = fs::File::options()
            .write(true)
            .open(path.join("db"))
            .expect("there");
        db.set_len(len * part / 8).expect("cut");
        refused(&path);
    }
    assert!(damaged > 0, "some cut is through what sled needs");
}

/// Puts files back as they were, if `which` says so.
fn put_back(older: &Files, which: impl Fn(&str) -> bool) {
    for (path, bytes) in older {
        if which(&path.to_string_lossy()) {
            fs::write(path, bytes).expect("written");
        }
    }
}

#[tokio::test]
async fn an_older_database_that_lost_finished_runs_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    furnish(&path).await;
    let older = files(&path);
    let store = open(&path).expect("it opens");
    for n in 100..110 {
        let created = store.create(new_run(n, 5_000)).await.expect("created");
        let Creation::Created(epoch) = created else {
            panic!("{n} is taken");
        };
        let ended = store.append(ending(n, epoch, 1, 5_000)).await;
        ended.expect("ended");
    }
    // Long enough for the archiver; the next commit tells of it.
    std::thread::sleep(Duration::from_millis(500));
    store.create(new_run(110, LEN)).await.expect("created");
    drop(store);
    let is_sleds = |path: &str| path.ends_with("/db") || path.contains("/snap.");
    put_back(&older, is_sleds);
    // The mark of the last opening is older than the archive: only the log knows of it.
    match refused(&path) {
        StoreError::Corrupt { place, detail } => {
            assert!(place.ends_with("/db"), "{place}");
            assert!(detail.contains("lost finished runs"), "{detail}");
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_older_log_under_a_newer_mark_has_lost_commits() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    furnish(&path).await;
    let older = files(&path);
    let store = open(&path).expect("it opens");
    for n in 100..110 {
        store.create(new_run(n, LEN)).await.expect("created");
    }
    store.close().await.expect("closed");
    put_back(&older, |path| path.ends_with(".log"));
    let error = refused(&path);
    assert!(matches!(error, StoreError::LostCommits { .. }), "{error}");
}

#[tokio::test]
async fn a_store_without_its_database_file_is_refused_and_none_is_made() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    furnish(&path).await;
    fs::remove_file(path.join("db")).expect("removed");
    let error = refused(&path);
    assert!(
        matches!(
            error,
            StoreError::LostCommits { .. } | StoreError::Corrupt { .. }
        ),
        "{error}"
    );
    fs::remove_file(path.join("mark")).expect("removed");
    let error = refused(&path);
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

/// Does something that must come to an end.
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let result = work();
        let _ = done.send(());
        result
    });
    match wait.recv_timeout(HANGS_AFTER) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        // Dropped without a word: it panicked, which joining tells.
        _ => worker.join().unwrap_or_else(|_| panic!("{what} panics")),
    }
}

#[tokio::test]
async fn a_flipped_bit_is_never_wrong_data_nor_a_panic_nor_a_hang() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sound = directory.path().join("sound");
    let expected = furnish(&sound).await;
    let names: Vec<PathBuf> = files(&sound).into_keys().collect();
    let log = |path: &&PathBuf| path.extension().is_some_and(|ext| ext == "log");
    let log = names.iter().rfind(log).expect("there is a log");
    let mut numbers = Numbers(42);
    let (mut refusals, mut noticed) = (0, 0);
    let flips = std::env::var("STORE_FLIPS")
        .ok()
        .and_then(|flips| flips.parse().ok());
    for flip in 0..flips.unwrap_or(FLIPS) {
        // Mostly the database and the log, sometimes one of the small files.
        let name = match numbers.below(4) {
            0 => &names[usize::try_from(numbers.below(names.len() as u64)).expect("small")],
            1 => log,
            _ => &sound.join("db"),
        };
        let mut bytes = fs::read(name).expect("readable");
        if bytes.is_empty() {
            continue;
        }
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64 + 1;
        let at = usize::try_from(numbers.below(used)).expect("an offset");
        bytes[at] ^= 1 << numbers.below(8);
        let place = directory.path().join("flipped");
        let path = place.join("store");
        copy(&sound, &path);
        let short = name.strip_prefix(&sound).expect("inside").to_path_buf();
        fs::write(path.join(&short), bytes).expect("written");
        let what = format!("flip {flip} in {} at {at}", short.display());
        let before = files(&path);
        let expected = expected.clone();
        let verdict = in_time(&what, {
            let path = path.clone();
            let what = what.clone();
            move || judge(&path, &before, &expected, &what)
        });
        match verdict {
            Verdict::Refused => refusals += 1,
            Verdict::Noticed => noticed += 1,
            Verdict::Sound => {}
        }
        fs::remove_dir_all(&place).expect("removed");
    }
    assert!(refusals > 20, "{refusals} refused, {noticed} noticed");
}

/// Writes to a store that may be damaged: it may refuse, it must not hang.
async fn write_on(store: &SledStore, what: &str) {
    for n in 1_000..1_030 {
        let Ok(Creation::Created(epoch)) = store.create(new_run(n, 4_000)).await else {
            break;
        };
        let ended = store.append(ending(n, epoch, 1, 4_000)).await;
        if ended.is_err() {
            assert!(store.failure().is_some(), "{what}: {ended:?}");
            break;
        }
    }
    let closed = store.close().await;
    assert_eq!(closed.is_err(), store.failure().is_some(), "{what}");
}

enum Verdict {
    Refused,
    Noticed,
    Sound,
}

fn judge(path: &Path, before: &Files, expected: &[Expected], what: &str) -> Verdict {
    let store = match open(path) {
        Ok(store) => store,
        Err(error) => {
            assert!(
                files(path) == *before,
                "{what}: refused, but changed: {error}"
            );
            return Verdict::Refused;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut worst = Look::Sound;
        for run in expected {
            match look(&store, *run).await {
                Look::Sound => {}
                Look::Wrong => panic!("{what}: wrong data in {run:?}"),
                other => worst = other,
            }
        }
        for told in stories() {
            match story::look(&store, told).await {
                Look::Sound => {}
                Look::Wrong => panic!("{what}: wrong data in {told:?}"),
                other => worst = other,
            }
        }
        let checked = store.check().await;
        let verdict = match (worst, checked) {
            (Look::Sound, Ok(())) => Verdict::Sound,
            (_, Err(_)) => Verdict::Noticed,
            (worst, Ok(())) => panic!("{what}: {worst:?}, and nobody noticed"),
        };
        write_on(&store, what).await;
        verdict
    })
}
