//! A shop's order service, of the size that a team begins with: what it needs from outside, and its workflows.
//!
//! `cargo run --example shop` runs it. `cargo test -p examples --test shop` tests it with every part of the testing kit,
//! and the book's [chapter on testing](../../docs/testing.md) walks through that.

pub mod orders;
pub mod outside;
