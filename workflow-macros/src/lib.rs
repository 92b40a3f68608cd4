//! The `#[workflow]` and `#[step]` attributes of `workflow-runtime`.
