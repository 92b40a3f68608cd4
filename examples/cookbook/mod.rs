//! The cookbook: one file per recipe of `docs/cookbook.md`.
//!
//! Each recipe is a module with the code to copy, and a `run` that does the thing more often than it was meant, with
//! crashes in between where it writes, and asserts what came of it. `world` is the stage: a service
//! that keeps a ledger, and a process that dies at a chosen write.

pub mod cache;
pub mod collisions;
pub mod consumer;
pub mod etl;
pub mod expiry;
pub mod http;
pub mod keys;
pub mod notification;
pub mod order;
pub mod payment;
pub mod tenants;
pub mod webhook;
mod world;
