//! A torn write: the last block of the log cut at every 512-byte boundary, in four ways.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Case;
use super::scratch;
use super::told::Told;
use super::workload::{self, World, one, transfer};
use crate::chance::Chance;

/// The smallest unit that a disk writes as a whole.
const SECTOR: usize = 512;

/// How the rest of the block may look.
const WAYS: [&str; 4] = ["short", "zeros", "stale", "late"];

/// How large the last write is, about.
const SIZES: [u64; 6] = [600, 2_000, 3_500, 9_000, 20_000, 100];

pub(super) fn case(seed: u64) -> Case {
    let mut case = Case::default();
    let mut chance = Chance::new(seed);
    let size = SIZES[usize::try_from(seed).expect("small") % SIZES.len()] + chance.below(300);
    let directory = scratch::directory();
    let (told, image) = killed(directory.path(), size);
    // The last write may have begun a file of its own, made of the spare one.
    let name = newest_log(&image.1);
    let log_of = |store: &Path| store.join("log").join(&name);
    let begins_a_file = !log_of(&image.0).exists();
    let after = fs::read(log_of(&image.1)).expect("there is a log");
    let earlier = match begins_a_file {
        true => Vec::new(),
        false => fs::read(log_of(&image.0)).expect("there is a log"),
    };
    // Not the last byte that is no zero: a block may end with zeros. A new file ends with its last block.
    let differs = earlier
        .iter()
        .zip(&after)
        .position(|(one, other)| one != other);
    let before = differs.unwrap_or(earlier.len());
    let whole = after
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    if whole <= before {
        case.wrong("the last write is not in the log");
        return case;
    }
    let cuts = (before..whole).filter(|at| at % SECTOR == 0);
    for cut in cuts.chain([before, before + 1, whole - 1]) {
        let way = chance.one_of(&WAYS);
        let torn = directory.path().join("torn");
        // The database and the mark as they were before the write.
        scratch::copy(&image.0, &torn);
        if begins_a_file && torn.join("log/next").exists() {
            fs::remove_file(torn.join("log/next")).expect("removed");
        }
        let mut bytes = after.clone();
        match way {
            "short" => bytes.truncate(cut),
            "zeros" => bytes[cut..].fill(0),
            "stale" => bytes[cut..whole].fill(0xa5),
            // Later sectors reached the disk before the first ones.
            _ => bytes[before..cut].fill(0),
        }
        fs::write(log_of(&torn), bytes).expect("written");
        let mut told = told.clone();
        scratch::finish(&torn, &mut told);
        // And once more, over what the recovery wrote.
        scratch::finish(&torn, &mut told);
        case.count += 1;
        case.violations.extend(
            told.violations
                .iter()
                .map(|what| format!("{way} from {cut} of {before}..{whole}: {what}")),
        );
        fs::remove_dir_all(&torn).expect("removed");
    }
    case.trace = format!("last write of {} bytes", whole.saturating_sub(before));
    case
}

/// Makes a store with finished and waiting transfers, and one more acknowledged signal at the end. Returns what was told
/// before that, and the directory before and after it.
fn killed(directory: &Path, size: u64) -> (Told, (PathBuf, PathBuf)) {
    let (store, before) = (directory.join("store"), directory.join("before"));
    let mut told = Told::default();
    scratch::runtime().block_on(async {
        let world = Arc::new(World::here());
        let builder = workload::engine().resource_arc(world.clone());
        let engine = builder.open(&store).await.expect("a new store opens");
        for number in 0..6 {
            let done = one(&engine, number, 500, &|line| world.say(line)).await;
            done.expect("a new store works");
        }
        for number in 6..9 {
            let start = engine
                .start(transfer(number, 500))
                .key(format!("transfer-{number}"));
            let run = start.await.expect("a new store works");
            world.say(workload::Line::Started(number, run.id()));
        }
        // One that is paused takes letters and does nothing about them: its letter is one write.
        let start = engine.start(transfer(9, 0)).key("paused").await;
        let paused = start.expect("a new store works");
        engine.pause(paused.id()).await.expect("it can be paused");
        // The steps first, on this thread; then the store's own threads.
        tokio::time::sleep(Duration::from_millis(50)).await;
        scratch::wait_until_quiet(&store);
        scratch::copy(&store, &before);
        let word = "x".repeat(usize::try_from(size).expect("small"));
        paused.signal("aside", &word).await.expect("acknowledged");
        scratch::copy(&store, &directory.join("after"));
        world.take().into_iter().for_each(|line| told.hear(line));
    });
    (told, (before, directory.join("after")))
}

/// The name of the newest file of a store's log.
fn newest_log(store: &Path) -> OsString {
    let entries = fs::read_dir(store.join("log")).expect("there is a log");
    let names = entries.map(|entry| entry.expect("readable").file_name());
    let logs = names.filter(|name| Path::new(name).extension().is_some_and(|ext| ext == "log"));
    logs.max().expect("there is a log")
}
