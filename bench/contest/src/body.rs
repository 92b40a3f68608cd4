//! The body of a step: the only work that anybody does, and what is noticed while it is done.
//!
//! Owns the counters of this process. Never touches the disk.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::say;

/// Steps between two times that are kept.
pub(crate) const STAMP_EVERY: u64 = 1_000;

/// Times that are kept: enough for a chain of 10,000 steps.
const STAMPS: usize = 11;

/// No step is held.
const NEVER: u64 = u64::MAX;

static BODIES: AtomicU64 = AtomicU64::new(0);
static ASLEEP: AtomicU64 = AtomicU64::new(0);
static HOLD_AT: AtomicU64 = AtomicU64::new(NEVER);
static BEGAN: OnceLock<Instant> = OnceLock::new();
/// Nanoseconds from `BEGAN` to step 0, 1,000, 2,000, …; the last chain's.
static REACHED: [AtomicU64; STAMPS] = [const { AtomicU64::new(0) }; STAMPS];

/// Does a step's work: returns the number after `x`.
pub async fn work(x: u64) -> u64 {
    if x == HOLD_AT.load(Ordering::Relaxed) {
        say::figure("bodies_before", BODIES.load(Ordering::Relaxed) as f64);
        std::future::pending::<()>().await;
    }
    BODIES.fetch_add(1, Ordering::Relaxed);
    if x.is_multiple_of(STAMP_EVERY)
        && let Some(stamp) = REACHED.get((x / STAMP_EVERY) as usize)
    {
        stamp.store(now(), Ordering::Relaxed);
    }
    x + 1
}

/// Notes that a run is about to sleep. May be called again when it is replayed.
pub fn asleep() {
    ASLEEP.fetch_add(1, Ordering::Relaxed);
}

/// Makes the body of this step say that it has begun, and never end.
pub(crate) fn hold_at(x: u64) {
    HOLD_AT.store(x, Ordering::Relaxed);
}

/// Returns how many bodies have run in this process.
pub(crate) fn bodies() -> u64 {
    BODIES.load(Ordering::Relaxed)
}

/// Returns how many runs have been about to sleep in this process.
pub(crate) fn runs_asleep() -> u64 {
    ASLEEP.load(Ordering::Relaxed)
}

/// Forgets the times of earlier chains.
pub(crate) fn forget_times() {
    BEGAN.get_or_init(Instant::now);
    for stamp in &REACHED {
        stamp.store(0, Ordering::Relaxed);
    }
}

/// Returns how long each thousand steps of the last chain took.
pub(crate) fn thousands() -> Vec<Duration> {
    let reached: Vec<u64> = REACHED
        .iter()
        .map(|stamp| stamp.load(Ordering::Relaxed))
        .take_while(|stamp| *stamp > 0)
        .collect();
    let pairs = reached.windows(2);
    pairs
        .map(|pair| Duration::from_nanos(pair[1].saturating_sub(pair[0])))
        .collect()
}

fn now() -> u64 {
    let elapsed = BEGAN.get_or_init(Instant::now).elapsed();
    // Zero means "not reached".
    u64::try_from(elapsed.as_nanos()).map_or(u64::MAX, |nanos| nanos.max(1))
}
