//! Flipped bits, zeroed pages and truncation in every file of a store: never wrong data, never a panic, never a hang, and
//! nothing that is missing goes unnoticed.

use std::collections::BTreeMap;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, mpsc};

use tempfile::TempDir;
use workflow_runtime::repair::{Fate, repair};
use workflow_runtime::store::sled::{SledOptions, SledStore};
use workflow_runtime::store::{NoteKey, RunQuery, Store, StoreError, StoreResult};
use workflow_runtime::{RunError, RunStatus};

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::patience::{Pulse, patiently};
use super::scratch;
use super::told::Told;
use super::workload::{self, World, one};
use crate::chance::Chance;

/// So many seconds pass without anything being done only if it hangs.
const HANGS_AFTER: u32 = 60;

/// What disks and people write over: one page.
const PAGE: usize = 4096;

/// A store that is whole, made once, and what is in it.
struct Sound {
    _directory: TempDir,
    store: PathBuf,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Everything that can be read from it, by name.
    content: BTreeMap<String, blake3::Hash>,
    told: Told,
}

static SOUND: LazyLock<Sound> = LazyLock::new(Sound::make);

impl Sound {
    /// Lets two processes work: one is killed, one stops in order. Some transfers stay in the middle.
    fn make() -> Self {
        let directory = scratch::directory();
        let store = directory.path().join("store");
        let dir = store.to_string_lossy().into_owned();
        let mut told = Told::default();
        for (first, until, size) in [("0", "30", "300"), ("30", "36", "20000"), ("36", "44", "0")] {
            let work = ["work", &*dir, first, until, "8", size];
            let (said, status) = Process::start(child::command(&work)).hear_out(PATIENCE);
            told.hear_text(&said);
            assert!(status.is_some_and(|status| status.success()), "{said}");
        }
        let work = ["work", &*dir, "100", "-", "8", "300"];
        let mut process = Process::start(child::command(&work));
        while told.finished.keys().all(|number| *number < 110) {
            let line = process.next_line(std::time::Instant::now() + PATIENCE);
            told.hear_text(&line.expect("it works"));
        }
        told.hear_text(&process.kill());
        // Opened and closed by one that knows no workflow: it is whole, and nothing goes on.
        let content = scratch::runtime().block_on(async {
            let store = open(&store).expect("a killed process leaves a store that opens");
            let content = read(&store, &Pulse::default()).await;
            assert!(content.errors.is_empty(), "{:?}", content.errors);
            store.close().await.expect("it can be closed");
            content.found
        });
        let files = scratch::files(&store);
        Self {
            _directory: directory,
            store,
            files,
            content,
            told,
        }
    }
}

fn open(path: &Path) -> StoreResult<SledStore> {
    SledStore::open(path, SledOptions::default())
}

/// What can be read of a store: by name, and the errors that the rest is answered with.
#[derive(Default)]
struct Content {
    found: BTreeMap<String, blake3::Hash>,
    errors: Vec<StoreError>,
}

impl Content {
    fn put(&mut self, name: String, bytes: &[u8]) {
        self.found.insert(name, blake3::hash(bytes));
    }

    /// Goes on with the rest where something cannot be read.
    fn got<T>(&mut self, read: StoreResult<Vec<T>>) -> Vec<T> {
        read.unwrap_or_else(|error| {
            self.errors.push(error);
            Vec::new()
        })
    }
}

/// Reads everything that a store has: headers, frames, letters, notes.
async fn read(store: &SledStore, pulse: &Pulse) -> Content {
    let mut content = Content::default();
    let query = RunQuery {
        limit: 10_000,
        ..RunQuery::default()
    };
    for header in content.got(store.list(query).await) {
        let run = header.run;
        pulse.beat();
        content.put(format!("{run} header"), format!("{header:?}").as_bytes());
        let frames = store.journal(run).await.map(|kept| kept.frames);
        for (at, frame) in content.got(frames).iter().enumerate() {
            content.put(format!("{run} record {at}"), frame);
        }
        for mail in content.got(store.mail(run, 0).await) {
            content.put(format!("{run} letter {}", mail.number), &mail.body);
        }
        let notes = store.notes(NoteKey::of_run(run, &[]), None, 10_000).await;
        for (key, value) in content.got(notes) {
            content.put(format!("{run} note {key:?}"), &value);
        }
    }
    for space in 1..=u8::MAX {
        let notes = store.notes(NoteKey::new(space, &[]), None, 10_000).await;
        for (key, value) in content.got(notes) {
            content.put(format!("note {key:?}"), &value);
        }
    }
    content
}

/// Damages one file, as the seed has it. Returns what was done.
fn damage(sound: &Sound, to: &Path, seed: u64, chance: &mut Chance) -> String {
    // One file after the other, and in between more of the two that hold the data.
    let names: Vec<&PathBuf> = sound
        .files
        .keys()
        .filter(|name| !sound.files[*name].is_empty())
        .collect();
    let large: Vec<&PathBuf> = names
        .iter()
        .copied()
        .filter(|name| sound.files[*name].len() > PAGE)
        .collect();
    let at = usize::try_from(seed / 2).expect("small");
    let name = match seed % 2 {
        0 => names[at % names.len()],
        _ => large[at % large.len()],
    };
    let mut bytes = sound.files[name].clone();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
    let place = usize::try_from(chance.below(used as u64)).expect("an offset");
    let what = match chance.below(4) {
        0 | 1 => {
            bytes[place] ^= 1 << chance.below(8);
            "a flipped bit at"
        }
        2 => {
            let page = place / PAGE * PAGE;
            let end = bytes.len().min(page + PAGE);
            bytes[page..end].fill(0);
            "zeros in the page of"
        }
        _ => {
            bytes.truncate(place);
            "cut off from"
        }
    };
    fs::write(to.join(name), bytes).expect("written");
    format!("{}: {what} {place}", name.display())
}

pub(super) fn case(seed: u64) -> Case {
    let sound = &*SOUND;
    let mut chance = Chance::new(seed);
    let directory = scratch::directory();
    let store = directory.path().join("store");
    scratch::copy(&sound.store, &store);
    let what = damage(sound, &store, seed, &mut chance);
    let (done, answer) = mpsc::channel();
    let (path, pulse) = (store.clone(), Pulse::default());
    let worker = pulse.clone();
    std::thread::spawn(move || {
        let judge = AssertUnwindSafe(|| judge(&path, seed, &worker));
        let judged = std::panic::catch_unwind(judge);
        let _ = done.send(judged);
    });
    let mut case = match pulse.wait(HANGS_AFTER, &answer) {
        Some(Ok(case)) => case,
        Some(Err(panic)) => {
            let said = panic.downcast_ref::<String>().cloned();
            let mut case = Case::default();
            case.wrong(format!("18: a panic: {said:?}"));
            case
        }
        None => {
            let mut case = Case::default();
            case.wrong("18: it hangs");
            case
        }
    };
    for violation in &mut case.violations {
        *violation = format!("{what}: {violation}");
    }
    case.trace = format!("{what}; {}", case.trace);
    case
}

/// Opens a damaged store and reads everything from it.
fn judge(path: &Path, seed: u64, pulse: &Pulse) -> Case {
    let mut case = Case::default();
    let before = scratch::files(path);
    pulse.beat();
    let store = match open(path) {
        Ok(store) => store,
        Err(error) => {
            case.holds(is_typed(&error), || format!("18: {error:?}"));
            case.holds(scratch::files(path) == before, || {
                format!("18: it was refused, and changed: {error}")
            });
            case.count = 1;
            case.trace = format!("{}: {error}", place("refused", &error.to_string()));
            pulse.beat();
            salvage(path, &before, &mut case, pulse);
            return case;
        }
    };
    scratch::runtime().block_on(async {
        pulse.beat();
        let noticed = read_damaged(&store, &mut case, pulse).await;
        case.count = u64::from(noticed.is_some());
        case.also = match &noticed {
            Some(said) => place("read", said),
            None => "harmless",
        };
        case.trace = noticed.unwrap_or_else(|| "nothing is missing".into());
        go_on(store, seed, &mut case, pulse).await;
    });
    case
}

/// Repairs a store that was refused: nothing that is called whole is another, and the new store is sound.
fn salvage(path: &Path, before: &BTreeMap<PathBuf, Vec<u8>>, case: &mut Case, pulse: &Pulse) {
    let to = path.with_file_name("repaired");
    let repaired = match repair(path, &to) {
        Ok(repaired) => repaired,
        // A store of another release, as far as its marker says.
        Err(StoreError::NewerFormat { .. }) => return,
        Err(error) => return case.wrong(format!("18: it cannot be repaired: {error}")),
    };
    case.holds(scratch::files(path) == *before, || {
        "18: the repair changed the damaged store".to_owned()
    });
    pulse.beat();
    let now = scratch::runtime().block_on(async {
        let store = open(&to).expect("a repaired store opens");
        let content = read(&store, pulse).await;
        store.check().await.expect("a repaired store is sound");
        store.close().await.expect("it can be closed");
        content
    });
    case.holds(now.errors.is_empty(), || format!("18: {:?}", now.errors));
    for run in &repaired.runs {
        let records = format!("{} record ", run.run);
        let of = |content: &BTreeMap<String, blake3::Hash>| {
            let of = content
                .iter()
                .filter(|(name, _)| name.starts_with(&records));
            of.map(|(name, hash)| (name.clone(), *hash))
                .collect::<BTreeMap<_, _>>()
        };
        let (was, is) = (of(&SOUND.content), of(&now.found));
        let holds = match run.fate {
            Fate::Whole => was == is,
            _ => is.iter().all(|(name, hash)| was.get(name) == Some(hash)),
        };
        case.holds(holds, || format!("18: {run} is another after the repair"));
    }
    let runs = SOUND
        .content
        .keys()
        .filter(|name| name.ends_with(" header"));
    let (whole, runs) = (repaired.count(Fate::Whole), runs.count());
    case.trace = format!("{}; {whole} of {runs} runs salvaged whole", case.trace);
    case.also = match whole * 100 / runs.max(1) {
        100.. => "refused, all runs salvaged whole",
        90.. => "refused, at least 90 % of the runs salvaged whole",
        50.. => "refused, at least half of the runs salvaged whole",
        _ => "refused, less than half of the runs salvaged whole",
    };
}

/// Where damage was said to be.
fn place(when: &str, said: &str) -> &'static str {
    match when {
        "refused" if said.contains("block") => "refused, naming the block",
        "refused" if said.contains("the database") => "refused, naming the database as a whole",
        "refused" if said.contains('/') => "refused, naming the file",
        "refused" => "refused, naming no place",
        _ if said.contains("run_") => "open, naming the run",
        _ => "open, naming a place in the store",
    }
}

fn is_typed(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Corrupt { .. }
            | StoreError::LostCommits { .. }
            | StoreError::NotADatabase { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::Io { .. }
            | StoreError::Stopped { .. }
            | StoreError::Failed { .. }
    )
}

/// Compares what is read with what was written. Returns what the store says is wrong, if it does.
async fn read_damaged(store: &SledStore, case: &mut Case, pulse: &Pulse) -> Option<String> {
    let checked = store.check().await;
    let Content { found, errors } = read(store, pulse).await;
    let mut said: Vec<String> = errors.iter().map(ToString::to_string).collect();
    for error in errors.iter().chain(checked.as_ref().err()) {
        case.holds(is_typed(error), || format!("18: {error:?}"));
    }
    said.extend(checked.as_ref().err().map(ToString::to_string));
    for (name, hash) in &SOUND.content {
        match found.get(name) {
            Some(now) if now == hash => {}
            Some(_) => case.wrong(format!("18: {name} is wrong: {said:?}")),
            None if said.is_empty() => {
                case.wrong(format!("18: {name} is gone, and nobody says so"));
            }
            None => {}
        }
    }
    let more = found
        .keys()
        .filter(|name| !SOUND.content.contains_key(*name));
    case.violations
        .extend(more.map(|name| format!("18: {name} was never written")));
    // What says most of where it is.
    let named = said.iter().find(|said| said.contains("run_"));
    named.or(said.first()).cloned()
}

/// Whatever is still whole goes on, and what is asked for anew is done or refused: nothing hangs.
async fn go_on(store: SledStore, seed: u64, case: &mut Case, pulse: &Pulse) {
    let world = Arc::new(World::here());
    let builder = workload::engine().resource_arc(world.clone());
    let Ok(engine) = builder.open_with(store).await else {
        return;
    };
    let number = 10_000 + seed;
    let new = patiently(HANGS_AFTER / 2, one(&engine, number, 300, &|_| {})).await;
    match new {
        None => case.wrong("18: a new transfer hangs"),
        Some(Err(error)) => case.holds(engine.failure().is_some(), || {
            format!("15: a new transfer is refused: {error}")
        }),
        Some(Ok(())) => {}
    }
    for (number, result) in SOUND.told.finished.iter().take(10) {
        let run = SOUND.told.started[number];
        let Ok(run) = engine.run::<workload::transfer>(run).await else {
            continue;
        };
        pulse.beat();
        match patiently(HANGS_AFTER / 2, run.result()).await {
            None if matches!(run.status().await, Ok(RunStatus::Completed)) => {
                case.wrong(format!("18: the result of {number} hangs"));
            }
            Some(Ok(now)) => case.holds(now == *result, || {
                format!("18: transfer {number} gave {result:?}, and now {now:?}")
            }),
            Some(Err(RunError::Failed(error))) => {
                case.wrong(format!("18: transfer {number} has failed: {error}"));
            }
            _ => {}
        }
    }
}
