//! What the testing kit does for users' tests.

mod lock;
mod overlay;
mod time;
