//! Testing workflows in a plain `#[tokio::test]`, in milliseconds (feature `testing`).
//!
//! Owns what users' tests need and nothing that ships in a service: [`TestEngine`], an engine in memory
//! whose time is virtual, control over its steps, ways to drive its runs, and assertions whose failure
//! says what to do.

mod auditing;
mod driving;
mod engine;
mod steps;
mod waiting_text;

pub use auditing::assert_audit_clean;
pub use engine::{TestEngine, TestEngineBuilder};
pub use steps::{AsyncAnswer, Call, CallAttempt, Calls, Fallible};

pub use crate::call::TypedStep;
