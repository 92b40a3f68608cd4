//! What must hold, whatever happened: each line begins with the number of the invariant in the book's chapter on reliability.
//!
//! Owns the judgement of one case. Reads, and never repairs or waits.

use std::collections::HashSet;

use workflow_runtime::RunId;
use workflow_runtime::journal::{Event, Journal, Outcome};
use workflow_runtime::testing::check_journal;

use super::life::Reader;
use super::program::{Ending, possible};
use super::world::Kind;
use super::{Acknowledged, Case};

/// More attempts than this no step makes; what `workflows` allows.
const MAX_ATTEMPTS: u32 = 12;

/// What somebody was told is there.
pub(super) fn acknowledged(reader: &Reader, told: &Acknowledged) -> Vec<String> {
    let known: HashSet<RunId> = reader.journals().iter().map(|(run, _)| *run).collect();
    let started = told
        .run
        .iter()
        .chain(told.signals.iter().map(|(run, ..)| run));
    started
        .filter(|run| !known.contains(run))
        .map(|run| format!("1: {run} was acknowledged, and is gone"))
        .collect()
}

/// Everything, once all runs have ended.
pub(super) fn whole(case: &Case, reader: &Reader, told: &Acknowledged) -> Vec<String> {
    let mut wrong = case.world.violations();
    for (run, journal) in reader.journals() {
        match journal {
            Ok(journal) => {
                wrong.extend(
                    journal_holds(case, &journal)
                        .into_iter()
                        .map(|what| format!("{what} ({run})\n{journal}")),
                );
                if told.run == Some(run) {
                    wrong.extend(root(case, told, &journal));
                }
            }
            Err(error) => wrong.push(format!("2: the journal of {run}: {error}")),
        }
    }
    let too_often = case
        .world
        .asked()
        .into_iter()
        .filter(|(_, attempt)| *attempt > MAX_ATTEMPTS);
    wrong.extend(too_often.map(|(step, attempt)| format!("17: attempt {attempt} of {step}")));
    wrong
}

/// What one journal says, and what the world says to it.
fn journal_holds(case: &Case, journal: &Journal) -> Vec<String> {
    let rules = check_journal(journal).into_iter();
    let mut wrong: Vec<String> = rules.map(|rule| rule.to_string()).collect();
    let mut kept = HashSet::new();
    for record in journal.records() {
        let Event::StepCompleted(step) = &record.event else {
            continue;
        };
        match (&step.outcome, case.world.effect(step.step)) {
            (Outcome::Ok(_), None) => {
                wrong.push(format!("4: {} completed, and nothing was done", step.step));
            }
            (Outcome::Ok(_), Some(effect)) if &*step.name == "keep" => {
                kept.insert((effect.tag, effect.given));
            }
            _ => {}
        }
    }
    let end = journal.records().last().map(|last| &last.event);
    let is_ended = matches!(
        end,
        Some(
            Event::RunCompleted(_)
                | Event::RunFailed(_)
                | Event::RunAborted(_)
                | Event::RunCancelled(_)
        )
    );
    if !is_ended {
        wrong.push("14: it has not ended".into());
    }
    let run = journal.header().run;
    let undone: HashSet<(u64, u64)> = case
        .world
        .effects()
        .into_iter()
        .filter(|(_, effect)| effect.run == run && effect.kind == Kind::Undone)
        .map(|(_, effect)| (effect.tag, effect.given))
        .collect();
    let is_completed = matches!(end, Some(Event::RunCompleted(_)));
    if is_completed && !undone.is_empty() {
        wrong.push(format!("16: it completed, and {undone:?} were undone"));
    }
    if !is_completed && !kept.is_subset(&undone) {
        wrong.push(format!("16: of {kept:?} only {undone:?} were undone"));
    }
    wrong
}

/// How the run that was started ended, against the model.
fn root(case: &Case, told: &Acknowledged, journal: &Journal) -> Vec<String> {
    let Some(last) = journal.records().last() else {
        return vec!["2: an empty journal".into()];
    };
    let fits = match (&last.event, case.ending) {
        (Event::RunCompleted(end), Ending::Value) => {
            let value: Option<u64> = rmp_serde::from_slice(&end.output).ok();
            let allowed = possible(&case.program, 1);
            match (value, allowed) {
                (Some(value), Some(allowed)) if !allowed.contains(&value) => {
                    return vec![format!(
                        "7: it gave {value}, and the model knows {allowed:?}\n{:?}\n{journal}",
                        case.program
                    )];
                }
                (None, _) => false,
                _ => true,
            }
        }
        (Event::RunFailed(_), Ending::Failure) | (Event::RunAborted(_), Ending::Abort) => true,
        (Event::RunCancelled(_), _) => told.cancel_asked,
        _ => false,
    };
    match fits {
        true => Vec::new(),
        false => vec![format!(
            "7: it ended otherwise than {:?}\n{:?}\n{journal}",
            case.ending, case.program
        )],
    }
}

/// Hashes everything that was written and done.
pub(super) fn trace(case: &Case, reader: &Reader) -> blake3::Hash {
    let mut hash = blake3::Hasher::new();
    for (run, _) in reader.journals() {
        for frame in reader.frames(run) {
            hash.update(&frame);
        }
    }
    hash.update(format!("{:?}{:?}", case.world.effects(), case.world.asked()).as_bytes());
    hash.finalize()
}
