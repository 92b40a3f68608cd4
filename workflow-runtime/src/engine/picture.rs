//! The picture of a run: its workflow's, with what the run made of it.

use super::{Engine, EngineError};
use crate::diagram::Diagram;
use crate::ids::RunId;

impl Engine {
    /// Draws the workflow of a run, with what is done, has failed, runs or was not reached.
    ///
    /// See [`Diagram::with_run`] for what is shown.
    ///
    /// # Errors
    ///
    /// If there is no such run, its workflow is not registered in that version, or its journal cannot be read.
    pub async fn diagram(&self, run: RunId) -> Result<Diagram, EngineError> {
        let journal = self.journal(run).await?;
        let header = journal.header();
        let registry = &self.shared().services.registry;
        let all = registry.definitions().into_iter();
        let definition = all
            .filter(|it| *it.name == *header.workflow)
            .find(|it| it.version == header.version)
            .ok_or_else(|| {
                EngineError::Configuration(registry.missing(&header.workflow, header.version))
            })?;
        Ok(Diagram::of_definition(definition).with_run(&journal))
    }
}
