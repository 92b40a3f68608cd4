//! The `Idempotency-Key` layer behind a real axum server, driven over TCP, and keys in a real Redis.

mod bodies;
mod client;
mod crashes;
mod layer;
mod redis;
mod server;
