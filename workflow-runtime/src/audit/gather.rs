//! From workflows to the list of their steps.

use super::called::{Called, same};
use super::{Audit, AuditedStep, AuditedWorkflow, KeyKept, Seen, Settings, rules};
use crate::call::{OWN_STEPS, StepDefinition, WorkflowDefinition};
use crate::shape::{Target, reachable};

/// What was found so far.
#[derive(Default)]
pub(super) struct Gathered {
    workflows: Vec<AuditedWorkflow>,
    steps: Vec<AuditedStep>,
}

impl Gathered {
    /// Adds a workflow and its steps; returns the workflows that it calls.
    pub(super) fn add(
        &mut self,
        definition: &'static WorkflowDefinition,
        key_kept: KeyKept,
    ) -> Vec<&'static WorkflowDefinition> {
        self.workflows.push(AuditedWorkflow {
            definition,
            key_kept,
        });
        let mut children = Vec::new();
        reachable((definition.about.shape)(), &mut |target| match target {
            Target::Step(step) => self.add_step(step, definition.name, key_kept, Seen::InShape),
            Target::Workflow(child) => children.push(child),
            Target::Inline(_) | Target::Other => {}
        });
        children
    }

    /// Adds a workflow and all that it starts as its children, theirs included.
    pub(super) fn add_with_children(&mut self, definition: &'static WorkflowDefinition) {
        let mut left = vec![definition];
        while let Some(next) = left.pop() {
            let place = |it: &WorkflowDefinition| (it.file, it.line, it.name, it.version);
            let known = |it: &AuditedWorkflow| place(it.definition) == place(next);
            if !self.workflows.iter().any(known) {
                left.extend(self.add(next, KeyKept::said_by(next)));
            }
        }
    }

    /// Adds the steps that ran and that no shape names.
    pub(super) fn add_called(&mut self, called: Vec<Called>) {
        // The engine's own steps act on its store only.
        let own = |it: &Called| it.definition.file == OWN_STEPS;
        let known = |it: &Called| {
            let workflows = &self.workflows;
            workflows.iter().any(|w| *w.definition.name == *it.workflow)
        };
        let called: Vec<_> = called
            .into_iter()
            .filter(|it| known(it) && !own(it))
            .collect();
        for Called {
            definition,
            workflow,
        } in called
        {
            if !self.steps.iter().any(|it| same(it.definition, definition)) {
                let kept = self
                    .workflows
                    .iter()
                    .find(|w| *w.definition.name == *workflow);
                let kept = kept.map_or(KeyKept::Unknown, |it| it.key_kept);
                self.add_step(definition, &workflow, kept, Seen::CalledOnly);
            }
        }
    }

    fn add_step(
        &mut self,
        definition: &'static StepDefinition,
        workflow: &str,
        key_kept: KeyKept,
        seen: Seen,
    ) {
        let known = |it: &&mut AuditedStep| same(it.definition, definition);
        let Some(step) = self.steps.iter_mut().find(known) else {
            self.steps.push(AuditedStep {
                definition,
                workflows: vec![workflow.into()],
                key_kept,
                seen,
            });
            return;
        };
        if !step.workflows.iter().any(|name| **name == *workflow) {
            step.workflows.push(workflow.into());
        }
        step.key_kept = step.key_kept.shorter(key_kept);
    }

    /// Judges what was found.
    pub(super) fn finish(self, settings: Settings) -> Audit {
        let judged = self.steps.iter().flat_map(|it| rules::judge(it, &settings));
        let mut findings: Vec<_> = judged.collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Audit {
            workflows: self.workflows,
            steps: self.steps,
            findings,
            settings,
        }
    }
}

impl KeyKept {
    /// What a workflow says itself, without an engine.
    fn said_by(workflow: &WorkflowDefinition) -> Self {
        workflow.key_ttl.map_or(Self::Unknown, Self::For)
    }

    /// The shorter of two times; what is not known shortens nothing.
    pub(super) fn shorter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, it) | (it, Self::Unknown) => it,
            (Self::Forever, it) | (it, Self::Forever) => it,
            (Self::For(one), Self::For(other)) => Self::For(one.min(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_step_of_two_workflows_counts_with_the_key_that_is_forgotten_first() {
        let hours = |n: u64| KeyKept::For(Duration::from_secs(n * 3600));
        for (one, other, shorter) in [
            (hours(1), hours(2), hours(1)),
            (KeyKept::Forever, hours(2), hours(2)),
            (KeyKept::Unknown, KeyKept::Forever, KeyKept::Forever),
            (KeyKept::Unknown, hours(1), hours(1)),
        ] {
            assert_eq!(one.shorter(other), shorter);
            assert_eq!(other.shorter(one), shorter);
        }
    }
}
