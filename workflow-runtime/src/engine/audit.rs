//! The audit of an engine: its workflows and what it says where they do not.

use std::time::Duration;

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
    /// For how long the key of a workflow's runs names them after their end, unless a start says otherwise.
    fn key_kept(&self, workflow: &'static WorkflowDefinition) -> KeyKept {
        match workflow.key_ttl.unwrap_or(self.services.config.key_ttl) {
            Duration::MAX => KeyKept::Forever,
            kept => KeyKept::For(kept),
        }
    }
}
