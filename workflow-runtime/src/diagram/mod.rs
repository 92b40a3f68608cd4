//! The picture of a workflow, drawn from its source.
//!
//! Owns the way from a shape to a graph (`graph`) and how that is written down (`mermaid`, `dot`). It shows
//! what the source says: steps, child workflows, waits, branches, loops, joins. It knows no runs, and not
//! where `?`, `return` and `break` lead.

mod dot;
mod graph;
mod mermaid;

use graph::Graph;

use crate::call::Workflow;

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
        let definition = W::DEFINITION;
        Self {
            name: definition.name,
            graph: Graph::of((definition.about.shape)()),
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
