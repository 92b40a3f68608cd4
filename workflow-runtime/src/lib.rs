//! Durable workflows for Rust as two attributes.
#![allow(dead_code, reason = "skeleton")]
pub mod clock;
mod codec;
mod digest;
mod ids;
pub mod store;

pub use digest::Digest;
pub use ids::{ParseIdError, RunId, StepId};
