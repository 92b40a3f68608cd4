//! What must hold, whatever happened: each line begins with the number of the invariant in the book's chapter on reliability.
//!
//! Owns the judgement of one case. Reads, and never repairs or waits.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use workflow_runtime::journal::{Event, Journal, Outcome};
use workflow_runtime::store::Store;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::testing::{Violation, Witness};
use workflow_runtime::{EngineError, MessageId, RunId};

use super::extra_checks;
use super::program::{Ending, possible};
use super::reader::Reader;
use super::world::Kind;
use super::{Acknowledged, Case, OWN};
use crate::chance::Chance;

/// What must hold after every process: the checker of the testing kit, told all that somebody was told.
pub(super) fn after_process(case: &Case, reader: &Reader, told: &mut Acknowledged) -> Vec<String> {
    told.hear(&case.world);
    told.witness.reopened();
    reader.check(&mut told.witness)
}

/// What a store must refuse when no engine has it open.
pub(super) fn store(store: MemoryStore, reader: &Reader, told: &Acknowledged) -> Vec<String> {
    let store: Arc<dyn Store> = Arc::new(store);
    let probing = told.witness.check_store(&store);
    numbered(reader.runtime.block_on(probing))
}

/// A record goes bad: it must be said of which run, whatever record it is.
pub(super) fn damage(store: &MemoryStore, chance: &mut Chance, now: u64) -> Vec<String> {
    let journals = Reader::open(store.clone(), OWN, now).journals();
    let records: Vec<(RunId, u64)> = journals
        .into_iter()
        .filter_map(|(run, journal)| Some((run, journal.ok()?)))
        .flat_map(|(run, journal)| {
            let records = journal.records().to_vec();
            records.into_iter().map(move |record| (run, record.seq))
        })
        .collect();
    if records.is_empty() {
        return Vec::new();
    }
    let (run, seq) = chance.one_of(&records);
    if !store.damage(run, seq) {
        return vec![format!("18: record {seq} of {run} is read, and not there")];
    }
    let mut witness = Witness::new();
    witness.damaged(run);
    Reader::open(store.clone(), OWN, now).check(&mut witness)
}

/// Violations with the number of their rule in front.
pub(super) fn numbered(found: Result<Vec<Violation>, EngineError>) -> Vec<String> {
    match found {
        Ok(found) => found
            .into_iter()
            .map(|it| format!("{}: {it}", it.invariant.number()))
            .collect(),
        Err(error) => vec![format!("18: it cannot be checked: {error}")],
    }
}

/// Everything, once all runs have ended.
pub(super) fn whole(case: &Case, reader: &Reader, told: &Acknowledged) -> Vec<String> {
    let mut wrong = Vec::new();
    for (run, journal) in reader.journals() {
        match journal {
            Ok(_) if told.poison == Some(run) => {}
            Ok(journal) => {
                wrong.extend(
                    journal_holds(case, &journal)
                        .into_iter()
                        .map(|what| format!("{what} ({run})\n{journal}")),
                );
                if told.run == Some(run) {
                    wrong.extend(root(case, told, &journal, false));
                } else if told.is_fork_of_root(run) {
                    wrong.extend(root(case, told, &journal, true));
                }
            }
            Err(error) => wrong.push(format!("2: the journal of {run}: {error}")),
        }
    }
    wrong.extend(messages(case, reader));
    wrong.extend(extra_checks::whole(case, reader, told));
    wrong
}

/// A message came if and only if the step that left it completed, and under one id.
fn messages(case: &Case, reader: &Reader) -> Vec<String> {
    let received = case.world.received();
    let came: BTreeSet<(RunId, u64)> = received
        .iter()
        .map(|(run, _, value)| (*run, *value))
        .collect();
    let ids: BTreeSet<MessageId> = received.iter().map(|(_, id, _)| *id).collect();
    let mut sent = BTreeSet::new();
    for (run, journal) in reader.journals() {
        let Ok(journal) = journal else { continue };
        let is_fork = |event: &Event| matches!(event, Event::RunForked(_));
        let records = journal.records();
        // What a fork shares was sent by its origin.
        let own = records.iter().rposition(|record| is_fork(&record.event));
        for record in &records[own.unwrap_or_default()..] {
            if let Event::StepCompleted(step) = &record.event
                && let (Outcome::Ok(value), "post") = (&step.outcome, &*step.name)
                && let Ok(value) = rmp_serde::from_slice(value)
            {
                sent.insert((run, value));
            }
        }
    }
    let mut wrong = Vec::new();
    if came != sent {
        wrong.push(format!("1: of the messages {sent:?} there came {came:?}"));
    }
    if ids.len() != received.len() || received.len() != came.len() {
        wrong.push(format!(
            "5: a message has two ids, or two have one: {received:?}"
        ));
    }
    wrong
}

/// Says whether a record ends its run.
pub(super) fn is_end(event: &Event) -> bool {
    matches!(
        event,
        Event::RunCompleted(_)
            | Event::RunFailed(_)
            | Event::RunAborted(_)
            | Event::RunCancelled(_)
            | Event::RunContinued(_)
    )
}

/// What one journal says, and what the world says to it.
fn journal_holds(case: &Case, journal: &Journal) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut kept = HashSet::new();
    for record in journal.records() {
        let Event::StepCompleted(step) = &record.event else {
            continue;
        };
        let effect = case.world.effect(step.step);
        if let (Outcome::Ok(_), Some(effect), "keep") = (&step.outcome, effect, &*step.name) {
            kept.insert((effect.tag, effect.given));
        }
    }
    let end = journal.records().last().map(|last| &last.event);
    if !end.is_some_and(is_end) {
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

/// How the run that was started, or a fork of it, ended, against the model.
fn root(case: &Case, told: &Acknowledged, journal: &Journal, is_fork: bool) -> Vec<String> {
    let Some(last) = journal.records().last() else {
        return vec!["2: an empty journal".into()];
    };
    let fits = match (&last.event, case.ending) {
        (Event::RunCompleted(_), Ending::Value) if case.must_fail() => false,
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
        (Event::RunFailed(_), Ending::Value | Ending::Abort) => {
            case.may_fail(is_fork || told.retry_refused)
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

/// Tells for people what a process left.
pub(super) fn headers(reader: &Reader) -> String {
    let headers = reader.headers();
    let lines = headers.iter().map(|header| {
        let (run, workflow, state) = (header.run, &header.workflow, &header.state);
        format!("  {run} {workflow} {state:?}\n")
    });
    lines.collect()
}

/// Tells a case for people: what was asked for, and all journals.
pub(super) fn story(case: &Case, reader: &Reader) -> String {
    let mut story = format!(
        "{:#?}\n{:#?}\n{:#?}\n",
        case.program, case.ending, case.extras
    );
    for (run, journal) in reader.journals() {
        match journal {
            Ok(journal) => story += &format!("{journal}\n"),
            Err(error) => story += &format!("{run}: {error}\n"),
        }
    }
    story
}
