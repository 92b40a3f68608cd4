//! Canonical digests of inputs: equal content gives equal digests, in every process.
//!
//! Owns the serde walk behind input digests. It differs from any serialized form in one
//! way that matters: map entries are sorted, because a `HashMap` serializes in another order
//! in every process. Type names and integer widths do not count; field and variant
//! names do. It never sees what a payload codec (encryption, compression) makes of the value.

use std::fmt;
use std::ops::Range;

use serde::ser::{self, Serialize};
use serde::{Deserialize, Serialize as DeriveSerialize};

/// How deep a value may nest. Deeper ones would overflow the stack of whoever reads them.
const MAX_DEPTH: usize = 256;

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
        digest.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
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
    let mut walk = Walk::new(SequenceOrder::Counts);
    value.serialize(&mut walk)?;
    let strict = Digest::of_bytes(&walk.out);
    let unordered = if walk.saw_sequence {
        let mut blind = Walk::new(SequenceOrder::Ignored);
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum SequenceOrder {
    Counts,
    Ignored,
}

/// One byte before every value says what it is, so that values of different shapes never
/// give the same bytes.
mod tag {
    pub(super) const NOTHING: u8 = 0;
    pub(super) const FALSE: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    pub(super) const UNSIGNED: u8 = 3;
    pub(super) const NEGATIVE: u8 = 4;
    pub(super) const FLOAT: u8 = 5;
    pub(super) const TEXT: u8 = 6;
    pub(super) const BYTES: u8 = 7;
    pub(super) const SEQUENCE: u8 = 8;
    pub(super) const MAP: u8 = 9;
}

/// Writes a value's canonical bytes.
struct Walk {
    out: Vec<u8>,
    order: SequenceOrder,
    saw_sequence: bool,
    depth: usize,
}

impl Walk {
    fn new(order: SequenceOrder) -> Self {
        Self {
            out: Vec::with_capacity(128),
            order,
            saw_sequence: false,
            depth: 0,
        }
    }

    fn unsigned(&mut self, value: u128) {
        self.out.push(tag::UNSIGNED);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn signed(&mut self, value: i128) {
        match u128::try_from(value) {
            Ok(value) => self.unsigned(value),
            Err(_) => {
                self.out.push(tag::NEGATIVE);
                self.out.extend_from_slice(&value.to_le_bytes());
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push(tag::TEXT);
        self.out
            .extend_from_slice(&(text.len() as u64).to_le_bytes());
        self.out.extend_from_slice(text.as_bytes());
    }

    fn nested<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), DigestError> {
        if self.depth == MAX_DEPTH {
            return Err(DigestError(format!("it nests deeper than {MAX_DEPTH}")));
        }
        self.depth += 1;
        let done = value.serialize(&mut *self);
        self.depth -= 1;
        done
    }

    /// `{name: value}`, the shape of an enum variant that carries something.
    fn variant(&mut self, name: &str) {
        self.out.push(tag::MAP);
        self.out.extend_from_slice(&1u64.to_le_bytes());
        self.text(name);
    }

    fn group(&mut self, order: SequenceOrder, tag: u8) -> Group<'_> {
        self.out.push(tag);
        self.out.extend_from_slice(&[0; 8]); // the count, patched when it is known
        Group {
            start: self.out.len(),
            items: Vec::new(),
            count: 0,
            order,
            open: None,
            walk: self,
        }
    }
}

/// A sequence or map being written. Where order does not count, its items are sorted by
/// their bytes at the end (a map's items begin with the key).
struct Group<'a> {
    walk: &'a mut Walk,
    start: usize,
    order: SequenceOrder,
    items: Vec<Range<usize>>,
    count: u64,
    open: Option<usize>,
}

impl Group<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), DigestError> {
        let from = self.walk.out.len();
        self.walk.nested(value)?;
        self.close(from);
        Ok(())
    }

    fn close(&mut self, from: usize) {
        self.count += 1;
        if self.order == SequenceOrder::Ignored {
            self.items.push(from..self.walk.out.len());
        }
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), DigestError> {
        let from = self.walk.out.len();
        self.walk.text(name);
        self.walk.nested(value)?;
        self.close(from);
        Ok(())
    }

    fn finish(mut self) {
        let count = self.count.to_le_bytes();
        self.walk.out[self.start - 8..self.start].copy_from_slice(&count);
        let bytes = &self.walk.out;
        if self
            .items
            .is_sorted_by(|a, b| bytes[a.clone()] <= bytes[b.clone()])
        {
            return;
        }
        self.items
            .sort_by(|a, b| bytes[a.clone()].cmp(&bytes[b.clone()]));
        let mut sorted = Vec::with_capacity(bytes.len() - self.start);
        for item in &self.items {
            sorted.extend_from_slice(&bytes[item.clone()]);
        }
        self.walk.out.truncate(self.start);
        self.walk.out.append(&mut sorted);
    }
}

impl<'a> ser::Serializer for &'a mut Walk {
    type Ok = ();
    type Error = DigestError;
    type SerializeSeq = Group<'a>;
    type SerializeTuple = Group<'a>;
    type SerializeTupleStruct = Group<'a>;
    type SerializeTupleVariant = Group<'a>;
    type SerializeMap = Group<'a>;
    type SerializeStruct = Group<'a>;
    type SerializeStructVariant = Group<'a>;

    fn is_human_readable(&self) -> bool {
        false // as the payload format, so that types with two forms show one of them
    }

    fn serialize_bool(self, v: bool) -> Result<(), DigestError> {
        self.out.push(if v { tag::TRUE } else { tag::FALSE });
        Ok(())
    }

    fn serialize_i8(self, v: i8) -> Result<(), DigestError> {
        self.serialize_i128(v.into())
    }

    fn serialize_i16(self, v: i16) -> Result<(), DigestError> {
        self.serialize_i128(v.into())
    }

    fn serialize_i32(self, v: i32) -> Result<(), DigestError> {
        self.serialize_i128(v.into())
    }

    fn serialize_i64(self, v: i64) -> Result<(), DigestError> {
        self.serialize_i128(v.into())
    }

    fn serialize_i128(self, v: i128) -> Result<(), DigestError> {
        self.signed(v);
        Ok(())
    }

    fn serialize_u8(self, v: u8) -> Result<(), DigestError> {
        self.serialize_u128(v.into())
    }

    fn serialize_u16(self, v: u16) -> Result<(), DigestError> {
        self.serialize_u128(v.into())
    }

    fn serialize_u32(self, v: u32) -> Result<(), DigestError> {
        self.serialize_u128(v.into())
    }

    fn serialize_u64(self, v: u64) -> Result<(), DigestError> {
        self.serialize_u128(v.into())
    }

    fn serialize_u128(self, v: u128) -> Result<(), DigestError> {
        self.unsigned(v);
        Ok(())
    }

    fn serialize_f32(self, v: f32) -> Result<(), DigestError> {
        self.serialize_f64(v.into())
    }

    fn serialize_f64(self, v: f64) -> Result<(), DigestError> {
        let bits = if v.is_nan() { f64::NAN } else { v }.to_bits();
        self.out.push(tag::FLOAT);
        self.out.extend_from_slice(&bits.to_le_bytes());
        Ok(())
    }

    fn serialize_char(self, v: char) -> Result<(), DigestError> {
        self.serialize_str(v.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, v: &str) -> Result<(), DigestError> {
        self.text(v);
        Ok(())
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<(), DigestError> {
        self.out.push(tag::BYTES);
        self.out.extend_from_slice(&(v.len() as u64).to_le_bytes());
        self.out.extend_from_slice(v);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), DigestError> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), DigestError> {
        self.nested(value)
    }

    fn serialize_unit(self) -> Result<(), DigestError> {
        self.out.push(tag::NOTHING);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), DigestError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), DigestError> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), DigestError> {
        self.nested(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), DigestError> {
        self.variant(variant);
        self.nested(value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Group<'a>, DigestError> {
        self.saw_sequence = true;
        let order = self.order;
        Ok(self.group(order, tag::SEQUENCE))
    }

    fn serialize_tuple(self, _: usize) -> Result<Group<'a>, DigestError> {
        Ok(self.group(SequenceOrder::Counts, tag::SEQUENCE))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Group<'a>, DigestError> {
        self.serialize_tuple(len)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Group<'a>, DigestError> {
        self.variant(variant);
        self.serialize_tuple(len)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Group<'a>, DigestError> {
        Ok(self.group(SequenceOrder::Ignored, tag::MAP))
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Group<'a>, DigestError> {
        self.serialize_map(Some(len))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Group<'a>, DigestError> {
        self.variant(variant);
        self.serialize_map(Some(len))
    }
}

impl ser::SerializeSeq for Group<'_> {
    type Ok = ();
    type Error = DigestError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), DigestError> {
        self.item(value)
    }

    fn end(self) -> Result<(), DigestError> {
        self.finish();
        Ok(())
    }
}

impl ser::SerializeMap for Group<'_> {
    type Ok = ();
    type Error = DigestError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), DigestError> {
        self.open = Some(self.walk.out.len());
        self.walk.nested(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), DigestError> {
        let from = self
            .open
            .take()
            .ok_or_else(|| DigestError("a map wrote a value without a key".into()))?;
        self.walk.nested(value)?;
        self.close(from);
        Ok(())
    }

    fn end(self) -> Result<(), DigestError> {
        self.finish();
        Ok(())
    }
}

macro_rules! tuple_like {
    ($($trait:ident :: $method:ident),*) => {$(
        impl ser::$trait for Group<'_> {
            type Ok = ();
            type Error = DigestError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), DigestError> {
                self.item(value)
            }

            fn end(self) -> Result<(), DigestError> {
                self.finish();
                Ok(())
            }
        }
    )*};
}

tuple_like!(
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

macro_rules! struct_like {
    ($($trait:ident),*) => {$(
        impl ser::$trait for Group<'_> {
            type Ok = ();
            type Error = DigestError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), DigestError> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), DigestError> {
                self.finish();
                Ok(())
            }
        }
    )*};
}

struct_like!(SerializeStruct, SerializeStructVariant);

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
