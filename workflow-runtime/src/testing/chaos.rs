//! Bad luck for a [`TestEngine`](super::TestEngine): steps that end in another order, clocks that are turned.
//!
//! Owns what follows from a seed. The same seed is the same bad luck, so the same journal. It never changes what
//! the engine does about it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::Sleep;

use super::TestEngineBuilder;
use crate::clock::Clock;
use crate::hashing::scramble;
use crate::ids::StepId;
use crate::store::memory::MemoryStore;

/// How far a clock is turned at most, to either side of the true time.
const FARTHEST_JUMP: Duration = Duration::from_secs(86_400);

/// A body begins after one of so many delays, a millisecond apart.
const DELAYS: u64 = 16;

impl TestEngineBuilder {
    /// Lets steps that run at the same time end in another order, which follows from the seed.
    ///
    /// Every attempt at a step begins up to 15 ms late, by the virtual clock; its `timeout` is running meanwhile.
    /// A workflow must come out right whatever the order. Try several seeds:
    ///
    /// ```
    /// # use workflow_runtime::testing::TestEngine;
    /// # use workflow_runtime::{Result, workflow};
    /// # #[workflow] async fn checkout() -> Result<u32> { Ok(1) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// for seed in 0..20 {
    ///     let engine = TestEngine::builder().register::<checkout>().shuffle_completions(seed);
    ///     let run = engine.open().await?.start(checkout()).await?;
    ///     # let _ = run;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn shuffle_completions(mut self, seed: u64) -> Self {
        self.engine = self.engine.shuffled(seed);
        self
    }

    /// Turns the clock at every write, forward or back, by up to a day from the true time, which follows from the
    /// seed. No timer may fire early for it, none may be lost, and no record is dated before the one before it.
    pub fn with_clock_jumps(mut self, seed: u64) -> Self {
        self.jumps = Some(seed);
        self
    }
}

/// Turns a clock at every write of a store.
pub(super) fn jump_at_each_write(store: &MemoryStore, clock: &Clock, seed: u64) {
    let (clock, writes, ahead) = (clock.clone(), AtomicU64::new(0), AtomicI64::new(0));
    let farthest = i64::try_from(FARTHEST_JUMP.as_micros()).expect("a day is not long");
    store.at_each_write(move || {
        let write = writes.fetch_add(1, Ordering::Relaxed);
        let wide = Draw(seed).mix(write).below(2 * farthest.unsigned_abs() + 1);
        let next = wide.cast_signed() - farthest;
        clock.turn(next - ahead.swap(next, Ordering::Relaxed));
    });
}

/// What a step's body waits for before it begins, if a seed says so.
#[derive(Default)]
pub(crate) struct Delay(Option<Pin<Box<Sleep>>>);

impl Delay {
    pub(crate) fn of(seed: Option<u64>, step: StepId, attempt: u32) -> Self {
        let Some(seed) = seed else {
            return Self::default();
        };
        let mut draw = Draw(seed).mix(u64::from(attempt));
        for half in step.as_bytes().chunks_exact(8) {
            draw = draw.mix(u64::from_le_bytes(half.try_into().expect("8 bytes")));
        }
        let delay = Duration::from_millis(draw.below(DELAYS));
        Self((!delay.is_zero()).then(|| Box::pin(tokio::time::sleep(delay))))
    }

    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<()> {
        if let Some(sleep) = &mut self.0 {
            ready!(sleep.as_mut().poll(&mut Context::from_waker(waker)));
            self.0 = None;
        }
        Poll::Ready(())
    }
}

/// Numbers that follow from a seed (splitmix64).
#[derive(Clone, Copy)]
pub(super) struct Draw(pub(super) u64);

impl Draw {
    /// Makes the number depend on another one as well.
    #[must_use]
    pub(super) fn mix(self, with: u64) -> Self {
        Self(scramble(self.0 ^ with.rotate_left(32)))
    }

    pub(super) fn below(self, limit: u64) -> u64 {
        self.mix(0).0 % limit.max(1)
    }
}
