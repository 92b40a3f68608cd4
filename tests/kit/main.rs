//! What the testing kit does for users' tests.

mod exporting;
mod recorded;
mod recording;
mod replaying;
mod time;
