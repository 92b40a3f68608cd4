//! Stories told with `workflow-runtime`; each `[[example]]` is a file of its own.
//!
//! Only the recipes of the cookbook are here, so that its program and its tests share them.

pub mod cookbook;
