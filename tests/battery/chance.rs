//! Chance that follows from a seed.
//!
//! Owns the only source of randomness in the battery: the same seed makes the same decisions, in any build.

/// A stream of numbers (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Begins the stream of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws a number.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0, 0)
    }

    /// Draws a number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    /// Says yes once in `n` times.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Draws one of several.
    pub(crate) fn one_of<T: Copy>(&mut self, several: &[T]) -> T {
        several[usize::try_from(self.below(several.len() as u64)).expect("an index")]
    }

    /// Begins a stream of its own, so that decisions of one kind do not move those of another.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.draw())
    }
}

/// Mixes two numbers into a third that shows neither.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
