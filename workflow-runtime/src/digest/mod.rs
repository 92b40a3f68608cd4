//! Canonical digests of inputs: equal content gives equal digests, in every process.
//!
//! Owns the serde walk behind input digests. It differs from any serialized form in one
//! way that matters: map entries are sorted, because a `HashMap` serializes in another order
//! in every process. Type names and integer widths do not count; field and variant
//! names do. It never sees what a payload codec (encryption, compression) makes of the value.

mod walk;

use std::cell::Cell;
use std::fmt;

use serde::ser::{self, Serialize};
use serde::{Deserialize, Serialize as DeriveSerialize};

use self::walk::{SequenceOrder, Walk};
use crate::hashing;

/// The most room a thread keeps for the next digest.
const KEPT_ROOM: usize = 16 * 1024;

/// A 128-bit digest of content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, DeriveSerialize, Deserialize)]
pub struct Digest([u8; 16]);

impl Digest {
    /// Rebuilds a digest from its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the digest's bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let mut digest = [0; 16];
        digest.copy_from_slice(&hashing::hash(bytes)[..16]);
        Self(digest)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The digest of one input, and the same blind to the order of sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, DeriveSerialize, Deserialize)]
pub(crate) struct InputDigest {
    /// What replay compares.
    pub(crate) strict: Digest,
    /// Present only where the input holds a sequence. If this one agrees and the strict one
    /// does not, a `HashSet` (or a reordered list) is in the input.
    pub(crate) unordered: Option<Digest>,
}

/// Computes the digest of a value.
///
/// # Errors
///
/// Says why the value's own `Serialize` failed, or that it nests too deep.
pub(crate) fn digest<T: Serialize + ?Sized>(value: &T) -> Result<InputDigest, DigestError> {
    digest_of_at_most(value, usize::MAX)
}

/// The most canonical bytes that one byte of a payload can stand for: a small number is 1 there and 17 here.
const BYTES_PER_PAYLOAD_BYTE: usize = 20;

/// Computes the digest of a value that has no use if its payload is larger than this: it costs no more memory then
/// than one that just fits.
///
/// # Errors
///
/// Those of [`digest`], or that the value is too large.
pub(crate) fn digest_within<T: Serialize + ?Sized>(
    value: &T,
    payload_bytes: usize,
) -> Result<InputDigest, DigestError> {
    digest_of_at_most(value, payload_bytes.saturating_mul(BYTES_PER_PAYLOAD_BYTE))
}

fn digest_of_at_most<T: Serialize + ?Sized>(
    value: &T,
    limit: usize,
) -> Result<InputDigest, DigestError> {
    thread_local! {
        /// Room for the walk: every step has an input to be digested.
        static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut walk = Walk::new(SequenceOrder::Counts, ROOM.take(), limit);
    value.serialize(&mut walk)?;
    let strict = Digest::of_bytes(&walk.out);
    let saw_sequence = walk.saw_sequence;
    if walk.out.capacity() <= KEPT_ROOM {
        ROOM.set(walk.out);
    }
    let unordered = if saw_sequence {
        let mut blind = Walk::new(SequenceOrder::Ignored, Vec::new(), limit);
        value.serialize(&mut blind)?;
        Some(Digest::of_bytes(&blind.out))
    } else {
        None
    };
    Ok(InputDigest { strict, unordered })
}

/// Says why a value has no digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DigestError(String);

impl fmt::Display for DigestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DigestError {}

impl ser::Error for DigestError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap, HashSet};

    use super::*;

    fn strict<T: Serialize>(value: T) -> Digest {
        digest(&value).expect("it has a digest").strict
    }

    #[test]
    fn the_order_of_map_entries_does_not_count() {
        let entries: Vec<(String, u32)> = (0..50).map(|n| (format!("k{n}"), n)).collect();
        let forward: HashMap<_, _> = entries.iter().cloned().collect();
        let backward: HashMap<_, _> = entries.iter().rev().cloned().collect();
        let sorted: BTreeMap<_, _> = entries.into_iter().collect();
        assert_eq!(strict(&forward), strict(&backward));
        assert_eq!(strict(&forward), strict(&sorted));
    }

    #[test]
    fn the_order_of_a_sequence_counts_but_the_unordered_digest_is_blind_to_it() {
        let one = digest(&vec![1, 2, 3]).expect("digest");
        let two = digest(&vec![3, 1, 2]).expect("digest");
        assert_ne!(one.strict, two.strict);
        assert_eq!(one.unordered, two.unordered);
        assert!(one.unordered.is_some());
        let set: HashSet<u32> = (0..100).collect();
        let again: HashSet<u32> = (0..100).rev().collect();
        assert_eq!(
            digest(&set).expect("digest").unordered,
            digest(&again).expect("digest").unordered
        );
        assert_eq!(digest(&(1, "a")).expect("digest").unordered, None);
    }

    #[test]
    fn what_is_larger_than_its_payload_may_be_is_refused_and_what_just_fits_is_not() {
        let (limit, small) = (1_000, vec![7_u8; 990]);
        assert_eq!(digest_within(&small, limit), digest(&small));
        for text in ["x".repeat(20_001), "x".repeat(1_000_000)] {
            assert!(digest_within(&text, limit).is_err());
        }
        assert!(digest_within(&vec![7_u8; 2_000], limit).is_err());
        let bytes = serde_bytes(&[0; 20_001]);
        assert!(digest_within(&bytes, limit).is_err());
    }

    #[test]
    fn values_of_different_shapes_never_agree() {
        let shapes = [
            strict(0u8),
            strict(-1i8),
            strict(0.0f64),
            strict(-0.0f64),
            strict("0"),
            strict(false),
            strict(()),
            strict((0u8,)),
            strict(serde_bytes(&[0])),
            strict(BTreeMap::from([(0u8, 0u8)])),
            strict(vec!["ab", "c"]),
            strict(vec!["a", "bc"]),
        ];
        let distinct: HashSet<_> = shapes.iter().collect();
        assert_eq!(distinct.len(), shapes.len());
    }

    fn serde_bytes(bytes: &'static [u8]) -> impl Serialize {
        struct Raw(&'static [u8]);
        impl Serialize for Raw {
            fn serialize<S: ser::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_bytes(self.0)
            }
        }
        Raw(bytes)
    }

    #[test]
    fn type_names_and_widths_do_not_count_but_field_names_do() {
        #[derive(DeriveSerialize)]
        struct Old {
            cents: u32,
            to: &'static str,
        }
        #[derive(DeriveSerialize)]
        struct New {
            to: String,
            cents: u64,
        }
        #[derive(DeriveSerialize)]
        struct Renamed {
            amount: u64,
            to: String,
        }
        let old = strict(Old { cents: 5, to: "a" });
        let to = || "a".to_owned();
        assert_eq!(old, strict(New { cents: 5, to: to() }));
        assert_ne!(
            old,
            strict(Renamed {
                amount: 5,
                to: to()
            })
        );
        assert_eq!(strict(f64::NAN), strict(-f64::NAN));
        assert_eq!(strict(1.5f32), strict(1.5f64));
    }

    #[test]
    fn a_value_that_nests_too_deep_is_an_error_not_an_overflow() {
        struct Deep(usize);
        impl Serialize for Deep {
            fn serialize<S: ser::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                use ser::SerializeSeq as _;
                let mut seq = s.serialize_seq(Some(1))?;
                if self.0 > 0 {
                    seq.serialize_element(&Deep(self.0 - 1))?;
                }
                seq.end()
            }
        }
        assert!(digest(&Deep(100)).is_ok());
        let error = digest(&Deep(10_000)).expect_err("too deep");
        assert!(error.to_string().contains("nests deeper"), "{error}");
    }
}
