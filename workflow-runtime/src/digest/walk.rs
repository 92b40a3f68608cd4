//! The serde walk that writes a value's canonical bytes.
//!
//! Owns the byte form behind digests: one tag byte per value, lengths in front, entries of maps
//! sorted. The bytes are hashed and thrown away; nobody ever reads them back.

use std::ops::Range;

use serde::ser::{self, Serialize};

use super::DigestError;

/// How deep a value may nest. Deeper ones would overflow the stack of whoever reads them.
const MAX_DEPTH: usize = 256;

/// Whether the order of sequences counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SequenceOrder {
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
pub(super) struct Walk {
    pub(super) out: Vec<u8>,
    order: SequenceOrder,
    pub(super) saw_sequence: bool,
    depth: usize,
    /// How many bytes there may be.
    limit: usize,
}

impl Walk {
    /// Begins a walk that writes to `out`, whatever was in it before.
    pub(super) fn new(order: SequenceOrder, mut out: Vec<u8>, limit: usize) -> Self {
        out.clear();
        Self {
            out,
            order,
            saw_sequence: false,
            depth: 0,
            limit,
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

    /// Refuses so many more bytes if that is too many.
    fn room_for(&self, more: usize) -> Result<(), DigestError> {
        match self.out.len().saturating_add(more) > self.limit {
            true => Err(DigestError("it is too large".to_owned())),
            false => Ok(()),
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
        self.room_for(0)?;
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
pub(super) struct Group<'a> {
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
        self.room_for(v.len())?;
        self.text(v);
        Ok(())
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<(), DigestError> {
        self.room_for(v.len())?;
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
