//! The `Idempotency-Key` layer behind a real axum server, driven over TCP, and keys in a real Redis.

mod bodies;
mod client;
mod crashes;
mod layer;
mod redis;
mod server;

#[path = "../flow/guard.rs"]
mod guard;
#[path = "../flow/guard_keys.rs"]
mod guard_keys;
