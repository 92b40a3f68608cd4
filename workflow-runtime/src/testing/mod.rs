//! Testing workflows in a plain `#[tokio::test]`, in milliseconds (feature `testing`).
//!
//! Owns what users' tests need and nothing that ships in a service: [`TestEngine`], an engine in memory
//! whose time is virtual, and assertions whose failure says what to do.

mod auditing;
mod engine;
mod replay;
mod replay_judge;
mod replay_report;

pub use auditing::assert_audit_clean;
pub use engine::{TestEngine, TestEngineBuilder};
pub use replay::{Replayer, assert_replays, replay};
pub use replay_report::{ReplayFailure, ReplayFailureKind, ReplayFailures, Replayed, Stopped};
