//! A record's fields as JSON: the writing half.
//!
//! Owns how each type of field looks in a file: ids and digests as text, times as RFC 3339, payloads as values,
//! an option that is empty as no entry at all. It follows serde's description of the record kinds, which is also
//! what their bytes follow, so that a kind cannot be in journals and not in files.

use std::fmt;

use serde::ser::{self, Serialize};

use super::json::Json;
use super::value::{self, Place};
use crate::digest::Digest;
use crate::ids::{RunId, StepId};

/// Where something was taken out of a record.
pub(super) type Marks = [MarkedPayload];

/// The number of a payload in its record, and the places in it where something was taken out.
pub(super) type MarkedPayload = (u32, Vec<Place>);

/// Says why fields could not be written or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldError(pub(super) String);

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FieldError {}

impl ser::Error for FieldError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl serde::de::Error for FieldError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Writes a record's fields.
pub(super) fn to_json<T: Serialize>(
    fields: &T,
    marks: &Marks,
) -> Result<Json<'static>, FieldError> {
    fields.serialize(&mut Writer { marks, payloads: 0 })
}

/// The name of an enum's variant in a file.
pub(super) fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    for char in name.chars() {
        if char.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(char.to_lowercase());
    }
    out
}

/// What an empty option says instead of a value: its field has no entry.
const ABSENT: &str = "an empty option has no entry";

struct Writer<'m> {
    marks: &'m Marks,
    /// Payloads that were written.
    payloads: u32,
}

type Written = Result<Json<'static>, FieldError>;

fn no(what: &str) -> Written {
    Err(FieldError(format!("records have no {what}")))
}

impl<'a, 'm> ser::Serializer for &'a mut Writer<'m> {
    type Ok = Json<'static>;
    type Error = FieldError;
    type SerializeSeq = List<'a, 'm>;
    type SerializeTuple = List<'a, 'm>;
    type SerializeTupleStruct = List<'a, 'm>;
    type SerializeTupleVariant = ser::Impossible<Json<'static>, FieldError>;
    type SerializeMap = ser::Impossible<Json<'static>, FieldError>;
    type SerializeStruct = Object<'a, 'm>;
    type SerializeStructVariant = ser::Impossible<Json<'static>, FieldError>;

    fn serialize_bool(self, value: bool) -> Written {
        Ok(Json::Bool(value))
    }

    fn serialize_i8(self, value: i8) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Written {
        Ok(u64::try_from(value).map_or(Json::Int(value), Json::UInt))
    }

    fn serialize_u8(self, value: u8) -> Written {
        Ok(Json::UInt(value.into()))
    }

    fn serialize_u16(self, value: u16) -> Written {
        Ok(Json::UInt(value.into()))
    }

    fn serialize_u32(self, value: u32) -> Written {
        Ok(Json::UInt(value.into()))
    }

    fn serialize_u64(self, value: u64) -> Written {
        Ok(Json::UInt(value))
    }

    fn serialize_f32(self, _: f32) -> Written {
        no("fractions")
    }

    fn serialize_f64(self, _: f64) -> Written {
        no("fractions")
    }

    fn serialize_char(self, value: char) -> Written {
        Ok(Json::text(value.to_string()))
    }

    fn serialize_str(self, value: &str) -> Written {
        Ok(Json::text(value.to_owned()))
    }

    /// Bytes of any length are a payload.
    fn serialize_bytes(self, payload: &[u8]) -> Written {
        let number = self.payloads;
        self.payloads += 1;
        let mut marks = self.marks.iter();
        let marks = marks.find(|(marked, _)| *marked == number);
        Ok(value::to_json(
            payload,
            marks.map_or(&[], |(_, places)| places),
        ))
    }

    fn serialize_none(self) -> Written {
        Err(FieldError(ABSENT.to_owned()))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        Ok(Json::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Written {
        Ok(Json::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Written {
        Ok(Json::text(snake(variant)))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Written {
        let json = value.serialize(self)?;
        Ok(match name {
            "RunId" => Json::text(RunId::from_bytes(sixteen(&json)?).to_string()),
            "StepId" => Json::text(StepId::from_bytes(sixteen(&json)?).to_string()),
            "Digest" => Json::text(Digest::from_bytes(sixteen(&json)?).to_string()),
            "Timestamp" => match json {
                Json::UInt(micros) => time_to_json(micros),
                other => other,
            },
            _ => json,
        })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        let json = value.serialize(self)?;
        Ok(Json::Object(vec![(snake(variant).into(), json)]))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<List<'a, 'm>, FieldError> {
        Ok(List {
            writer: self,
            list: Vec::with_capacity(len.unwrap_or_default()),
        })
    }

    fn serialize_tuple(self, len: usize) -> Result<List<'a, 'm>, FieldError> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        len: usize,
    ) -> Result<List<'a, 'm>, FieldError> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, FieldError> {
        Err(no("variants with several fields").unwrap_err())
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, FieldError> {
        Err(no("maps").unwrap_err())
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Object<'a, 'm>, FieldError> {
        Ok(Object {
            writer: self,
            entries: Vec::with_capacity(len),
        })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, FieldError> {
        Err(no("variants with named fields").unwrap_err())
    }
}

/// A time as text, to the microsecond; as a number, if it is in no calendar.
pub(super) fn time_to_json(micros: u64) -> Json<'static> {
    let in_calendar = i64::try_from(micros)
        .ok()
        .and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    match in_calendar {
        Some(time) => Json::text(format!("{time:.6}")),
        None => Json::UInt(micros),
    }
}

fn sixteen(json: &Json<'_>) -> Result<[u8; 16], FieldError> {
    let bytes: Option<Vec<u8>> = match json {
        Json::List(list) => list
            .iter()
            .map(|json| match json {
                Json::UInt(byte) => u8::try_from(*byte).ok(),
                _ => None,
            })
            .collect(),
        _ => None,
    };
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| FieldError("an id or digest is 16 bytes".to_owned()))
}

struct List<'a, 'm> {
    writer: &'a mut Writer<'m>,
    list: Vec<Json<'static>>,
}

impl ser::SerializeSeq for List<'_, '_> {
    type Ok = Json<'static>;
    type Error = FieldError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), FieldError> {
        self.list.push(value.serialize(&mut *self.writer)?);
        Ok(())
    }

    fn end(self) -> Written {
        Ok(Json::List(self.list))
    }
}

impl ser::SerializeTuple for List<'_, '_> {
    type Ok = Json<'static>;
    type Error = FieldError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), FieldError> {
        ser::SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Written {
        ser::SerializeSeq::end(self)
    }
}

impl ser::SerializeTupleStruct for List<'_, '_> {
    type Ok = Json<'static>;
    type Error = FieldError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), FieldError> {
        ser::SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Written {
        ser::SerializeSeq::end(self)
    }
}

struct Object<'a, 'm> {
    writer: &'a mut Writer<'m>,
    entries: Vec<(std::borrow::Cow<'static, str>, Json<'static>)>,
}

impl ser::SerializeStruct for Object<'_, '_> {
    type Ok = Json<'static>;
    type Error = FieldError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), FieldError> {
        match value.serialize(&mut *self.writer) {
            Ok(json) => self.entries.push((name.into(), json)),
            Err(FieldError(problem)) if problem == ABSENT => {} // a payload may be null itself
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn end(self) -> Written {
        Ok(Json::Object(self.entries))
    }
}
