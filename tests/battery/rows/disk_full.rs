//! A full disk: a small tmpfs is filled, enlarged, and opened again.

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::scratch::{self, SmallDisk};
use super::told::Told;
use crate::chance::Chance;

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    // From so little that the store can hardly be made.
    let kib = 1_000 + chance.below(40_000);
    let disk = match SmallDisk::mount(kib) {
        Ok(disk) => disk,
        Err(why) => return Case::skipped(why),
    };
    let store = disk.path().join("store");
    let dir = store.to_string_lossy().into_owned();
    let size = chance.one_of(&["0", "3000", "30000", "300000"]);
    let mut told = Told::default();
    // Full, and twice opened again while it is.
    for _ in 0..3 {
        let first = told.first_unfinished().to_string();
        let work = ["work", &*dir, &first, "-", "8", size];
        let (said, status) = Process::start(child::command(&work)).hear_out(PATIENCE);
        told.hear_text(&said);
        if !status.is_some_and(|status| status.success()) {
            told.wrong(format!("18: on the full disk: {status:?}"));
        }
        if told.stopped.take().is_none() {
            told.wrong("19: the full disk was not noticed".into());
        }
    }
    let acknowledged = told.started.len() as u64;
    if let Err(why) = disk.change("size=400m") {
        return Case::skipped(why);
    }
    scratch::finish(&store, &mut told);
    // It carries on with new work too.
    let first = told.started.keys().last().map_or(0, |last| last + 1);
    let [from, until] = [first, first + 5].map(|number| number.to_string());
    let work = ["work", &*dir, &from, &until, "8", size];
    let (said, _) = Process::start(child::command(&work)).hear_out(PATIENCE);
    told.hear_text(&said);
    if !(first..first + 5).all(|number| told.finished.contains_key(&number)) {
        told.wrong(format!("19: it does not carry on: {:?}", told.stopped));
    }
    Case {
        violations: told.violations,
        count: acknowledged,
        trace: format!("{kib} KiB, payloads of {size} bytes"),
        ..Case::default()
    }
}
