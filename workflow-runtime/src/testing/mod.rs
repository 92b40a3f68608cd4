//! Testing workflows in a plain `#[tokio::test]`, in milliseconds (feature `testing`).
//!
//! Owns what users' tests need and nothing that ships in a service: [`TestEngine`], an engine in memory
//! whose time is virtual.

mod engine;

pub use engine::{TestEngine, TestEngineBuilder};
