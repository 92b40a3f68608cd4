//! A directory that cannot be written to: opening is refused by a typed error, nothing changes, and later all is there.

use workflow_runtime::EngineError;
use workflow_runtime::store::StoreError;

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::scratch::{self, SmallDisk};
use super::told::Told;
use super::workload::{self, World};
use crate::chance::Chance;

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let disk = match SmallDisk::mount(200_000) {
        Ok(disk) => disk,
        Err(why) => return Case::skipped(why),
    };
    let store = disk.path().join("store");
    let dir = store.to_string_lossy().into_owned();
    let mut told = Told::default();
    if !chance.once_in(4) {
        // Stopped in order, or killed.
        let until = if chance.once_in(2) { "12" } else { "-" };
        let mut process = Process::start(child::command(&["work", &dir, "0", until, "4", "2000"]));
        let deadline = std::time::Instant::now() + PATIENCE;
        while told.finished.len() < 12 {
            match process.next_line(deadline) {
                Some(line) => told.hear_text(&line),
                None => break,
            }
        }
        if until == "12" {
            let (said, _) = process.hear_out(PATIENCE);
            told.hear_text(&said);
        }
        told.hear_text(&process.kill());
    }
    let before = scratch::files(disk.path());
    if let Err(why) = disk.change("ro") {
        return Case::skipped(why);
    }
    let opened = scratch::runtime().block_on(async {
        let builder = workload::engine().resource(World::here());
        builder.open(&store).await.map(drop)
    });
    let mut case = Case::default();
    match opened {
        Err(EngineError::Store(StoreError::Io { operation, .. })) => {
            case.count = 1;
            case.trace = format!("refused: {operation}");
            case.holds(operation.contains('/'), || {
                format!("18: the refusal names no path: {operation}")
            });
        }
        other => case.wrong(format!("18: a read-only directory: {other:?}")),
    }
    case.holds(scratch::files(disk.path()) == before, || {
        "18: it was refused, and changed".into()
    });
    if let Err(why) = disk.change("rw") {
        return Case::skipped(why);
    }
    scratch::finish(&store, &mut told);
    case.violations.append(&mut told.violations);
    case
}
