//! A record's fields from JSON: the reading half of `to_fields`.
//!
//! Owns what is refused: an entry that the kind does not have, one that is missing or of another type. Fields are
//! read in the order of the record, whatever their order in the text. It never guesses.

use std::str::FromStr;

use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer as _, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

use super::json::Json;
use super::to_fields::{FieldError, MarkedPayload, snake};
use super::value;
use crate::ids::{RunId, StepId};

/// Reads a record's fields, and where something was taken out of which of its payloads.
pub(super) fn from_json<T: DeserializeOwned>(
    json: Json<'_>,
) -> Result<(T, Vec<MarkedPayload>), FieldError> {
    let mut state = State::default();
    let fields = T::deserialize(Reader {
        json,
        state: &mut state,
    })?;
    Ok((fields, state.marks))
}

#[derive(Default)]
struct State {
    payloads: u32,
    marks: Vec<MarkedPayload>,
}

struct Reader<'j, 's> {
    json: Json<'j>,
    state: &'s mut State,
}

impl Reader<'_, '_> {
    fn wrong<T>(&self, wanted: &str) -> Result<T, FieldError> {
        let found = self.json.kind();
        Err(FieldError(format!("{wanted} is expected, not {found}")))
    }

    fn sixteen<I: FromStr>(
        &self,
        wanted: &str,
        bytes: fn(&I) -> [u8; 16],
    ) -> Result<[u8; 16], FieldError>
    where
        I::Err: std::fmt::Display,
    {
        match &self.json {
            Json::Text(text) => match text.parse() {
                Ok(id) => Ok(bytes(&id)),
                Err(problem) => Err(FieldError(problem.to_string())),
            },
            _ => self.wrong(wanted),
        }
    }
}

/// Reads a time.
pub(super) fn time_from_json(json: &Json<'_>) -> Result<u64, FieldError> {
    let read = match json {
        Json::UInt(micros) => Some(*micros),
        Json::Text(text) => text
            .parse::<jiff::Timestamp>()
            .ok()
            .and_then(|time| u64::try_from(time.as_microsecond()).ok()),
        _ => None,
    };
    read.ok_or_else(|| {
        FieldError("a time is expected, as `2030-01-01T00:00:00.000000Z`".to_owned())
    })
}

macro_rules! refuse {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, FieldError> {
            Err(FieldError("records have no such field".to_owned()))
        }
    )*};
}

macro_rules! numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
            match self.json {
                Json::UInt(number) => visitor.visit_u64(number),
                Json::Int(number) => visitor.visit_i64(number),
                _ => self.wrong("an integer"),
            }
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Reader<'_, '_> {
    type Error = FieldError;

    refuse! { deserialize_any deserialize_f32 deserialize_f64 deserialize_map deserialize_ignored_any }
    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.json {
            Json::Bool(value) => visitor.visit_bool(value),
            _ => self.wrong("a truth value"),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.json {
            Json::Text(text) => visitor.visit_string(text.into_owned()),
            _ => self.wrong("a text"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        self.deserialize_byte_buf(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        let number = self.state.payloads;
        self.state.payloads += 1;
        let (payload, redacted) = value::from_json(&self.json).map_err(FieldError)?;
        if !redacted.is_empty() {
            self.state.marks.push((number, redacted));
        }
        visitor.visit_byte_buf(payload)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        visitor.visit_some(self) // an empty one has no entry
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.json {
            Json::Null => visitor.visit_unit(),
            _ => self.wrong("null"),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        let bytes = match name {
            "RunId" => self.sixteen("the id of a run", |id: &RunId| *id.as_bytes())?,
            "StepId" => self.sixteen("the id of a step", |id: &StepId| *id.as_bytes())?,
            "Digest" => digest(&self.json)?,
            "Timestamp" => {
                let micros = time_from_json(&self.json)?;
                return visitor.visit_newtype_struct(micros.into_deserializer());
            }
            _ => return visitor.visit_newtype_struct(self),
        };
        visitor.visit_newtype_struct(Sixteen(bytes))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.json {
            Json::List(list) => visitor.visit_seq(List {
                list: list.into_iter(),
                state: self.state,
            }),
            _ => self.wrong("a list"),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        match &self.json {
            Json::List(list) if list.len() == len => self.deserialize_seq(visitor),
            _ => self.wrong(&format!("a list of {len}")),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        let Json::Object(entries) = self.json else {
            return self.wrong("an object");
        };
        let mut slots: Vec<Option<Json<'_>>> = fields.iter().map(|_| None).collect();
        for (name, json) in entries {
            let Some(at) = fields.iter().position(|field| *field == name) else {
                let (name, known) = (shortened(&name), fields.join("`, `"));
                return Err(FieldError(format!(
                    "there is no field `{name}` here, but `{known}`"
                )));
            };
            if slots[at].replace(json).is_some() {
                return Err(FieldError(format!("field `{name}` is there twice")));
            }
        }
        visitor.visit_map(Object {
            fields: fields.iter().zip(slots),
            value: None,
            state: self.state,
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        let (name, json) = match self.json {
            Json::Text(name) => (name, Json::Null),
            Json::Object(mut entries) if entries.len() == 1 => entries.remove(0),
            _ => return self.wrong("an object with one entry"),
        };
        let variant = variants.iter().find(|variant| snake(variant) == name);
        let Some(variant) = variant else {
            let known: Vec<_> = variants.iter().map(|variant| snake(variant)).collect();
            let (name, known) = (shortened(&name), known.join("`, `"));
            return Err(FieldError(format!("`{name}` is none of `{known}`")));
        };
        let reader = Reader {
            json,
            state: self.state,
        };
        visitor.visit_enum(Variant { variant, reader })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        self.deserialize_str(visitor)
    }
}

/// A name that somebody else wrote, for a message.
fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}

fn digest(json: &Json<'_>) -> Result<[u8; 16], FieldError> {
    let bytes = match json {
        Json::Text(text) => value::unhex(text).and_then(|bytes| bytes.try_into().ok()),
        _ => None,
    };
    bytes.ok_or_else(|| FieldError("a digest is 32 hexadecimal digits".to_owned()))
}

/// The bytes inside an id.
struct Sixteen([u8; 16]);

impl<'de> de::Deserializer<'de> for Sixteen {
    type Error = FieldError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        visitor.visit_seq(SeqDeserializer::new(self.0.into_iter()))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct List<'j, 's> {
    list: std::vec::IntoIter<Json<'j>>,
    state: &'s mut State,
}

impl<'de> SeqAccess<'de> for List<'_, '_> {
    type Error = FieldError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, FieldError> {
        let Some(json) = self.list.next() else {
            return Ok(None);
        };
        let state = &mut *self.state;
        seed.deserialize(Reader { json, state }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.list.len())
    }
}

type Slots<'j> =
    std::iter::Zip<std::slice::Iter<'static, &'static str>, std::vec::IntoIter<Option<Json<'j>>>>;

struct Object<'j, 's> {
    fields: Slots<'j>,
    value: Option<(&'static str, Json<'j>)>,
    state: &'s mut State,
}

impl<'de> MapAccess<'de> for Object<'_, '_> {
    type Error = FieldError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, FieldError> {
        let next = self
            .fields
            .find_map(|(name, json)| json.map(|json| (*name, json)));
        let Some((name, json)) = next else {
            return Ok(None);
        };
        self.value = Some((name, json));
        let name: StrDeserializer<'_, FieldError> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, FieldError> {
        let (name, json) = self.value.take().expect("a name was asked for before");
        let state = &mut *self.state;
        let read = seed.deserialize(Reader { json, state });
        read.map_err(|FieldError(problem)| FieldError(format!("{name}: {problem}")))
    }
}

struct Variant<'j, 's> {
    variant: &'static str,
    reader: Reader<'j, 's>,
}

impl<'de, 'j, 's> EnumAccess<'de> for Variant<'j, 's> {
    type Error = FieldError;
    type Variant = Reader<'j, 's>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Reader<'j, 's>), FieldError> {
        let name: StrDeserializer<'_, FieldError> = self.variant.into_deserializer();
        Ok((seed.deserialize(name)?, self.reader))
    }
}

impl<'de> VariantAccess<'de> for Reader<'_, '_> {
    type Error = FieldError;

    fn unit_variant(self) -> Result<(), FieldError> {
        match self.json {
            Json::Null => Ok(()),
            _ => self.wrong("a name alone"),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, FieldError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, FieldError> {
        self.wrong("one value")
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, FieldError> {
        self.wrong("one value")
    }
}
