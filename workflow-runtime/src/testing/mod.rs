//! Testing workflows in a plain `#[tokio::test]`, in milliseconds (feature `testing`).
//!
//! Owns what users' tests need and nothing that ships in a service: [`TestEngine`], an engine in memory
//! whose time is virtual, and assertions whose failure says what to do ([`Lock`], [`assert_audit_clean`]).

mod auditing;
mod engine;
pub(crate) mod lock;

pub use auditing::assert_audit_clean;
pub use engine::{TestEngine, TestEngineBuilder};
pub use lock::{Change, Changed, Class, Lock, LockError};
