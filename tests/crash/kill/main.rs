//! `kill -9`, again and again: a real process over a real store, killed at random moments.
//!
//! The parent starts this test binary again as a child. The child starts runs without end, and
//! says on its standard output which starts and which results were acknowledged to it. The parent
//! kills it, starts the next one on the same store, and after the last kill lets one finish. Then
//! it compares three witnesses (also for errands, which talk, have children, sleep and undo): what the children were told, what the journals hold, and what
//! the steps did to the outside world, in a ledger that no crash of ours undoes.
//!
//! `KILLS=500 SEED=7 cargo test --test kill` makes it longer, or another one.

mod child;
mod errands;
mod ledger;
mod parent;
mod poisoned;
mod witnesses;

use std::path::Path;

/// Kills, unless `KILLS` says otherwise.
const DEFAULT_KILLS: u64 = 25;

/// The moments of the kills, unless `SEED` says otherwise.
const DEFAULT_SEED: u64 = 1;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
    )
}

#[test]
fn nothing_acknowledged_is_lost_or_changed_however_often_the_process_is_killed() {
    let kills = number("KILLS").unwrap_or(DEFAULT_KILLS);
    let seed = number("SEED").unwrap_or(DEFAULT_SEED);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let told = parent::kill_and_restart(dir.path(), kills, seed);
    let found = witnesses::compare(dir.path(), &told);
    eprintln!("seed {seed}: {kills} kills, {found}");
    found.assert_something_was_at_stake(kills);
}

/// Not a test by itself: what the child process runs. Does nothing unless it is told to.
#[test]
fn child_entry() {
    if let Ok(dir) = std::env::var(parent::CHILD_DIR) {
        let first = number(parent::CHILD_FIRST).expect("the parent says where to begin");
        let until = number(parent::CHILD_UNTIL);
        child::work(Path::new(&dir), first, until);
    }
}
