//! Every file damaged in many ways at many places: nothing panics, nothing is claimed that is not so, nothing that was not hit is
//! lost.

use std::fs;
use std::path::{Path, PathBuf};

use workflow_runtime::repair::{Fate, Repaired, repair};
use workflow_runtime::store::{EndKind, ParkReason, RunState, StateKind};

use super::sound::{Content, Sound, Stop, content, copy_all, files, has_ended, sound};

const PAGE: usize = 4_096;

/// At how many places each file is damaged in each way, unless `REPAIR_PLACES` says more.
const PLACES: usize = 4;

fn places() -> usize {
    let said = std::env::var("REPAIR_PLACES").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(PLACES)
}

/// A way to damage a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Flip,
    Zero,
    Cut,
}

impl How {
    fn damage(self, bytes: &mut Vec<u8>, at: usize) {
        match self {
            Self::Flip => bytes[at] ^= 1 << (at % 8),
            Self::Zero => {
                let page = at / PAGE * PAGE;
                let end = bytes.len().min(page + PAGE);
                bytes[page..end].fill(0);
            }
            Self::Cut => bytes.truncate(at),
        }
    }
}

#[derive(Default)]
pub(super) struct Tally {
    cases: usize,
    runs: usize,
    whole: usize,
    seen: usize,
    cut: usize,
    lost: usize,
}

/// Compares what a repair says and made with what was there.
pub(super) async fn judge(
    sound: &Sound,
    to: &Path,
    repaired: &Repaired,
    what: &str,
    tally: &mut Tally,
) -> Content {
    let now = content(to).await;
    for run in &repaired.runs {
        let (was, frames, mail) = sound.content.runs.get(&run.run).unwrap_or_else(|| {
            panic!("{what}: {run} was never there");
        });
        let (is, salvaged, letters) = &now.runs[&run.run];
        assert!(frames.starts_with(salvaged), "{what}: {run}: other records");
        match run.fate {
            Fate::Whole => {
                assert_eq!(
                    salvaged.len(),
                    frames.len(),
                    "{what}: {run} is no whole journal"
                );
                // That a run sleeps is in the database or in one block: without that it is awake, as after a crash.
                let same = match (&is.state, &was.state) {
                    (RunState::Active, RunState::Asleep { .. }) => true,
                    (RunState::Ended(is), RunState::Ended(was)) => is.kind == was.kind,
                    (is, was) => is == was,
                };
                assert!(same, "{what}: {run}: {is:?}, not {was:?}");
                assert_eq!(letters, mail, "{what}: {run}");
                tally.whole += 1;
            }
            fate => {
                assert!(run.why.is_some(), "{what}: {run} does not say why");
                let parked =
                    matches!(&is.state, RunState::Parked(p) if p.reason == ParkReason::Salvaged);
                assert!(parked || has_ended(is), "{what}: {run} goes on: {is:?}");
                match fate {
                    Fate::Cut => tally.cut += 1,
                    _ => tally.seen += 1,
                }
            }
        }
    }
    assert_eq!(now.runs.len(), repaired.runs.len(), "{what}");
    let missing = sound.content.runs.len() - now.runs.len();
    let named = repaired.lost.len() as u64 + repaired.nameless;
    assert!(
        missing == 0 || named > 0 || !repaired.damage.is_empty(),
        "{what}: {missing} runs are gone"
    );
    if repaired.is_whole() {
        assert_eq!(missing, 0, "{what}: it is called whole");
        assert_eq!(now.notes, sound.content.notes, "{what}: it is called whole");
    }
    tally.cases += 1;
    tally.runs += sound.content.runs.len();
    tally.lost += missing;
    now
}

/// Damages a copy, repairs it, and checks that the damaged one was not changed.
pub(super) fn mend(
    sound: &Sound,
    root: &Path,
    name: &Path,
    damaged: &[u8],
    what: &str,
) -> Repaired {
    let (from, to) = (root.join("from"), root.join("to"));
    for old in [&from, &to] {
        let _ = fs::remove_dir_all(old);
    }
    copy_all(&sound.store, &from);
    fs::write(from.join(name), damaged).expect("written");
    let before = files(&from);
    let repaired = repair(&from, &to).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(
        files(&from) == before,
        "{what}: the damaged store was changed"
    );
    repaired
}

async fn sweep(stop: Stop, how: How) -> Tally {
    let sound = sound(stop);
    let root = tempfile::tempdir().expect("a directory");
    let mut tally = Tally::default();
    for (name, bytes) in files(&sound.store) {
        let used = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        let mut offsets: Vec<usize> = match used {
            0 => Vec::new(),
            // Over all of it, and at both ends.
            _ => (0..places())
                .map(|n| n * used / places() + n % 7)
                .filter(|at| *at < used)
                .collect(),
        };
        offsets.extend(used.checked_sub(1));
        for at in offsets {
            let mut damaged = bytes.clone();
            how.damage(&mut damaged, at);
            let what = format!("{how:?} at {at} of {} ({stop:?})", name.display());
            let repaired = mend(sound, root.path(), &name, &damaged, &what);
            let whole_before = tally.whole;
            judge(sound, &root.path().join("to"), &repaired, &what, &mut tally).await;
            if how == How::Flip {
                let whole = tally.whole - whole_before;
                assert_eq!(whole, sound.content.runs.len(), "{what}: {repaired}");
                assert!(repaired.is_whole(), "{what}: {repaired}");
            }
        }
    }
    tally
}

#[tokio::test]
async fn a_healthy_store_is_copied_with_the_same_journals() {
    for stop in [Stop::InOrder, Stop::Dropped] {
        let sound = sound(stop);
        let root = tempfile::tempdir().expect("a directory");
        let (name, bytes) = files(&sound.store).into_iter().next().expect("files");
        let repaired = mend(sound, root.path(), &name, &bytes, "healthy");
        assert!(repaired.is_whole(), "{repaired}");
        assert_eq!(
            (repaired.mended, repaired.damage.len()),
            (0, 0),
            "{repaired}"
        );
        let to = root.path().join("to");
        assert_eq!(to.join("clean").exists(), stop == Stop::InOrder);
        assert_eq!(content(&to).await, sound.content);
    }
}

#[tokio::test]
async fn a_store_whose_database_sled_cannot_read_is_read_without_it() {
    for stop in [Stop::InOrder, Stop::Dropped] {
        let sound = sound(stop);
        let root = tempfile::tempdir().expect("a directory");
        let name = PathBuf::from("db");
        let mut bytes = fs::read(sound.store.join(&name)).expect("there");
        // A bit of the first segment's header: sled takes the segment for a free one.
        bytes[6] ^= 1;
        let repaired = mend(sound, root.path(), &name, &bytes, "a header");
        assert!(repaired.is_whole(), "{repaired}");
        assert_eq!(content(&root.path().join("to")).await, sound.content);
    }
}

#[tokio::test]
async fn a_single_flipped_bit_anywhere_loses_nothing() {
    for stop in [Stop::InOrder, Stop::Dropped] {
        sweep(stop, How::Flip).await;
    }
}

#[tokio::test]
async fn a_zeroed_page_anywhere_makes_no_run_go_on_that_lost_something() {
    let mut whole = 0;
    for stop in [Stop::InOrder, Stop::Dropped] {
        whole += sweep(stop, How::Zero).await.whole;
    }
    assert!(whole > 0);
}

#[tokio::test]
async fn a_truncated_file_makes_no_run_go_on_that_lost_something() {
    let mut whole = 0;
    for stop in [Stop::InOrder, Stop::Dropped] {
        whole += sweep(stop, How::Cut).await.whole;
    }
    assert!(whole > 0);
}

#[tokio::test]
async fn ended_runs_survive_a_log_that_is_gone() {
    let sound = sound(Stop::InOrder);
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    copy_all(&sound.store, &from);
    fs::remove_dir_all(from.join("log")).expect("removed");
    let repaired = repair(&from, &to).expect("repaired");
    assert!(!repaired.is_whole(), "{repaired}");
    let ended = StateKind::Ended(EndKind::Completed);
    let saved = repaired
        .runs
        .iter()
        .filter(|run| run.was == ended && run.fate == Fate::Whole);
    let runs = sound.content.runs.values();
    let there = runs.filter(|(header, ..)| header.state.kind() == ended);
    assert!(saved.count() * 2 >= there.count(), "{repaired}");
}
