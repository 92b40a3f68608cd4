//! What is frozen: ids and journal bytes of every release.
//!
//! These values were handed to other systems as idempotency keys, or lie on other people's
//! disks. A test here that fails is never mended by changing what it expects: a new
//! derivation or format gets a new version and new fixtures beside the old ones.

mod carried;
mod changed;
mod closing;
mod done;
mod endless;
mod ids;
mod journal;
mod line;
mod listed;
mod options;
mod pushing;
mod story;
mod talk;
mod talking;
