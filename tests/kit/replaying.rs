//! Recorded journals and today's code: what fits, what does not, and what is said of it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use workflow_runtime::testing::{
    ReplayFailureKind, Replayer, Stopped, TestEngine, assert_replays, replay,
};
use workflow_runtime::{Error, Result, abort, step, workflow};

use crate::recorded::*;
use crate::recording;

/// Set to write journals that are not there yet; those that are stay.
const WRITE: &str = "WORKFLOW_WRITE_FIXTURES";

fn journals() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("journals")
}

fn file(name: &str) -> PathBuf {
    journals().join(format!("{name}.journal.json"))
}

#[tokio::test]
async fn journals_of_this_release_are_written_once() {
    for (name, journal) in recording::all().await {
        let path = file(name);
        if std::env::var_os(WRITE).is_some() && !path.exists() {
            journal.write(&path).unwrap();
        }
        assert!(
            path.exists(),
            "{name} is missing: set {WRITE}=1 once, and commit it"
        );
        // The same engine and seed still write the same journal, but for lines of the source.
        let recorded = workflow_runtime::export::JournalFile::read(&path).unwrap();
        assert_eq!(recorded.records().len(), journal.records().len(), "{name}");
        assert_eq!(recorded.run(), journal.run(), "{name}");
    }
}

#[test]
fn journals_of_every_release_are_replayed_for_ever() {
    let replayed = replayer().assert_dir(journals());
    assert!(replayed.len() >= 24, "{} journals", replayed.len());
    for one in &replayed {
        let name = one.file.as_ref().unwrap().file_name().unwrap();
        let unfinished = name == "unfinished.journal.json";
        assert_eq!(one.stopped != Stopped::Ended, unfinished, "{one}");
        assert_eq!(one.warnings, Vec::<String>::new(), "{one}");
    }
}

#[tokio::test]
async fn what_is_written_as_bytes_replays_as_well() {
    let folder = tempfile::tempdir().unwrap();
    for (name, journal) in recording::all().await {
        let path = folder.path().join(format!("{name}.journal"));
        journal.write(&path).unwrap();
        let one = replayer()
            .file(&path)
            .unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(one.run, journal.run());
    }
}

static RAN: AtomicUsize = AtomicUsize::new(0);

#[step]
async fn counted(n: u32) -> Result<u32> {
    RAN.fetch_add(1, Ordering::SeqCst);
    Ok(n)
}

#[workflow]
async fn short(until: u32) -> Result<u32> {
    let mut sum = 0;
    for n in 0..until {
        sum += counted(n).await?;
    }
    Ok(sum)
}

#[tokio::test]
async fn a_replay_runs_no_step_and_says_how_far_it_came() {
    let engine = TestEngine::builder()
        .register::<short>()
        .open()
        .await
        .unwrap();
    let run = engine.start(short(3)).await.unwrap();
    run.result().await.unwrap();
    let journal = engine.export(run.id()).await.unwrap();
    let before = RAN.load(Ordering::SeqCst);
    let replayer = Replayer::new().register::<short>();
    let whole = replayer.journal(&journal).unwrap();
    assert_eq!((whole.steps, whole.stopped), (3, Stopped::Ended));

    // The same journal as it was after each of its records.
    let folder = tempfile::tempdir().unwrap();
    for records in 1..journal.records().len() {
        let path = folder.path().join("cut.journal.json");
        cut(&journal, records).write(&path).unwrap();
        let part = replay::<short>(&path).unwrap();
        assert_eq!(part.steps, records - 1);
        match part.stopped {
            Stopped::Frontier { waiting, ends } => {
                assert_eq!(ends, records == 4);
                assert_eq!(waiting.len(), usize::from(!ends), "{waiting:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(RAN.load(Ordering::SeqCst), before, "a step ran");
}

/// The first records of a journal, as an export at that time would have been.
fn cut(
    journal: &workflow_runtime::export::JournalFile,
    records: usize,
) -> workflow_runtime::export::JournalFile {
    let mut text = journal.to_json();
    if records < journal.records().len() {
        let at = text
            .find(&format!("    {{\"seq\": {records},"))
            .expect("is there");
        let end = text[..at].rfind(',').expect("a record is before it");
        text.truncate(end);
        text.push_str("\n  ]\n}\n");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.journal.json");
    std::fs::write(&path, text).unwrap();
    workflow_runtime::export::JournalFile::read_edited(&path).unwrap()
}

#[test]
fn every_prefix_of_every_journal_fits_too() {
    let mut parts = 0;
    for entry in std::fs::read_dir(journals()).unwrap() {
        let path = entry.unwrap().path();
        let journal = workflow_runtime::export::JournalFile::read(&path).unwrap();
        // What a fork copies is written at once; a run that succeeds another begins with two records.
        let first = journal.records().iter().rposition(|record| {
            use workflow_runtime::journal::Event::{RunForked, RunSucceeds};
            matches!(record.event, RunForked(_) | RunSucceeds(_))
        });
        for records in first.unwrap_or(0) + 1..=journal.records().len() {
            let part = cut(&journal, records);
            if let Err(failure) = replayer().journal(&part) {
                panic!("{records} records of {}: {failure}", path.display());
            }
            parts += 1;
        }
    }
    assert!(parts > 100, "{parts}");
}

/// Other code under the names of recorded workflows.
mod changed {
    use super::*;

    #[workflow(name = "sequence")]
    pub(super) async fn other_step(order: Order) -> Result<usize> {
        mail(&order.email, "first".into()).await
    }

    #[workflow(name = "sequence")]
    pub(super) async fn other_input(order: Order) -> Result<String> {
        charge(&order.card, order.cents + 1).await
    }

    #[workflow(name = "sequence")]
    pub(super) async fn returns_early(order: Order) -> Result<String> {
        let _ = order;
        Ok("nothing".into())
    }

    #[workflow(name = "sequence")]
    pub(super) async fn other_result(order: Order) -> Result<Receipt> {
        let charge = charge(&order.card, order.cents).await?;
        mail(&order.email, format!("{} items", order.items.len())).await?;
        Ok(Receipt {
            charge,
            email: order.email,
            cents: 0,
        })
    }

    #[workflow(name = "sequence")]
    pub(super) async fn fails(order: Order) -> Result<Receipt> {
        charge(&order.card, order.cents).await?;
        mail(&order.email, format!("{} items", order.items.len())).await?;
        Err(Error::fatal("no"))
    }

    #[workflow(name = "sequence")]
    pub(super) async fn goes_on(order: Order) -> Result<usize> {
        charge(&order.card, order.cents).await?;
        mail(&order.email, format!("{} items", order.items.len())).await?;
        mail(&order.email, "and more".into()).await
    }

    #[workflow(name = "sequence")]
    pub(super) async fn other_argument(order: u32) -> Result<u32> {
        Ok(order)
    }

    #[workflow(name = "sequence")]
    pub(super) async fn panics(order: Order) -> Result<usize> {
        charge(&order.card, order.cents).await?;
        panic!("on the way")
    }

    #[step(name = "charge")]
    async fn charge_number(#[resource] _world: &World, card: &Card, cents: u64) -> Result<u64> {
        let _ = card;
        Ok(cents)
    }

    #[workflow(name = "sequence")]
    pub(super) async fn other_type(order: Order) -> Result<u64> {
        charge_number(&order.card, order.cents).await
    }

    #[workflow(name = "sequence", changes = "tolerant")]
    pub(super) async fn one_more_step(order: Order) -> Result<Receipt> {
        let charge = charge(&order.card, order.cents).await?;
        slow(1).await?;
        mail(&order.email, format!("{} items", order.items.len())).await?;
        Ok(Receipt {
            charge,
            email: order.email,
            cents: order.cents,
        })
    }

    #[workflow(name = "parent")]
    pub(super) async fn without_children() -> Result<(u64, u64, bool)> {
        Ok((1, 2, true))
    }

    #[workflow(name = "undone")]
    pub(super) async fn undoes_other_steps() -> Result<u32> {
        reserve("book").await?;
        refused().await
    }
}

/// What is said of a recorded journal, without what differs between machines.
fn said<W: workflow_runtime::Workflow>(name: &str, kind: ReplayFailureKind) -> String {
    let failure = replay::<W>(file(name)).expect_err("it does not fit");
    assert_eq!(failure.kind(), kind, "{failure}");
    portable(&failure.to_string())
}

/// Takes the machine's folders and the lines of the source out of a text.
fn portable(text: &str) -> String {
    let here = env!("CARGO_MANIFEST_DIR");
    let mut out = String::new();
    let text = text.replace(&format!("{here}/"), "");
    let mut parts = text.split(".rs:");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        out.push_str(".rs:N");
        out.push_str(part.trim_start_matches(|char: char| char.is_ascii_digit()));
    }
    out
}

#[test]
fn another_step_is_a_divergence() {
    insta::assert_snapshot!(said::<changed::other_step>(
        "sequence",
        ReplayFailureKind::Diverged
    ));
}

#[test]
fn another_input_is_shown_field_by_field() {
    insta::assert_snapshot!(said::<changed::other_input>(
        "sequence",
        ReplayFailureKind::Diverged
    ));
}

#[test]
fn a_workflow_that_returns_early_is_a_divergence() {
    insta::assert_snapshot!(said::<changed::returns_early>(
        "sequence",
        ReplayFailureKind::Diverged
    ));
}

#[test]
fn another_result_is_a_divergence() {
    insta::assert_snapshot!(said::<changed::other_result>(
        "sequence",
        ReplayFailureKind::Diverged
    ));
}

#[test]
fn a_failure_in_place_of_a_result_is_a_divergence() {
    insta::assert_snapshot!(said::<changed::fails>(
        "sequence",
        ReplayFailureKind::Diverged
    ));
}

#[test]
fn code_that_goes_on_behind_the_end_is_a_divergence() {
    insta::assert_snapshot!(said::<changed::goes_on>(
        "sequence",
        ReplayFailureKind::Diverged
    ));
}

#[test]
fn a_tolerant_workflow_stops_at_a_step_that_the_journal_does_not_know() {
    let replayed = replay::<changed::one_more_step>(file("sequence")).unwrap();
    insta::assert_snapshot!(portable(&replayed.to_string()));
}

#[test]
fn an_argument_of_another_type_is_a_failure() {
    insta::assert_snapshot!(said::<changed::other_argument>(
        "sequence",
        ReplayFailureKind::Undecodable
    ));
}

#[test]
fn an_outcome_of_another_type_is_a_failure() {
    insta::assert_snapshot!(said::<changed::other_type>(
        "sequence",
        ReplayFailureKind::Undecodable
    ));
}

#[test]
fn a_panic_in_the_workflow_is_a_failure() {
    insta::assert_snapshot!(said::<changed::panics>(
        "sequence",
        ReplayFailureKind::Panicked
    ));
}

#[test]
fn children_that_are_not_called_any_more_are_a_divergence() {
    insta::assert_snapshot!(said::<changed::without_children>(
        "child",
        ReplayFailureKind::Diverged
    ));
}

#[test]
fn other_steps_to_undo_are_a_divergence() {
    insta::assert_snapshot!(said::<changed::undoes_other_steps>(
        "undo",
        ReplayFailureKind::Diverged
    ));
}

#[workflow(name = "aborting")]
async fn aborts_itself() -> Result<u64> {
    quote().await?;
    abort("the edge is gone").await
}

#[workflow(name = "aborting")]
async fn goes_on_instead() -> Result<u64> {
    quote().await
}

#[tokio::test]
async fn an_abort_of_the_codes_own_is_not_taken_for_that_of_an_outcome_that_is_too_old() {
    let engine = TestEngine::builder().register::<aborts_itself>();
    let engine = engine.resource(World).open().await.unwrap();
    let run = engine.start(aborts_itself()).await.unwrap();
    run.result().await.unwrap_err();
    let journal = engine.export(run.id()).await.unwrap();
    let same = Replayer::new().register::<aborts_itself>();
    assert_eq!(same.journal(&journal).unwrap().stopped, Stopped::Ended);
    // Its quote could have been too old, and the journal says that it was not.
    let other = Replayer::new().register::<goes_on_instead>();
    let failure = other.journal(&journal).unwrap_err();
    assert_eq!(failure.kind(), ReplayFailureKind::Diverged, "{failure}");
}

#[test]
fn a_workflow_that_is_not_registered_is_a_failure() {
    insta::assert_snapshot!(said::<short>("sequence", ReplayFailureKind::Unregistered));
}

#[test]
fn a_child_that_is_not_registered_is_a_failure() {
    insta::assert_snapshot!(said::<parent>("child", ReplayFailureKind::Unregistered));
}

#[test]
fn a_file_that_is_not_there_is_a_failure() {
    insta::assert_snapshot!(said::<short>("nowhere", ReplayFailureKind::Unreadable));
}

#[test]
fn an_empty_folder_and_one_that_is_not_there_are_failures() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("README.md"), "no journal").unwrap();
    let replayer = Replayer::new().register::<short>();
    let empty = replayer.dir(folder.path()).unwrap_err();
    let nowhere = replayer.dir(folder.path().join("nowhere")).unwrap_err();
    let shown = format!("{empty}\n\n{nowhere}");
    insta::assert_snapshot!(shown.replace(&*folder.path().to_string_lossy(), "FOLDER"));
}

#[test]
fn a_folder_reports_every_file_that_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["sequence", "retry", "join"] {
        let name = format!("{name}.journal.json");
        std::fs::copy(journals().join(&name), folder.path().join(&name)).unwrap();
    }
    std::fs::write(folder.path().join("broken.journal"), "x").unwrap();
    let replayer = Replayer::new()
        .register::<changed::fails>()
        .register::<retried>();
    let failures = replayer.dir(folder.path()).unwrap_err();
    assert_eq!(failures.failures().len(), 3);
    let shown = portable(&failures.to_string());
    insta::assert_snapshot!(shown.replace(&*folder.path().to_string_lossy(), "FOLDER"));
}

#[test]
#[should_panic(expected = "cannot be replayed")]
fn an_assertion_panics_with_the_report() {
    assert_replays::<changed::fails>(file("sequence"));
}

#[tokio::test]
async fn an_assertion_works_within_a_runtime_and_gives_what_was_replayed() {
    let replayed = assert_replays::<sequence>(file("sequence"));
    assert_eq!(replayed.steps, 2);
    insta::assert_snapshot!(portable(&replayed.to_string()));
    let unfinished = assert_replays::<signalled>(file("unfinished"));
    insta::assert_snapshot!(portable(&unfinished.to_string()));
}
