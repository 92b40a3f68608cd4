//! The audit: every step with what it does to the world, what keeps it from doing it twice, and what
//! is missing.
//!
//! Owns the questions that are asked of each step (`rules`), where the answers come from (`gather`: the
//! shapes that the macros left; `called`: steps that ran in this process), and how they are shown
//! (`table`, `stages`). It reads code, not journals, and changes nothing.
//!
//! ```
//! use workflow_runtime::audit::Audit;
//! use workflow_runtime::{Result, get_step_metadata, step, workflow};
//!
//! #[step(effect = "payment", timeout = "10s")]
//! async fn charge(cents: u64) -> Result<String> {
//!     Ok(format!("{cents} under {}", get_step_metadata().step_id))
//! }
//!
//! #[step(effect = "message")]
//! async fn mail(text: &str) -> Result<()> {
//! #   let _ = text;
//!     Ok(())
//! }
//!
//! #[workflow]
//! async fn checkout(cents: u64) -> Result<()> {
//!     let receipt = charge(cents).await?;
//!     mail(&receipt).await
//! }
//!
//! # fn main() { // a step inside a function is not seen
//! let audit = Audit::of::<checkout>();
//! assert!(!audit.is_clean());
//! assert_eq!(audit.open().map(|finding| finding.step()).collect::<Vec<_>>(), ["mail"]);
//! println!("{audit}");
//! # }
//! ```

pub(crate) mod called;
mod gather;
mod rules;
mod stages;
mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use crate::call::EffectClass;
use crate::call::{Announced, StepDefinition, Workflow, WorkflowDefinition};
use crate::store::Durability;
pub use stages::{CHECKLIST, STAGES};
pub(crate) use table::effect_name;

/// Every step of some workflows, with what was found about them.
///
/// Its `Display` is a table of the steps, one section per stage of the idempotency review, the
/// checklist, and the findings; see the chapter on the audit for what each part answers.
#[derive(Debug, Clone)]
pub struct Audit {
    workflows: Vec<AuditedWorkflow>,
    steps: Vec<AuditedStep>,
    findings: Vec<Finding>,
    settings: Settings,
}

/// What an engine says where a step does not; nothing is known of it without one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) max_attempts: Option<u32>,
    pub(crate) durability: Option<Durability>,
    pub(crate) namespace: Option<Arc<str>>,
}

/// For how long the key of a run answers a second start with the same run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyKept {
    /// Nobody has said: without an engine it is not known.
    Unknown,
    /// As long as the store is.
    Forever,
    /// So long after the run ended.
    For(Duration),
}

/// A workflow that was looked at.
#[derive(Debug, Clone)]
struct AuditedWorkflow {
    definition: &'static WorkflowDefinition,
    key_kept: KeyKept,
}

/// A step that was looked at.
#[derive(Debug, Clone)]
pub struct AuditedStep {
    definition: &'static StepDefinition,
    /// The workflows that call it.
    workflows: Vec<Box<str>>,
    /// The shortest time for which one of those keeps its keys.
    key_kept: KeyKept,
    seen: Seen,
}

/// How a step was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// The shape of a workflow names it.
    InShape,
    /// It ran in this process, and no shape names it.
    CalledOnly,
}

/// What keeps a step that runs twice from doing its work twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guard {
    /// Its body uses its step id, which the other side is given as its key.
    StepId,
    /// A business key names the call. It keeps the id through a reordering; whether the other side is
    /// told of it is not known.
    BusinessKey,
    /// Another step takes it back if the run does not complete.
    Undo,
    /// It is not run a second time.
    AtMostOnce,
    /// It changes nothing.
    ReadOnly,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know.
    Note,
    /// Somebody should decide.
    Warning,
    /// Something can happen twice.
    Error,
}

/// Something that was found about a step.
#[derive(Debug, Clone)]
pub struct Finding {
    code: &'static str,
    severity: Severity,
    definition: &'static StepDefinition,
    text: String,
}

impl Audit {
    /// Looks at one workflow and at the child workflows it calls, without an engine.
    pub fn of<W: Workflow>() -> Self {
        let mut gathered = gather::Gathered::default();
        gathered.add_with_children(W::DEFINITION);
        gathered.finish(Settings::default())
    }

    /// Looks at the workflows of an engine.
    pub(crate) fn of_all(
        workflows: impl IntoIterator<Item = (&'static WorkflowDefinition, KeyKept)>,
        settings: Settings,
    ) -> Self {
        let mut gathered = gather::Gathered::default();
        for (definition, key_kept) in workflows {
            gathered.add(definition, key_kept);
        }
        gathered.add_called(called::all());
        gathered.finish(settings)
    }

    /// Returns the steps, in the order in which the workflows name them.
    pub fn steps(&self) -> impl Iterator<Item = &AuditedStep> {
        self.steps.iter()
    }

    /// Returns all that was found, the gravest first.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter()
    }

    /// Returns the errors and warnings that nobody has given a reason for.
    pub fn open(&self) -> impl Iterator<Item = &Finding> {
        let open = |it: &&Finding| it.severity > Severity::Note && it.acknowledged().is_none();
        self.findings.iter().filter(open)
    }

    /// Says whether there is neither an error nor a warning that nobody has given a reason for.
    pub fn is_clean(&self) -> bool {
        self.open().next().is_none()
    }
}

impl AuditedStep {
    /// Returns the name that the journal knows the step by.
    pub fn name(&self) -> &'static str {
        self.definition.name
    }

    /// Returns the names of the workflows that call it.
    pub fn workflows(&self) -> impl Iterator<Item = &str> {
        self.workflows.iter().map(AsRef::as_ref)
    }

    /// Returns what it does to the world, if it says so.
    pub fn effect(&self) -> Option<EffectClass> {
        self.definition.effect
    }

    /// Says whether it changes something, or does not say what it does.
    pub fn is_effectful(&self) -> bool {
        self.definition.effect != Some(EffectClass::Read)
    }

    /// Returns what keeps it from doing its work twice.
    pub fn guards(&self) -> impl Iterator<Item = Guard> {
        let about = &self.definition.about;
        let all = [
            (Guard::StepId, about.uses_step_id),
            (Guard::BusinessKey, about.key.is_some()),
            (Guard::Undo, about.undone_by.is_some()),
            (Guard::AtMostOnce, self.at_most_once()),
            (Guard::ReadOnly, !self.is_effectful()),
        ];
        all.into_iter()
            .filter(|(_, is)| *is)
            .map(|(guard, _)| guard)
    }

    /// Says whether it has this guard.
    pub fn is_guarded_by(&self, guard: Guard) -> bool {
        self.guards().any(|it| it == guard)
    }

    /// Returns where it is defined, as `file:line`.
    pub fn place(&self) -> String {
        place(self.definition)
    }

    fn at_most_once(&self) -> bool {
        self.definition.announced == Announced::AtMostOnce
    }

    fn durability(&self, settings: &Settings) -> Option<Durability> {
        match self.at_most_once() {
            true => Some(Durability::Synced),
            false => self.definition.durability.or(settings.durability),
        }
    }
}

impl Finding {
    /// Returns what kind of finding it is: a word that does not change.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Returns how much it matters.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// Returns the name of the step that it is about.
    pub fn step(&self) -> &'static str {
        self.definition.name
    }

    /// Returns the rule and the way out.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns why it is right as it is, where the step says so: `#[step(audit = "…")]`.
    pub fn acknowledged(&self) -> Option<&'static str> {
        self.definition.about.audit
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (severity, code, step) = (self.severity, self.code, self.step());
        let place = place(self.definition);
        match self.acknowledged() {
            Some(reason) => write!(
                f,
                "{severity} {code}: step `{step}` ({place}): accepted: {reason}"
            ),
            None => write!(
                f,
                "{severity} {code}: step `{step}` ({place}): {}",
                self.text
            ),
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StepId => "step id",
            Self::BusinessKey => "business key",
            Self::Undo => "undo",
            Self::AtMostOnce => "at most once",
            Self::ReadOnly => "read only",
        })
    }
}

fn place(definition: &StepDefinition) -> String {
    format!("{}:{}", definition.file, definition.line)
}
