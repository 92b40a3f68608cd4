//! What the machine is like at the moment: how long a processor waits for what another one wrote.
//!
//! A virtual machine's processors are moved about by its host. Where they share a cache, that takes 22 to 100 ns, where they do not,
//! 190 to 270 (`docs/performance.md`; that machine has been seen to change every few minutes), and whatever hands something from thread to thread, the raw floor
//! most of all, takes up to twice as long. So a figure of many runs at once says which it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// How often a number goes back and forth in one measurement: some 20 to 80 ms.
const ROUNDS: u32 = 200_000;

/// How often a thread looks before it offers its processor: some 2 µs, longer than any number takes.
const SPINS: u64 = 200;

/// Nanoseconds from a write by one thread to its being seen by another.
pub fn one_way_ns() -> f64 {
    let number = Arc::new(AtomicU32::new(0));
    let answered = Arc::clone(&number);
    let other = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            wait_for(&answered, 2 * round + 1);
            answered.store(2 * round + 2, Ordering::Release);
        }
    });
    let began = Instant::now();
    for round in 0..ROUNDS {
        number.store(2 * round + 1, Ordering::Release);
        wait_for(&number, 2 * round + 2);
    }
    let took = began.elapsed();
    other.join().expect("it ends");
    took.as_secs_f64() * 1e9 / f64::from(2 * ROUNDS)
}

fn wait_for(number: &AtomicU32, expected: u32) {
    for spins in 0_u64.. {
        if number.load(Ordering::Acquire) == expected {
            return;
        }
        // Where the other one has no processor of its own, it would wait for this one.
        match spins < SPINS {
            true => std::hint::spin_loop(),
            false => std::thread::yield_now(),
        }
    }
}
