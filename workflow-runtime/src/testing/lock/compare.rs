//! What a change of code means for runs under way: a lock file against the code of today.
//!
//! Owns the rules for workflows and steps as a whole; `bodies` has those for what a workflow calls, `values` those for
//! types. Each rule says what the engine does when it replays a run of the old code with the new one, and has a test
//! that has an engine do it.

use super::bodies;
use super::model::{Announced, Manifest, Signature, StepEntry, Ty, WorkflowEntry};
use super::report::{Change, Class};
use super::values::{Use, Values};

/// Compares the code of today with what was accepted last.
pub(super) fn compare(old: &Manifest, new: &Manifest) -> Vec<Change> {
    let mut changes = Changes::default();
    for was in &old.workflows {
        let is = |it: &&WorkflowEntry| it.name == was.name && it.version == was.version;
        match new.workflows.iter().find(is) {
            Some(now) => workflow(old, new, was, now, &mut changes),
            None => changes.push(gone(old, new, was)),
        }
    }
    for now in &new.workflows {
        let was = |it: &WorkflowEntry| it.name == now.name && it.version == now.version;
        if !old.workflows.iter().any(was) {
            changes.push(
                Change::new(Class::Safe, &workflow_name(now), "it is new", &now.at)
                    .because("no run of it is under way"),
            );
        }
    }
    for was in &old.steps {
        if let Some(now) = new.steps.iter().find(|it| it.name == was.name) {
            step(old, new, was, now, &mut changes);
        }
    }
    changes
        .all
        .sort_by_key(|change| std::cmp::Reverse(change.class));
    changes.all
}

/// What was found; what several places have in common is said once.
#[derive(Default)]
pub(super) struct Changes {
    all: Vec<Change>,
}

impl Changes {
    pub(super) fn push(&mut self, change: Change) {
        let same = |it: &&mut Change| it.is_same_as(&change);
        match self.all.iter_mut().find(same) {
            Some(known) => known.also(change),
            None => self.all.push(change),
        }
    }
}

pub(super) fn workflow_name(entry: &WorkflowEntry) -> String {
    match entry.version {
        1 => format!("workflow `{}`", entry.name),
        n => format!("workflow `{}` version {n}", entry.name),
    }
}

/// A workflow that the code has no more.
fn gone(old: &Manifest, new: &Manifest, was: &WorkflowEntry) -> Change {
    let added = |it: &&WorkflowEntry| {
        let known = |old: &WorkflowEntry| old.name == it.name && old.version == it.version;
        !old.workflows.iter().any(known)
    };
    let version = new
        .workflows
        .iter()
        .find(|it| it.name == was.name && added(it));
    let renamed = new.workflows.iter().find(|it| {
        added(it) && it.version == was.version && super::model::same(&it.body, &was.body)
    });
    let change = |what: &str, at: &str| {
        Change::new(Class::Breaking, &workflow_name(was), what, at)
            .was(&was.at)
            .because("its runs under way are parked as `Unregistered` until an engine has it again")
    };
    match (version, renamed) {
        (Some(now), _) => change(&format!("only version {} of it is left", now.version), &now.at).mend(
            format!(
                "keep the old function beside the new one, as `#[workflow(name = \"{}\", version = {})]`, and register both",
                was.name, was.version
            ),
        ),
        (None, Some(now)) => change(&format!("it is called `{}` now", now.name), &now.at)
            .mend(format!("keep the name: `#[workflow(name = \"{}\")]`", was.name)),
        (None, None) => change("it is gone", &was.at).mend(format!(
            "keep it, in the code and in the lock, until `engine.runs().workflow(\"{}\")` lists no run that is under way",
            was.name
        )),
    }
}

fn workflow(
    old: &Manifest,
    new: &Manifest,
    was: &WorkflowEntry,
    now: &WorkflowEntry,
    changes: &mut Changes,
) {
    let name = workflow_name(now);
    match (was.tolerant, now.tolerant) {
        (false, true) => changes.push(
            Change::new(Class::Safe, &name, "its replay is tolerant now", &now.at)
                .was(&was.at)
                .because("what strict replay delivers, tolerant replay delivers in the same order"),
        ),
        (true, false) => changes.push(
            Change::new(Class::Breaking, &name, "its replay is strict now", &now.at)
                .was(&was.at)
                .because("runs with inserted steps have their outcomes in an order that strict replay does not take")
                .mend("keep `changes = \"tolerant\"` in this version, and begin a strict one with `version`".into()),
        ),
        _ => {}
    }
    let mut values = Values::new(old, new, &name, &now.at, &was.at);
    arguments(
        &was.signature,
        &now.signature,
        &name,
        now,
        was,
        changes,
        &mut values,
    );
    results(&was.signature, &now.signature, &name, &mut values);
    values.finish(changes);
    bodies::compare(old, new, was, now, changes);
}

/// A workflow's arguments are read from the journal by their names.
fn arguments(
    was: &Signature,
    now: &Signature,
    name: &str,
    entry: &WorkflowEntry,
    old: &WorkflowEntry,
    changes: &mut Changes,
    values: &mut Values<'_>,
) {
    for (argument, ty) in &now.arguments {
        match was.arguments.iter().find(|(it, _)| it == argument) {
            Some((_, before)) => values.read(before, ty, &format!("argument `{argument}`")),
            None => {
                let what = format!("argument `{argument}` is new");
                let change = |class| Change::new(class, name, &what, &entry.at).was(&old.at);
                changes.push(match ty {
                    Ty::Option(_) => change(Class::Safe).because("runs under way get `None`"),
                    _ => change(Class::Breaking)
                        .because("runs under way were started without it, and are parked as `Undecodable`")
                        .mend(format!(
                            "make it an `Option`; or keep the old function beside this one, which gets `version = {}`; \
                             if it was only renamed, keep the name",
                            entry.version + 1
                        )),
                });
            }
        }
    }
    let gone = was.arguments.iter();
    for (argument, _) in gone.filter(|(it, _)| !now.arguments.iter().any(|(name, _)| name == it)) {
        let what = format!("argument `{argument}` is gone");
        changes.push(
            Change::new(Class::Safe, name, &what, &entry.at)
                .was(&old.at)
                .because("arguments are read by name, and what nobody asks for is passed over"),
        );
    }
}

/// What a call gave is read from the journal as what it gives now.
fn results(was: &Signature, now: &Signature, name: &str, values: &mut Values<'_>) {
    values.read(&was.returns, &now.returns, "what it returns");
    match (&was.fails, &now.fails) {
        (Some(was), Some(now)) => values.read(was, now, "what it fails with"),
        (Some(_), None) if !matches!(now.returns, Ty::Opaque(_)) => {
            values.broken(
                &format!("{name} cannot fail now"),
                "a recorded error has no place in what it returns now",
                "go on returning a `Result`".into(),
            );
        }
        _ => {}
    }
}

fn step(old: &Manifest, new: &Manifest, was: &StepEntry, now: &StepEntry, changes: &mut Changes) {
    let name = format!("step `{}`", now.name);
    let mut values = Values::new(old, new, &name, &now.at, &was.at);
    results(&was.signature, &now.signature, &name, &mut values);
    step_arguments(&was.signature, &now.signature, &mut values);
    values.finish(changes);
    let change = |class, what: &str| Change::new(class, &name, what, &now.at).was(&was.at);
    if was.key != now.key {
        let what = match (&was.key, &now.key) {
            (None, Some(key)) => format!("it is named by `{key}` now"),
            (Some(_), Some(key)) => format!("it is named by `{key}` now, by another key before"),
            _ => "it is no longer named by a key".to_owned(),
        };
        changes.push(
            change(Class::Breaking, &what)
                .because("the key is part of the step's id: recorded outcomes belong to ids that nobody asks for, and the run is parked")
                .mend(format!(
                    "keep the key as it was; or make a step of another name with the new key and call it behind `patched(\"{}\")`",
                    now.name
                )),
        );
    }
    match (was.announced, now.announced) {
        (was, now) if was == now => {}
        (Announced::AtMostOnce, _) => changes.push(
            change(Class::Breaking, "it is no longer `at_most_once`")
                .because(
                    "a run that was interrupted in it is told nothing, and does it a second time",
                )
                .mend(
                    "keep `at_most_once` until no run is under way that may have begun the step"
                        .into(),
                ),
        ),
        (Announced::No, Announced::AtMostOnce) => changes.push(
            change(Class::Safe, "it is `at_most_once` now")
                .because("an attempt that was begun without a record of it still runs again once"),
        ),
        _ => changes.push(
            change(Class::Safe, "what is on record before it starts is another")
                .because("a record more or less before the body changes no outcome"),
        ),
    }
    if was.fresh != now.fresh {
        changes.push(
            change(Class::Safe, "how long its outcome stays fresh is another")
                .because("it is judged anew by every process that resumes a run"),
        );
    }
    if was.undone_by != now.undone_by {
        changes.push(
            change(Class::Safe, "what undoes it is another")
                .because("a run that closes from now on takes the step that the code names now"),
        );
    }
}

/// A step's arguments are not read: their digest, taken in order, is compared; where it differs, the kept inputs are
/// compared by name.
fn step_arguments(was: &Signature, now: &Signature, values: &mut Values<'_>) {
    let (old, new) = (&was.arguments, &now.arguments);
    let names = |all: &[(String, Ty)]| -> Vec<String> {
        let mut names: Vec<_> = all.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    };
    let moved = old.iter().zip(new).any(|((was, _), (now, _))| was != now);
    if moved && names(old) == names(new) {
        return values.broken(
            "its arguments stand in another order",
            "inputs are compared in the order of the arguments: runs under way are parked as `Diverged`",
            "keep the order".into(),
        );
    }
    if old.len() == new.len() {
        for (at, (name, ty)) in new.iter().enumerate() {
            values.compare(Use::Digest, &old[at].1, ty, &format!("argument `{name}`"));
        }
        return;
    }
    let one_sided = |all: &[(String, Ty)], other: &[(String, Ty)]| -> Vec<String> {
        let missing = all
            .iter()
            .filter(|(name, _)| !other.iter().any(|(it, _)| it == name));
        missing.map(|(name, _)| name.clone()).collect()
    };
    for (name, ty) in new {
        if let Some((_, before)) = old.iter().find(|(it, _)| it == name) {
            values.compare(Use::Digest, before, ty, &format!("argument `{name}`"));
        }
    }
    for (names, is) in [(one_sided(new, old), "new"), (one_sided(old, new), "gone")] {
        for name in names {
            values.tolerated(&format!("argument `{name}` is {is}"));
        }
    }
}
