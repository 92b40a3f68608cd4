//! Pausing: of a run, a workflow, everything; what stops, what goes on, and that it lasts.
