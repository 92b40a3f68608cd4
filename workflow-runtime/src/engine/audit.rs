//! The audit of an engine: its workflows and what it says where they do not.

use super::{Engine, Shared};
use crate::audit::{Audit, KeyKept, Settings};
use crate::call::WorkflowDefinition;

impl Engine {
    /// Lists every step of the registered workflows, with what it does to the world, what keeps it from
    /// doing it twice, and what is missing.
    ///
    /// Steps are found in the workflows' source. Those that ran in this process and were not found there
    /// are listed too, and marked. [`Audit::of`] looks at one workflow without an engine.
    ///
    /// ```
    /// # use workflow_runtime::{Engine, Result, step, workflow};
    /// # #[step(effect = "read")] async fn look() -> Result<u32> { Ok(1) }
    /// # #[workflow] async fn check() -> Result<u32> { look().await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let engine = Engine::builder().register::<check>().open_in_memory().await?;
    /// let audit = engine.audit();
    /// println!("{audit}");
    /// assert!(audit.is_clean());
    /// # Ok(())
    /// # }
    /// ```
    pub fn audit(&self) -> Audit {
        let shared = &self.owner.shared;
        let services = &shared.services;
        let settings = Settings {
            max_attempts: Some(services.config.max_attempts),
            durability: Some(services.config.durability),
            namespace: Some(services.namespace.clone()),
        };
        let workflows = services.registry.definitions().into_iter();
        Audit::of_all(workflows.map(|it| (it, shared.key_kept(it))), settings)
    }
}

impl Shared {
    /// For how long the key of a workflow's runs is kept: as long as the runs are.
    fn key_kept(&self, workflow: &'static WorkflowDefinition) -> KeyKept {
        match self.retentions.of_workflow(workflow.name).keep() {
            None => KeyKept::Forever,
            Some(kept) => KeyKept::For(kept),
        }
    }
}
