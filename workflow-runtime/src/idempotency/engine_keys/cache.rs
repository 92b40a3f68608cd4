//! Outcomes that were used lately, so that a repetition needs no look at the store.
//!
//! Owns how much of them is in memory. Never the only place where something is known.

use std::collections::HashMap;

use super::super::{Done, KeyId};
use crate::clock::Timestamp;
use crate::digest::Digest;

/// How many bytes of outcomes are in memory at most, what it takes to know them included.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// What an entry takes beside its outcome: key, times, digest, and its place in a map.
const OVERHEAD: usize = 160;

/// An outcome and what it was for.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) body: Digest,
    /// When its key was taken.
    pub(super) since: Timestamp,
    pub(super) done: Done,
}

/// Two halves: what is used moves to the young one; when that is full, the old one is forgotten and the
/// young one is the old one.
#[derive(Default)]
pub(super) struct Cache {
    young: HashMap<KeyId, Known>,
    old: HashMap<KeyId, Known>,
    young_bytes: usize,
}

impl Cache {
    /// Finds an outcome whose time is not over.
    pub(super) fn get(&mut self, key: &KeyId, now: Timestamp) -> Option<&Known> {
        if let Some(known) = self.old.remove(key) {
            self.insert(*key, known);
        }
        if self.young.get(key)?.done.expires_at <= now {
            self.remove(key);
        }
        self.young.get(key)
    }

    pub(super) fn insert(&mut self, key: KeyId, known: Known) {
        let weight = weight(&known);
        if weight > MAX_BYTES / 4 {
            return; // it would push too many others out
        }
        if self.young_bytes + weight > MAX_BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += weight;
        if let Some(before) = self.young.insert(key, known) {
            self.young_bytes -= self::weight(&before);
        }
    }

    pub(super) fn remove(&mut self, key: &KeyId) {
        self.old.remove(key);
        if let Some(known) = self.young.remove(key) {
            self.young_bytes -= weight(&known);
        }
    }
}

fn weight(known: &Known) -> usize {
    OVERHEAD + known.done.outcome.len()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::key::Key;

    fn key(n: usize) -> KeyId {
        KeyId::derive("once", "", &Key::from(n))
    }

    fn known(bytes: usize, expires_at: u64) -> Known {
        Known {
            body: Digest::from_bytes([0; 16]),
            since: Timestamp::default(),
            done: Done {
                outcome: Bytes::from(vec![7; bytes]),
                completed_at: Timestamp::default(),
                expires_at: Timestamp::from_micros(expires_at),
            },
        }
    }

    #[test]
    fn what_is_used_stays_and_the_memory_is_bounded() {
        let mut cache = Cache::default();
        let now = Timestamp::from_micros(1);
        let size = 64 * 1024;
        for n in 0..2_000 {
            cache.insert(key(n), known(size, 9));
            assert!(
                cache.get(&key(0), now).is_some(),
                "used all the time, at {n}"
            );
            let entries = cache.young.len() + cache.old.len();
            assert!(entries * size <= MAX_BYTES, "{entries}");
        }
        assert!(cache.get(&key(1), now).is_none());
        assert!(cache.get(&key(1_999), now).is_some());
        cache.insert(key(3_000), known(MAX_BYTES / 2, 9));
        assert!(cache.get(&key(3_000), now).is_none(), "too large");
    }

    #[test]
    fn a_half_takes_all_that_fits_before_the_other_one_is_forgotten() {
        let mut cache = Cache::default();
        let quarter = MAX_BYTES / 4 - OVERHEAD;
        cache.insert(key(0), known(quarter + 1, 9));
        assert!(cache.young.is_empty(), "more than a quarter is too large");
        for n in 1..=2 {
            cache.insert(key(n), known(quarter, 9));
        }
        assert_eq!((cache.young.len(), cache.old.len()), (2, 0));
        cache.insert(key(3), known(0, 9));
        assert_eq!((cache.young.len(), cache.old.len()), (1, 2));
        assert_eq!(cache.young_bytes, OVERHEAD);
    }

    #[test]
    fn what_expired_is_not_found() {
        let mut cache = Cache::default();
        cache.insert(key(1), known(10, 5));
        assert!(cache.get(&key(1), Timestamp::from_micros(4)).is_some());
        assert!(cache.get(&key(1), Timestamp::from_micros(5)).is_none());
        assert_eq!(cache.young_bytes, 0);
        cache.insert(key(1), known(10, 5));
        cache.insert(key(1), known(20, 5));
        cache.remove(&key(1));
        assert_eq!(cache.young_bytes, 0);
    }
}
