//! Hashes in a context of their own: BLAKE3's derive-key mode, quick to begin.
//!
//! Owns the keys of contexts, each computed once. What is hashed in which context is decided where the
//! context is named; it never changes.

use std::sync::OnceLock;

use blake3::Hasher;
use blake3::hazmat::{ContextKey, HasherExt as _, hash_derive_key_context};

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

    /// Begins a hash in it.
    pub(crate) fn hasher(&self) -> Hasher {
        let key = self.key.get_or_init(|| hash_derive_key_context(self.text));
        Hasher::new_from_context_key(key)
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
        }
    }
}
