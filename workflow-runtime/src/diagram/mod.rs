//! The picture of a workflow, drawn from its source.
//!
//! Owns the way from a shape to a graph (`graph`), what a run made of it (`overlay`), and how that is written down
//! (`mermaid`, `dot`). It shows what the source says: steps, child workflows, waits, branches, loops, joins. It does
//! not know where `?`, `return` and `break` lead, and shows no payload.

mod dot;
mod graph;
mod mermaid;
mod overlay;

use graph::Graph;

use crate::call::{Workflow, WorkflowDefinition};
use crate::journal::Journal;

/// The picture of a workflow; made by `checkout::diagram()`.
///
/// ```
/// use workflow_runtime::{Result, step, workflow};
///
/// #[step(effect = "payment", timeout = "10s")]
/// async fn charge(cents: u64) -> Result<()> {
/// #   let _ = cents;
///     Ok(())
/// }
///
/// #[workflow]
/// async fn checkout(cents: u64) -> Result<()> {
///     if cents > 0 {
///         charge(cents).await?;
///     }
///     Ok(())
/// }
///
/// # fn main() { // a step inside a function is not seen
/// let mermaid = checkout::diagram().mermaid();
/// assert!(mermaid.starts_with("flowchart TD"));
/// assert!(mermaid.contains("charge"));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Diagram {
    name: &'static str,
    graph: Graph,
}

impl Diagram {
    /// Draws a workflow.
    pub fn of<W: Workflow>() -> Self {
        Self::of_definition(W::DEFINITION)
    }

    pub(crate) fn of_definition(definition: &'static WorkflowDefinition) -> Self {
        Self {
            name: definition.name,
            graph: Graph::of((definition.about.shape)(), definition.file),
        }
    }

    /// Lays a run over it: what is done, has failed, runs or was not reached, with attempts and times.
    ///
    /// The run may be under way, asleep, parked or ended; it should be one of this workflow. Only what is on record is
    /// shown: a step that runs for the first time has no record yet, so what may be running is marked as *next*.
    ///
    /// ```
    /// # use workflow_runtime::{Engine, Result, step, workflow};
    /// # #[step] async fn charge(cents: u64) -> Result<u64> { Ok(cents) }
    /// # #[workflow] async fn checkout(cents: u64) -> Result<u64> { charge(cents).await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().register::<checkout>().open_in_memory().await?;
    /// let run = engine.start(checkout(5)).await?;
    /// run.result().await?;
    /// let journal = engine.journal(run.id()).await?;
    /// let picture = checkout::diagram().with_run(&journal).mermaid();
    /// assert!(picture.contains("done"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_run(&self, run: &Journal) -> Self {
        let mut graph = self.graph.clone();
        overlay::lay(&mut graph, run);
        Self {
            name: self.name,
            graph,
        }
    }

    /// Writes it as a Mermaid flowchart, for Markdown.
    pub fn mermaid(&self) -> String {
        mermaid::write(&self.graph)
    }

    /// Writes it in the language of Graphviz.
    pub fn dot(&self) -> String {
        dot::write(self.name, &self.graph)
    }
}
