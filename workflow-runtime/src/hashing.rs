//! Hashes: BLAKE3, quick to begin, and quick for what is short.
//!
//! Owns the keys of contexts (BLAKE3's derive-key mode), each computed once, and the choice of who hashes: short inputs are
//! hashed in [`short`], all others by the crate. What is hashed in which context is decided where the context is named; it
//! never changes.

mod short;

use std::sync::OnceLock;

use blake3::Hasher;
use blake3::hazmat::{ContextKey, HasherExt as _, hash_derive_key_context};

pub(crate) use self::short::{Begun, LANES};
use self::short::{CHUNK_LEN, Mode};

/// Says whether so many bytes are hashed here. Without the compiler's optimization a block takes 2 µs here, and in the crate
/// 0.1, whose work is done in assembler.
fn is_short(len: usize) -> bool {
    len <= CHUNK_LEN && cfg!(not(debug_assertions))
}

/// Hashes bytes in no context.
pub(crate) fn hash(bytes: &[u8]) -> [u8; 32] {
    match is_short(bytes.len()) {
        true => short::hash(Mode::Plain, bytes),
        false => *blake3::hash(bytes).as_bytes(),
    }
}

/// Hashes bytes under a secret key.
pub(crate) fn keyed_hash(key: &[u8; 32], bytes: &[u8]) -> [u8; 32] {
    match is_short(bytes.len()) {
        true => short::hash(Mode::Keyed(key), bytes),
        false => *blake3::keyed_hash(key, bytes).as_bytes(),
    }
}

/// A context of BLAKE3's derive-key mode.
///
/// A hash in it is what [`Hasher::new_derive_key`] of its text gives. That computes the context's key
/// anew; a copy of a hasher that has it copies 2 KB, which is more than most hashes here are about.
pub(crate) struct HashContext {
    text: &'static str,
    key: OnceLock<ContextKey>,
}

impl HashContext {
    /// Names a context.
    pub(crate) const fn new(text: &'static str) -> Self {
        Self {
            text,
            key: OnceLock::new(),
        }
    }

    fn key(&self) -> &ContextKey {
        self.key.get_or_init(|| hash_derive_key_context(self.text))
    }

    /// Hashes bytes in it.
    pub(crate) fn hash(&self, bytes: &[u8]) -> [u8; 32] {
        match is_short(bytes.len()) {
            true => short::hash(Mode::Derived(self.key()), bytes),
            false => *self.hasher().update(bytes).finalize().as_bytes(),
        }
    }

    /// Begins hashes in it that differ in a number at their end only.
    ///
    /// # Panics
    ///
    /// If it is too much for that: with the number more than a chunk.
    pub(crate) fn begin(&self, bytes: &[u8]) -> Begun {
        assert!(bytes.len() + 8 <= CHUNK_LEN, "longer inputs are a tree");
        Begun::with(Mode::Derived(self.key()), bytes)
    }

    /// Begins a hash in it, of bytes that come one after the other.
    pub(crate) fn hasher(&self) -> Hasher {
        Hasher::new_from_context_key(self.key())
    }
}

/// Spreads a number over 64 bits (the finalizer of splitmix64), so that 0, 1, 2 have nothing in common. Counts on disk are
/// made with it: it never changes.
pub(crate) fn scramble(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_in_a_context_is_that_of_derive_key_mode() {
        const TEXT: &str = "workflow-runtime 2026-11 a test";
        static CONTEXT: HashContext = HashContext::new(TEXT);
        for len in [0, 1, 64, 1_024, 1_025, 10_000] {
            let input = vec![3; len];
            let expected = blake3::derive_key(TEXT, &input);
            let found = CONTEXT.hasher().update(&input).finalize();
            assert_eq!(found.as_bytes(), &expected, "{len} bytes");
            assert_eq!(CONTEXT.hash(&input), expected, "{len} bytes at once");
        }
    }

    #[test]
    fn whoever_hashes_the_hash_is_the_same() {
        let key = [9; 32];
        for len in [0, 1, 64, 1_023, 1_024, 1_025, 10_000] {
            let input = vec![3; len];
            assert_eq!(hash(&input), *blake3::hash(&input).as_bytes());
            let keyed = blake3::keyed_hash(&key, &input);
            assert_eq!(keyed_hash(&key, &input), *keyed.as_bytes());
        }
    }
}
