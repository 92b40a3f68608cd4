//! Everything that was asked of the engine alone, one after the other: one JSON line per figure, with what was asked and whether it is met.
//!
//! Owns the list. What was asked of it beside others comes out of `all` (`bench/results/asked.jsonl`).

use std::path::Path;

use crate::{cost, finished, repeats, replay, resume, suspended, sustained, throughput};

/// Measures all of it. Says whether everything is what was asked for.
pub fn all(scratch: &Path) -> bool {
    let few = repeats().min(3);
    let measured = [
        throughput(scratch, ""),
        replay(scratch),
        resume::after_a_kill(scratch, repeats()),
        cost::processor(scratch, repeats()),
        suspended::suspended(scratch, few),
        finished::finished(scratch, 1_000_000),
        sustained(scratch, few),
    ];
    measured.iter().all(|is_met| *is_met)
}
