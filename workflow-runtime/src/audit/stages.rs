//! The idempotency review, stage by stage, and its checklist, answered from what is known of the steps.
//!
//! Owns the two lists of questions. Every stage has one section in the output and every point of the checklist one
//! line; the chapter on the audit shows the same lists.

use std::fmt;

use super::table::{count, effect_name, join, or};
use super::{Audit, AuditedStep, EffectClass, Guard, KeyKept, Settings};
use crate::duration::short;
use crate::store::Durability;

/// The stages of an idempotency review, each the heading of a section of the output.
pub const STAGES: [&str; 6] = [
    "side effects",
    "keys",
    "storage and scope",
    "conflicts",
    "interruptions",
    "duplicates to test",
];

/// The points of the safety checklist, each a line of the output.
pub const CHECKLIST: [&str; 5] = [
    "every step with side effects has a guard or an undo",
    "outcomes are stored where they survive a restart",
    "a step that runs twice does its work once",
    "there is a key to know a duplicate by",
    "an interrupted step can be replayed, and does not wait for ever",
];

/// Whether a step passes a point of the checklist; `None` if that is up to an engine.
type Point = fn(&AuditedStep, &Settings) -> Option<bool>;

/// How each point of the checklist is decided, in its order.
const POINTS: [Point; CHECKLIST.len()] = [
    |step, _| {
        Some(has_any(
            step,
            &[Guard::StepId, Guard::Undo, Guard::AtMostOnce],
        ))
    },
    |step, settings| Some(step.durability(settings)? == Durability::Synced),
    |step, _| Some(has_any(step, &[Guard::StepId, Guard::AtMostOnce])),
    |step, _| Some(has_any(step, &[Guard::StepId, Guard::BusinessKey])),
    |step, _| Some(step.definition.timeout.is_some()),
];

fn has_any(step: &AuditedStep, guards: &[Guard]) -> bool {
    guards.iter().any(|guard| step.is_guarded_by(*guard))
}

/// All effects in the order in which they are listed, the unnamed last.
const EFFECTS: [Option<EffectClass>; 6] = [
    Some(EffectClass::Payment),
    Some(EffectClass::Create),
    Some(EffectClass::Update),
    Some(EffectClass::Message),
    None,
    Some(EffectClass::Read),
];

impl Audit {
    /// Writes one section per stage.
    pub(super) fn write_stages(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sections = [
            self.side_effects(),
            self.keys(),
            self.storage_and_scope(),
            self.conflicts(),
            self.interruptions(),
            self.duplicates(),
        ];
        for (at, (stage, lines)) in STAGES.iter().zip(sections).enumerate() {
            writeln!(f, "{}. {stage}", at + 1)?;
            lines.iter().try_for_each(|line| writeln!(f, "   {line}"))?;
        }
        Ok(())
    }

    /// Writes the checklist: a line per point, with the steps that fail it.
    pub(super) fn write_checklist(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "checklist")?;
        for (point, passes) in CHECKLIST.iter().zip(POINTS) {
            let answers = |wanted: Option<bool>| {
                let steps = self.effectful();
                join(
                    steps
                        .filter(|it| passes(it, &self.settings) == wanted)
                        .map(name),
                )
            };
            let (failing, open) = (answers(Some(false)), answers(None));
            if !failing.is_empty() {
                writeln!(f, "  [ ] {point}: not {failing}")?;
            } else if !open.is_empty() {
                writeln!(f, "  [?] {point}: as the engine says")?;
            } else {
                writeln!(f, "  [x] {point}")?;
            }
        }
        Ok(())
    }

    fn effectful(&self) -> impl Iterator<Item = &AuditedStep> {
        self.steps.iter().filter(|step| step.is_effectful())
    }

    /// Stage 1: what must be safe under a retry.
    fn side_effects(&self) -> Vec<String> {
        let (all, effectful) = (self.steps.len(), self.effectful().count());
        let mut lines = vec![format!(
            "{effectful} of {} change something",
            count(all, "step")
        )];
        for effect in EFFECTS {
            let steps = join(
                self.steps
                    .iter()
                    .filter(|it| it.effect() == effect)
                    .map(name),
            );
            if !steps.is_empty() {
                lines.push(format!("{}: {steps}", effect_name(effect)));
            }
        }
        lines
    }

    /// Stage 2: by what the other side knows a duplicate.
    fn keys(&self) -> Vec<String> {
        let key = |step: &AuditedStep| {
            let id = step.is_guarded_by(Guard::StepId).then_some("the step id");
            let business = step.definition.about.key;
            let key = match (id, business) {
                (Some(id), Some(key)) => format!("{id}, of the call named by `{key}`"),
                (Some(id), None) => id.to_owned(),
                (None, Some(key)) => format!("none is handed on; the call is named by `{key}`"),
                (None, None) => "none".to_owned(),
            };
            format!("{}: {key}", name(step))
        };
        lines(self.effectful().map(key))
    }

    /// Stage 3: where outcomes are kept, for how long, and who shares them.
    fn storage_and_scope(&self) -> Vec<String> {
        let Settings {
            durability,
            namespace,
            ..
        } = &self.settings;
        let namespace = match namespace {
            Some(namespace) => format!("namespace `{namespace}`"),
            None => "the namespace of the engine".to_owned(),
        };
        let stored = match durability {
            Some(Durability::Synced) => "synced before the workflow sees them",
            Some(Durability::Buffered) => "buffered: they survive the process, not the power",
            None => "stored as the engine says",
        };
        let mut lines = vec![format!("outcomes are {stored}; {namespace}")];
        let other = |it: &&AuditedStep| it.definition.durability.is_some();
        for step in self.steps.iter().filter(other) {
            let how = match step.definition.durability {
                Some(Durability::Buffered) => "buffered",
                _ => "synced",
            };
            lines.push(format!("{}: {how}", name(step)));
        }
        for workflow in &self.workflows {
            let definition = workflow.definition;
            let kept = match workflow.key_kept {
                KeyKept::Unknown => "as long as the engine says".to_owned(),
                KeyKept::Forever => "for ever".to_owned(),
                KeyKept::For(kept) => format!("for {} after the end", short(kept)),
            };
            lines.push(format!("{}: a run's key is kept {kept}", definition.name));
        }
        lines
    }

    /// Stage 4: what a duplicate is answered.
    fn conflicts(&self) -> Vec<String> {
        let steps = self
            .steps
            .iter()
            .filter(|it| it.definition.about.already_done);
        let steps = or(join(steps.map(name)), "no step");
        vec![
            "a start with the same key and the same input returns the first run".to_owned(),
            "a start with the same key and other input is refused as a conflict".to_owned(),
            format!("a conflict on the other side counts as done: {steps}"),
        ]
    }

    /// Stage 5: what becomes of a step that was running when its process died, and how often it is tried.
    fn interruptions(&self) -> Vec<String> {
        let line = |step: &AuditedStep| {
            let attempts = step.definition.max_attempts.or(self.settings.max_attempts);
            let again = match (step.at_most_once(), attempts) {
                (true, _) => {
                    "not run again; the workflow is told that it was interrupted".to_owned()
                }
                (false, Some(n)) => format!(
                    "run again under the same id, {} in all",
                    count(n as usize, "attempt")
                ),
                (false, None) => "run again under the same id".to_owned(),
            };
            let undo = step.definition.about.undone_by;
            let undo = undo.map_or_else(String::new, |(undo, _)| format!("; undone by `{undo}`"));
            format!("{}: {again}{undo}", name(step))
        };
        lines(self.steps.iter().map(line))
    }

    /// Stage 6: the duplicates that a test has to deliver.
    fn duplicates(&self) -> Vec<String> {
        let line = |step: &AuditedStep| {
            let expected = if step.is_guarded_by(Guard::StepId) {
                "asked twice under one step id, the other side acts once"
            } else if step.at_most_once() {
                "killed in the middle, it is not run again"
            } else if step.is_guarded_by(Guard::Undo) {
                "in a run that fails, nothing of it is left"
            } else {
                "run twice, it does its work twice: nothing guards it"
            };
            match step.definition.about.audit {
                Some(reason) => format!("{}: {expected} (accepted: {reason})", name(step)),
                None => format!("{}: {expected}", name(step)),
            }
        };
        lines(self.effectful().map(line))
    }
}

fn name(step: &AuditedStep) -> &'static str {
    step.definition.name
}

/// Lines, or one that says that there is nothing to say.
fn lines(all: impl Iterator<Item = String>) -> Vec<String> {
    let lines: Vec<_> = all.collect();
    match lines.is_empty() {
        true => vec!["nothing to guard".to_owned()],
        false => lines,
    }
}
