//! `workflows.lock`: what it says, what a change means, and that the engine agrees.

mod parts;
mod proofs;
