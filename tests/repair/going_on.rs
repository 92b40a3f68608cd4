//! Engines on salvaged stores: what is whole goes on with one effect a step, what is not waits for a person.

use std::fs;
use std::path::Path;
use std::time::Duration;

use workflow_runtime::repair::{Fate, Repaired, repair};
use workflow_runtime::store::ParkReason;
use workflow_runtime::{Engine, RunStatus};
use workflow_tests::Ledger;

use super::sound::{Sound, Stop, copy_all, engine, files, pay, sound, tip};

const PATIENCE: Duration = Duration::from_secs(60);

/// Lets an engine go on with a salvaged store, and checks what the world hears of.
async fn go_on(sound: &Sound, to: &Path, repaired: &Repaired, what: &str) {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open(to).await.expect("opens");
    let mut expected = Vec::new();
    for run in &repaired.runs {
        let (header, ..) = &sound.content.runs[&run.run];
        let number: u64 = header.key.as_ref().expect("a key")[4..]
            .parse()
            .expect("a number");
        if run.fate != Fate::Whole {
            continue;
        }
        match &*run.workflow {
            "pay" => {
                let run = engine.run::<pay>(run.run).await.expect("there");
                run.signal("go", &1_u64).await.expect("takes a signal");
                let result = tokio::time::timeout(PATIENCE, run.result()).await;
                let result = result.unwrap_or_else(|_| panic!("{what}: {number} hangs"));
                assert_eq!(result.expect("completes"), number + 1, "{what}");
                expected.push(format!("settle {number}"));
            }
            "tip" => {
                // Its key is still taken: nothing is done twice.
                let again = engine.start(tip(number)).key(format!("key-{number}")).await;
                let again = again.expect("the same");
                assert_eq!(again.id(), run.run, "{what}");
                assert_eq!(again.result().await.expect("its result"), number);
            }
            _ => {}
        }
    }
    expected.sort();
    assert_eq!(ledger.effects(), expected, "{what}");
    assert_eq!(ledger.asked(), expected.len(), "{what}: each once");
    engine.shutdown().await.expect("stops");
}

#[tokio::test]
async fn whole_runs_of_damaged_stores_go_on_with_one_effect_a_step() {
    let (mut cases, mut went_on) = (0, 0);
    for stop in [Stop::InOrder, Stop::Dropped] {
        let sound = sound(stop);
        for (name, bytes) in files(&sound.store) {
            let used = bytes
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |at| at + 1);
            if used < 4_096 {
                continue;
            }
            for part in 0..4 {
                let root = tempfile::tempdir().expect("a directory");
                let (from, to) = (root.path().join("from"), root.path().join("to"));
                copy_all(&sound.store, &from);
                let mut damaged = bytes.clone();
                let at = used * part / 4;
                let what = format!("{} at {at}", name.display());
                match part % 2 {
                    0 => damaged[at..(at + 3_000).min(used)].fill(0xa5),
                    _ => damaged[at] ^= 4,
                }
                fs::write(from.join(&name), damaged).expect("written");
                let repaired = repair(&from, &to).expect("repaired");
                go_on(sound, &to, &repaired, &what).await;
                cases += 1;
                went_on += repaired.count(Fate::Whole);
            }
        }
    }
    assert!(
        cases >= 12 && went_on > cases * 5,
        "{went_on} runs in {cases} stores"
    );
}

/// Cuts the log in the middle of a store of which nothing is archived.
async fn cut_store(from: &Path) -> Engine {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open(from).await.expect("opens");
    for number in 0..3 {
        let run = engine.start(pay(number, 100)).key(format!("key-{number}"));
        let run = run.await.expect("starts");
        while ledger.effects().len() < 2 * (number as usize + 1) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(run);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    engine
}

#[tokio::test]
async fn a_run_that_lost_its_tail_is_parked_and_goes_on_only_if_somebody_says_so() {
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    let working = cut_store(&from).await;
    working
        .shutdown()
        .grace(Duration::ZERO)
        .await
        .expect("stops");
    let log = from.join("log/00000000000000000000.log");
    let bytes = fs::read(&log).expect("there");
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("blocks");
    let mut damaged = bytes.clone();
    // All of the second half: the mark knows that there was more, or later blocks do.
    damaged[used / 2..used * 9 / 10].fill(0);
    fs::write(&log, damaged).expect("written");
    let repaired = repair(&from, &to).expect("repaired");
    let held: Vec<_> = repaired
        .runs
        .iter()
        .filter(|run| run.fate != Fate::Whole)
        .collect();
    assert!(!held.is_empty(), "{repaired}");
    assert!(repaired.notes.may_be_missing, "{repaired}");
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open(&to).await.expect("opens");
    tokio::time::sleep(Duration::from_millis(200)).await;
    for run in &held {
        let handle = engine.run::<pay>(run.run).await.expect("there");
        match handle.status().await.expect("reads") {
            RunStatus::Parked(parking) => {
                assert_eq!(parking.reason, ParkReason::Salvaged);
                assert!(parking.report.contains("salvaged"), "{}", parking.report);
            }
            other => panic!("{run}: {other:?}"),
        }
    }
    assert_eq!(ledger.asked(), 0, "nothing ran by itself");
    let run = held[0].run;
    engine.resume(run).await.expect("resumed");
    let handle = engine.run::<pay>(run).await.expect("there");
    handle.signal("go", &1_u64).await.expect("sent");
    tokio::time::timeout(PATIENCE, handle.result())
        .await
        .expect("no hang")
        .expect("ends");
    engine.shutdown().await.expect("stops");
}

#[tokio::test]
async fn journals_are_exported_from_the_repaired_store() {
    let sound = sound(Stop::InOrder);
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    copy_all(&sound.store, &from);
    let mut db = fs::read(from.join("db")).expect("there");
    let used = db.iter().rposition(|byte| *byte != 0).expect("used");
    db[used / 2..used / 2 + 2_000].fill(0);
    fs::write(from.join("db"), db).expect("written");
    let repaired = repair(&from, &to).expect("repaired");
    // An engine that knows no workflow is enough.
    let engine = Engine::builder().open(&to).await.expect("opens");
    for run in &repaired.runs {
        let exported = engine.export(run.run).intact_part().await;
        match run.records {
            0 => assert!(exported.is_err(), "{run}"),
            _ => {
                let file = exported.unwrap_or_else(|error| panic!("{run}: {error}"));
                assert_eq!(file.records().len() as u64, run.records, "{run}");
            }
        }
    }
    engine.shutdown().await.expect("stops");
}
