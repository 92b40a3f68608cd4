//! Maps keyed by ids: an id is a hash already, so hashing it again is waste.
//!
//! Owns one hasher that takes an id's last eight bytes as they are. They are uniform in derived
//! ids and random in time-ordered ones. Never used for keys that somebody else chooses.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map from ids.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A set of ids.
pub(crate) type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

/// Takes an id's own bits.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk::<8>() {
            self.0 = u64::from_le_bytes(*last);
        }
    }

    /// An array announces its length first; every id has the same.
    fn write_usize(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, BuildHasherDefault};

    use super::*;
    use crate::ids::{RunId, StepId};

    #[test]
    fn ids_that_differ_rarely_share_a_hash() {
        let build = BuildHasherDefault::<IdHasher>::default();
        let runs: HashSet<u64> = (0..1000).map(|_| build.hash_one(RunId::random())).collect();
        assert_eq!(runs.len(), 1000);
        let step = StepId::from_bytes([1; 16]);
        let steps: HashSet<u64> = (0..1000)
            .map(|n| build.hash_one(step.for_effect(&n.to_string())))
            .collect();
        assert_eq!(steps.len(), 1000);
    }
}
