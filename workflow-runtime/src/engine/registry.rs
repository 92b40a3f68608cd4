//! The workflows an engine knows, without their types.

use std::collections::HashMap;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use crate::call::args::WorkflowArgsSeed;
use crate::call::{CodeChanges, Workflow, WorkflowDefinition};
use crate::error::Error;
use crate::journal::{End, Outcome};
use crate::payload::{PayloadError, Payloads};

/// A running workflow, without its types.
pub(crate) type WorkflowFuture = Pin<Box<dyn Future<Output = End> + Send>>;

/// Makes workflows from recorded input.
pub(crate) type MakeWorkflow = fn(&Ways, &[u8]) -> Result<WorkflowFuture, PayloadError>;

/// How a workflow's input is read, and how its end is written.
pub(crate) struct Ways {
    pub(crate) input: Payloads,
    pub(crate) end: Payloads,
}

/// Workflows by name and version.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    by_name: HashMap<&'static str, Vec<Registered>>,
}

/// A workflow of a name and version.
#[derive(Clone)]
pub(crate) struct Registered {
    version: u32,
    definition: &'static WorkflowDefinition,
    place: (&'static str, u32),
    pub(crate) make: MakeWorkflow,
    pub(crate) changes: CodeChanges,
    /// Names of the arguments, in order.
    pub(crate) args: &'static [&'static str],
}

impl Registry {
    /// Adds a workflow.
    ///
    /// # Errors
    ///
    /// Names both places if another function has the name and version already.
    pub(crate) fn add<W: Workflow>(&mut self) -> Result<(), String> {
        let definition = W::DEFINITION;
        let place = (definition.file, definition.line);
        let versions = self.by_name.entry(definition.name).or_default();
        match versions
            .iter()
            .find(|known| known.version == definition.version)
        {
            Some(known) if known.place == place => Ok(()),
            Some(known) => Err(format!(
                "two workflows are named `{}` (version {}): {}:{} and {}:{}; rename one with \
                 `#[workflow(name = \"…\")]` or give it another version",
                definition.name, definition.version, known.place.0, known.place.1, place.0, place.1
            )),
            None => {
                versions.push(Registered {
                    version: definition.version,
                    definition,
                    place,
                    make: make_from_payload::<W>,
                    changes: definition.changes,
                    args: definition.args,
                });
                Ok(())
            }
        }
    }

    pub(crate) fn find(&self, name: &str, version: u32) -> Option<&Registered> {
        let versions = self.by_name.get(name)?;
        versions.iter().find(|known| known.version == version)
    }

    /// Returns what the macros know of all workflows, in the order of their names and versions.
    pub(crate) fn definitions(&self) -> Vec<&'static WorkflowDefinition> {
        let all = self.by_name.values().flatten();
        let mut all: Vec<_> = all.map(|known| known.definition).collect();
        all.sort_by_key(|it| (it.name, it.version));
        all
    }

    /// Says whether any version of a workflow is registered.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Says why a workflow is not found, and what is there instead.
    pub(crate) fn missing(&self, name: &str, version: u32) -> String {
        let instead = match self.by_name.get(name) {
            Some(versions) => {
                let known: Vec<_> = versions.iter().map(|v| v.version.to_string()).collect();
                format!("registered versions: {}", known.join(", "))
            }
            None => {
                let mut known: Vec<_> = self.by_name.keys().copied().collect();
                known.sort_unstable();
                format!("registered workflows: {}", known.join(", "))
            }
        };
        format!(
            "no workflow `{name}` version {version} is registered ({instead}): keep the old \
             function beside the new one and `.register` both"
        )
    }
}

fn make_from_payload<W: Workflow>(
    ways: &Ways,
    input: &[u8],
) -> Result<WorkflowFuture, PayloadError> {
    let seed = WorkflowArgsSeed::<W::Input>(W::DEFINITION.args, PhantomData);
    let input = ways.input.decode_seed(seed, input)?;
    let payloads = ways.end.clone();
    Ok(Box::pin(async move {
        let output = W::run(input).await;
        let returns = W::returns();
        let failed = returns.failure(&output).is_some();
        let encoded = returns.encode(&payloads, &output).and_then(|outcome| {
            returns.decode(&payloads, &outcome)?;
            Ok(outcome)
        });
        match encoded {
            Ok(Outcome::Ok(output)) if !failed => End::Completed(output),
            Ok(outcome) => End::Failed(outcome),
            Err(problem) => {
                let error = Error::fatal(format!(
                    "what workflow `{}` returned cannot be journaled: {problem}",
                    W::DEFINITION.name
                ));
                End::Failed(Outcome::Broken(payloads.encode(&error).unwrap_or_default()))
            }
        }
    }))
}
