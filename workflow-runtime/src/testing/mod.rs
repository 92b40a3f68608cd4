//! Testing workflows in a plain `#[tokio::test]`, in milliseconds (feature `testing`).
//!
//! Owns what users' tests need and nothing that ships in a service: [`TestEngine`], an engine in memory
//! whose time is virtual, and assertions whose failure says what to do.

mod auditing;
mod engine;

pub use auditing::assert_audit_clean;
pub use engine::{TestEngine, TestEngineBuilder};
