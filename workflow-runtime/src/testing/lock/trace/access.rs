//! The insides of made-up values: elements, entries, fields, variants, one after the other.

use std::collections::VecDeque;

use serde::de::{
    DeserializeSeed, Deserializer as _, EnumAccess, IntoDeserializer as _, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::Kind;
use super::reading::{Reading, Stop};

/// The parts of a list or a tuple.
pub(super) struct Parts<'a> {
    pub(super) of: Reading<'a>,
    pub(super) left: usize,
    /// The place in a tuple.
    pub(super) at: Option<usize>,
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Stop;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Stop> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let step = match &mut self.at {
            None => "[]".to_owned(),
            Some(at) => {
                *at += 1;
                format!(".{}", *at - 1)
            }
        };
        self.of.part(&step, seed).map(Some)
    }
}

/// The entries of a map, or the fields of a struct.
pub(super) struct Pairs<'a, 'b> {
    pub(super) of: Reading<'a>,
    pub(super) left: VecDeque<(&'static str, bool)>,
    /// The field that was offered last.
    pub(super) last: Option<&'b mut Option<&'static str>>,
    pub(super) is_struct: bool,
}

impl<'a> Pairs<'a, '_> {
    pub(super) fn none(of: Reading<'a>) -> Self {
        Self {
            of,
            left: VecDeque::new(),
            last: None,
            is_struct: false,
        }
    }
}

impl<'de> MapAccess<'de> for Pairs<'_, '_> {
    type Error = Stop;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Stop> {
        let Some((name, _)) = self.left.front().copied() else {
            return Ok(None);
        };
        if !self.is_struct {
            return self.of.part("<key>", seed).map(Some);
        }
        if let Some(last) = &mut self.last {
            **last = Some(name);
        }
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stop> {
        let (name, is_field) = self.left.pop_front().ok_or(Stop::Other)?;
        match (self.is_struct, is_field) {
            (false, _) => self.of.part("<value>", seed),
            (true, true) => self.of.part(&format!(".{name}"), seed),
            // Nothing is noted of what is passed over.
            (true, false) => seed.deserialize(().into_deserializer()),
        }
    }
}

/// One variant of an enum.
pub(super) struct Variant<'a> {
    pub(super) of: Reading<'a>,
    pub(super) variant: &'static str,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Stop;
    type Variant = Reading<'a>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Reading<'a>), Stop> {
        let value = seed.deserialize(self.variant.into_deserializer())?;
        Ok((value, self.of))
    }
}

impl<'de> VariantAccess<'de> for Reading<'_> {
    type Error = Stop;

    fn unit_variant(mut self) -> Result<(), Stop> {
        self.note(Kind::Plain("unit"));
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<S::Value, Stop> {
        self.note(Kind::Newtype);
        self.part(".0", seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        mut self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        if self.note(Kind::Struct("", fields)) {
            self.ask_about(fields);
        }
        self.read_fields(fields, visitor)
    }
}
