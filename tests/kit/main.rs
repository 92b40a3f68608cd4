//! What the testing kit does for users' tests.

mod time;
