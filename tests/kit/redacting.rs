//! What is taken out of a file: secrets, fields, values; and what still fits, or is compared, without them.

use workflow_runtime::Key;
use workflow_runtime::export::{JournalFile, Redact};
use workflow_runtime::testing::{ReplayFailureKind, Stopped};

use crate::recorded::*;
use crate::recording::{self, ended};

#[tokio::test]
async fn what_is_known_to_be_secret_leaves_only_on_demand() {
    let engine = recording::engine().await;
    let key = Key::business("card", "4111").secret();
    let run = engine.start(keyed()).key(key.clone()).await.unwrap();
    run.result().await.unwrap();
    let file = engine.export(run.id()).await.unwrap();
    assert_eq!(file.key(), Some("(redacted)"));
    assert!(file.is_redacted() && !file.to_json().contains(key.as_str()));
    assert_eq!(replayer().journal(&file).unwrap().stopped, Stopped::Ended);
    let open = engine.export(run.id()).with_secrets().await.unwrap();
    assert_eq!(open.key(), Some(key.as_str()));
    assert_eq!(open.head(), open.source_head());
}

/// Says whether a text is anywhere in a file, in either form.
pub(super) fn holds(file: &JournalFile, text: &str) -> bool {
    let bytes = file.to_binary();
    let in_bytes = bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes());
    assert_eq!(in_bytes, file.to_json().contains(text));
    in_bytes
}

#[tokio::test]
async fn fields_are_taken_out_with_every_copy_and_the_code_still_fits() {
    let file = ended(sequence(order())).await;
    assert!(holds(&file, "ada@example.org") && holds(&file, "4111 1111 1111 1111"));
    let file = file.redact_fields(["CARD", "email"]);
    // The address went to a step as `to`, the number into a text.
    assert!(!holds(&file, "ada@example.org") && !holds(&file, "4111"));
    assert!(holds(&file, "Ada") && holds(&file, "book"));
    let replayed = replayer().journal(&file).unwrap();
    assert!(replayed.redacted);
    assert_eq!((replayed.steps, replayed.stopped), (2, Stopped::Ended));
    assert_eq!(replayed.warnings, Vec::<String>::new());
    insta::assert_snapshot!(file.to_json());
}

#[tokio::test]
async fn every_journal_still_fits_with_all_values_taken_out_that_nothing_is_chosen_by() {
    // What these workflows count and choose by, and what has to be read as what it is.
    let chosen_by = ["at", "until", "seconds", "days", "n", "cents", "items"];
    for (name, file) in recording::all().await {
        if name == "failure" {
            continue; // it chooses by a step's output, which is a number without a field's name
        }
        let file = file.redact_all_but(chosen_by);
        let again = JournalFile::from_json(&file.to_json()).unwrap();
        assert_eq!(again, file, "{name}");
        let replayed = replayer().journal(&again);
        let replayed =
            replayed.unwrap_or_else(|failure| panic!("{name}: {failure}\n{}", file.to_json()));
        assert_eq!(
            replayed.stopped == Stopped::Ended,
            name != "unfinished",
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_value_is_taken_out_by_its_path_and_replaced_by_another() {
    let mut paths = Vec::new();
    let file = ended(sequence(order())).await.redact(|path, value| {
        paths.push(path.to_owned());
        match (path, value.as_str()) {
            (_, Some("Ada")) => Redact::With("Eve".into()),
            ("sequence.input.order.items[1]", _) => Redact::Blank,
            _ => Redact::Keep,
        }
    });
    for path in [
        "charge.input.card.number",
        "charge.output",
        "run.output.cents",
    ] {
        assert!(
            paths.iter().any(|known| known == path),
            "{path} is not in {paths:?}"
        );
    }
    assert!(!holds(&file, "Ada") && !holds(&file, "pen"));
    assert!(
        file.to_json()
            .contains(r#""customer": {"$redacted": "Eve"}"#)
    );
    assert_eq!(replayer().journal(&file).unwrap().stopped, Stopped::Ended);
}

#[tokio::test]
async fn code_that_chooses_by_what_was_taken_out_diverges_and_is_told_why() {
    let whole = ended(counting(0, 2)).await;
    let failure = replayer()
        .journal(&whole.clone().redact_all_but(["at"]))
        .unwrap_err();
    assert_eq!(failure.kind(), ReplayFailureKind::Diverged);
    let shown = failure.to_string();
    assert!(
        shown.contains("values were taken out of this file"),
        "{shown}"
    );
    assert!(
        replayer()
            .journal(&whole.redact_all_but(["at", "until"]))
            .is_ok()
    );
}

/// The same step, with an input that was not redacted.
mod changed {
    use super::*;

    #[workflow_runtime::workflow(name = "sequence")]
    pub(super) async fn other_amount(order: Order) -> workflow_runtime::Result<String> {
        charge(&order.card, order.cents * 2).await
    }
}

#[tokio::test]
async fn what_was_not_taken_out_is_still_compared() {
    let file = ended(sequence(order()))
        .await
        .redact_fields(["card", "email"]);
    let replayer = workflow_runtime::testing::Replayer::new().register::<changed::other_amount>();
    let failure = replayer.journal(&file).unwrap_err();
    assert_eq!(failure.kind(), ReplayFailureKind::Diverged);
    let values = failure.values().unwrap();
    assert_eq!(values.trim(), "cents: journal 12345 | code 24690");
}
