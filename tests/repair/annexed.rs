//! Damage in files of the annex: a repair brings back every run that was not hit, and every run that lost a bit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use workflow_runtime::RunId;
use workflow_runtime::repair::{Fate, Repaired, repair};

use super::damaged::{Tally, judge, mend};
use super::sound::{Sound, Stop, copy_all, files, sound};

#[path = "../crash/store_faults/lying.rs"]
mod lying;

use self::lying::{Lying, lying};

const PAGE: usize = 4_096;

/// The file of the annex: so few runs need one.
fn annex(sound: &Sound) -> (PathBuf, Vec<u8>) {
    let mut found = files(&sound.store);
    found.retain(|name, _| name.starts_with("annex"));
    assert_eq!(found.len(), 1, "one file");
    found.pop_first().expect("one file")
}

fn runs_in(lying: &[Lying], from: usize, until: usize) -> BTreeSet<RunId> {
    let hit = lying.iter();
    let hit = hit.filter(|one| one.at.start < until && from < one.at.end);
    hit.map(|one| one.run).collect()
}

/// Expects that every run is whole but those that were hit, and that these are named.
fn expect_others(sound: &Sound, repaired: &Repaired, hit: &BTreeSet<RunId>, what: &str) {
    for run in sound.content.runs.keys().filter(|run| !hit.contains(run)) {
        let fate = repaired.runs.iter().find(|one| one.run == *run);
        let fate = fate.map(|one| one.fate);
        assert_eq!(fate, Some(Fate::Whole), "{what}: {run}: {repaired}");
    }
    let whole = repaired.runs.iter().filter(|run| run.fate == Fate::Whole);
    let whole: BTreeSet<RunId> = whole.map(|run| run.run).collect();
    for run in hit.difference(&whole) {
        let is_named = repaired
            .damage
            .iter()
            .any(|place| place.contains(&run.to_string()));
        assert!(is_named, "{what}: {run}: {repaired}");
    }
}

async fn zero_and_cut(stop: Stop, root: &Path) {
    let sound = sound(stop);
    let (name, bytes) = annex(sound);
    let lying = lying(&bytes);
    let mut tally = Tally::default();
    for page in (0..bytes.len()).step_by(PAGE) {
        for is_cut in [false, true] {
            let mut damaged = bytes.clone();
            let end = bytes.len().min(page + PAGE);
            let until = match is_cut {
                true => {
                    damaged.truncate(page);
                    usize::MAX
                }
                false => {
                    damaged[page..end].fill(0);
                    end
                }
            };
            let what = format!("{stop:?}, {page} to {until}");
            let repaired = mend(sound, root, &name, &damaged, &what);
            judge(sound, &root.join("to"), &repaired, &what, &mut tally).await;
            expect_others(sound, &repaired, &runs_in(&lying, page, until), &what);
        }
    }
}

#[tokio::test]
async fn a_zeroed_page_or_a_cut_in_the_annex_costs_the_runs_that_lay_there_and_no_other() {
    let root = tempfile::tempdir().expect("a directory");
    for stop in [Stop::InOrder, Stop::Dropped] {
        zero_and_cut(stop, root.path()).await;
    }
}

#[tokio::test]
async fn without_its_annex_a_store_keeps_what_is_in_its_log() {
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    let sound = sound(Stop::Dropped);
    let (name, bytes) = annex(sound);
    copy_all(&sound.store, &from);
    fs::remove_file(from.join(name)).expect("removed");
    let repaired = repair(&from, &to).expect("repaired");
    let mut tally = Tally::default();
    judge(sound, &to, &repaired, "no annex", &mut tally).await;
    let hit = runs_in(&lying(&bytes), 0, usize::MAX);
    assert!(
        hit.len() < sound.content.runs.len(),
        "some were not archived"
    );
    expect_others(sound, &repaired, &hit, "no annex");
}

#[tokio::test]
async fn a_flipped_bit_in_any_record_of_the_annex_is_put_right() {
    let root = tempfile::tempdir().expect("a directory");
    let sound = sound(Stop::InOrder);
    let (name, bytes) = annex(sound);
    let mut mended = 0;
    for (number, one) in lying(&bytes).into_iter().enumerate() {
        let mut damaged = bytes.clone();
        let inside = [1, 11, 29, 35, one.at.len() - 1][number % 5];
        damaged[one.at.start + inside] ^= 1 << (number % 8);
        let what = format!("{}, byte {inside}", one.place);
        let repaired = mend(sound, root.path(), &name, &damaged, &what);
        assert!(repaired.is_whole(), "{what}: {repaired}");
        mended += repaired.mended;
    }
    assert!(mended > 10, "{mended} of what sled points to");
}
