//! What the testing kit does for users' tests.

mod chaos;
mod crashing;
mod ledger;
mod strategies;
mod time;
