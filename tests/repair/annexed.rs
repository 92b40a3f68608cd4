//! Damage in files of the annex: a repair brings back every run that was not hit, and every run that lost a bit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use workflow_runtime::RunId;
use workflow_runtime::repair::{Fate, Repaired, repair};

use super::damaged::{Tally, judge, mend};
use super::sound::{Sound, archived, copy_all, files};

#[path = "../crash/store_faults/lying.rs"]
mod lying;

use self::lying::{Lying, lying};

const PAGE: usize = 4_096;

/// Every second page, so that it takes seconds.
const STEP: usize = 2 * PAGE;

/// The files of the annex.
fn annex(sound: &Sound) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = files(&sound.store);
    found.retain(|name, _| name.starts_with("annex"));
    assert!(found.len() > 1, "several files: {:?}", found.keys());
    found.into_iter().collect()
}

fn runs_in(lying: &[Lying], from: usize, until: usize) -> BTreeSet<RunId> {
    let hit = lying.iter();
    let hit = hit.filter(|one| one.at.start < until && from < one.at.end);
    hit.map(|one| one.run).collect()
}

/// Expects that every run is whole but those that were hit, and that these are named. Returns how many are not whole.
fn expect_others(sound: &Sound, repaired: &Repaired, hit: &BTreeSet<RunId>, what: &str) -> usize {
    let whole = repaired.runs.iter().filter(|run| run.fate == Fate::Whole);
    let whole: BTreeSet<RunId> = whole.map(|run| run.run).collect();
    let mut not_whole = 0;
    for run in sound.content.runs.keys().filter(|run| !whole.contains(run)) {
        assert!(hit.contains(run), "{what}: {run} was not hit: {repaired}");
        let mut places = repaired.damage.iter();
        let is_named = places.any(|place| place.contains(&run.to_string()));
        assert!(is_named, "{what}: {run}: {repaired}");
        not_whole += 1;
    }
    not_whole
}

async fn expect_others_after(name: &Path, bytes: &[u8], page: usize, is_cut: bool) -> usize {
    let (sound, root) = (archived(), tempfile::tempdir().expect("a directory"));
    let mut damaged = bytes.to_vec();
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
    let what = format!("{} from {page} to {until}", name.display());
    let repaired = mend(sound, root.path(), name, &damaged, &what);
    let to = root.path().join("to");
    judge(sound, &to, &repaired, &what, &mut Tally::default()).await;
    let hit = runs_in(&lying(bytes), page, until);
    expect_others(sound, &repaired, &hit, &what)
}

#[tokio::test]
async fn a_zeroed_page_or_a_cut_in_the_annex_costs_the_runs_that_lay_there_and_no_other() {
    for is_cut in [false, true] {
        let mut not_whole = 0;
        for (name, bytes) in annex(archived()) {
            for page in (0..bytes.len()).step_by(STEP) {
                not_whole += expect_others_after(&name, &bytes, page, is_cut).await;
            }
        }
        assert!(not_whole > 10, "nothing else has them: {not_whole}");
    }
}

#[tokio::test]
async fn a_file_of_the_annex_that_is_missing_costs_the_runs_that_lay_there_and_no_other() {
    let sound = archived();
    for (name, bytes) in annex(sound) {
        let root = tempfile::tempdir().expect("a directory");
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        copy_all(&sound.store, &from);
        fs::remove_file(from.join(&name)).expect("removed");
        let repaired = repair(&from, &to).expect("repaired");
        let what = format!("without {}", name.display());
        judge(sound, &to, &repaired, &what, &mut Tally::default()).await;
        let hit = runs_in(&lying(&bytes), 0, usize::MAX);
        expect_others(sound, &repaired, &hit, &what);
    }
}

#[tokio::test]
async fn a_flipped_bit_in_any_record_of_the_annex_is_put_right() {
    let sound = archived();
    let root = tempfile::tempdir().expect("a directory");
    let mut mended = 0;
    for (name, bytes) in annex(sound) {
        for (number, one) in lying(&bytes).into_iter().enumerate() {
            let mut damaged = bytes.clone();
            let inside = [1, 11, 29, 35, one.at.len() - 1][number % 5];
            damaged[one.at.start + inside] ^= 1 << (number % 8);
            let what = format!("{}, byte {inside}", one.place);
            let repaired = mend(sound, root.path(), &name, &damaged, &what);
            assert!(repaired.is_whole(), "{what}: {repaired}");
            mended += repaired.mended;
        }
    }
    assert!(mended > 20, "{mended} of what sled points to");
}
