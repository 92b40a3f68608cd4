//! Stories told with `workflow-runtime`; each `[[example]]` is a file of its own.
//!
//! Here is only what a program and its tests share: the recipes of the cookbook, and the shop.

pub mod cookbook;
pub mod shop;
