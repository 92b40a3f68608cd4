//! `workflows.lock`: what it says, what a change means, and that the engine agrees.

mod files;
mod parts;
#[macro_use]
mod proofs;
mod proofs_of_values;
mod retiring;
