//! One reading of a type: a `Deserializer` that makes values up and notes what it is asked for.
//!
//! It notes kinds, names, fields and variants, and which made-up value was not taken. Where to go is decided by
//! the search.

use std::any::type_name;
use std::collections::VecDeque;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, Visitor};

use super::access::{Pairs, Parts, Variant};
use super::{Act, Kind, MAX_DEPTH, Search};

/// A name that no field has.
pub(super) const NO_FIELD: &str = "\u{1}";

/// Texts that types read from a text may be content with.
const TEXTS: [&str; 14] = [
    "",
    "a",
    "0",
    "1970-01-01T00:00:00Z",
    "1970-01-01",
    "00:00:00",
    "00000000-0000-0000-0000-000000000000",
    "127.0.0.1",
    "127.0.0.1:80",
    "http://example.org/",
    "a@example.org",
    "PT1S",
    "UTC",
    "EUR",
];

/// Lengths of bytes that types read from bytes may be content with.
const LENGTHS: [usize; 6] = [0, 16, 4, 8, 32, 1];

/// Why a reading came to an end. The texts of errors are not kept: nobody reads them.
#[derive(Debug)]
pub(super) enum Stop {
    Missing(&'static str),
    Duplicate(&'static str),
    UnknownField,
    Other,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a made-up value was not taken")
    }
}

impl std::error::Error for Stop {}

impl de::Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Other
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::Duplicate(field)
    }

    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self::UnknownField
    }
}

/// A place that a value is read from.
pub(super) struct Reading<'a> {
    search: &'a mut Search,
    path: String,
    /// The types around this place, by the names of their visitors.
    around: Vec<&'static str>,
    /// How many types stood inside themselves up to here; then nothing is noted, and values are made as small as
    /// can be.
    again: usize,
}

impl<'a> Reading<'a> {
    pub(super) fn new(search: &'a mut Search) -> Self {
        Self {
            search,
            path: String::new(),
            around: Vec::new(),
            again: 0,
        }
    }

    pub(super) fn note(&mut self, kind: Kind) -> bool {
        self.again == 0 && self.search.note(&self.path, kind)
    }

    fn sample(&mut self) -> usize {
        self.search.slot(&self.path).sample
    }

    fn inside(&mut self, step: &str) -> Reading<'_> {
        Reading {
            path: format!("{}{step}", self.path),
            around: self.around.clone(),
            again: self.again,
            search: self.search,
        }
    }

    /// Reads a part of this value.
    pub(super) fn part<'de, S: DeserializeSeed<'de>>(
        &mut self,
        step: &str,
        seed: S,
    ) -> Result<S::Value, Stop> {
        if self.around.len() > MAX_DEPTH || self.path.len() > 64 * MAX_DEPTH {
            return Err(Stop::Other);
        }
        let part = self.inside(step);
        let path = part.path.clone();
        let read = seed.deserialize(part);
        if read.is_err() {
            self.search.failed(&path);
        }
        read
    }

    /// Says whether a part of this value is worth trying.
    fn offers(&self, step: &str) -> bool {
        self.again == 0 && !self.search.is_dead(&format!("{}{step}", self.path))
    }

    /// Enters a type that has a name; says whether what is in it is noted.
    fn enter<V>(&mut self, name: &'static str, kind: Kind) -> bool {
        let visitor = type_name::<V>();
        if self.again == 0 && self.around.contains(&visitor) {
            self.note(Kind::Same(name));
            self.again = 1;
        } else if self.again > 0 {
            self.again += 1;
        }
        self.around.push(visitor);
        self.note(kind)
    }
}

macro_rules! plain {
    ($($method:ident $visit:ident $name:literal $ty:ty;)*) => {
        $(fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
            self.note(Kind::Plain($name));
            let value = self.sample() % 3;
            visitor.$visit(value as $ty)
        })*
    };
}

impl<'de> Deserializer<'de> for Reading<'_> {
    type Error = Stop;

    plain! {
        deserialize_i8 visit_i8 "i8" i8;
        deserialize_i16 visit_i16 "i16" i16;
        deserialize_i32 visit_i32 "i32" i32;
        deserialize_i64 visit_i64 "i64" i64;
        deserialize_i128 visit_i128 "i128" i128;
        deserialize_u8 visit_u8 "u8" u8;
        deserialize_u16 visit_u16 "u16" u16;
        deserialize_u32 visit_u32 "u32" u32;
        deserialize_u64 visit_u64 "u64" u64;
        deserialize_u128 visit_u128 "u128" u128;
        deserialize_f32 visit_f32 "f32" f32;
        deserialize_f64 visit_f64 "f64" f64;
    }

    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.note(Kind::Opaque);
        match self.sample() % 5 {
            0 => visitor.visit_unit(),
            1 => visitor.visit_str(""),
            2 => visitor.visit_u64(1),
            3 => visitor.visit_map(Pairs::none(self)),
            _ => visitor.visit_bool(false),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.note(Kind::Plain("bool"));
        let yes = self.sample() % 2 == 1;
        visitor.visit_bool(yes)
    }

    fn deserialize_char<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.note(Kind::Plain("char"));
        visitor.visit_char('a')
    }

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.note(Kind::Plain("string"));
        let at = self.sample() % TEXTS.len();
        visitor.visit_str(TEXTS[at])
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.note(Kind::Plain("bytes"));
        let at = self.sample() % LENGTHS.len();
        visitor.visit_bytes(&[0; 32][..LENGTHS[at]])
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.note(Kind::Option);
        if !self.offers("?") {
            return visitor.visit_none();
        }
        let (path, read) = {
            let inside = self.inside("?");
            (inside.path.clone(), visitor.visit_some(inside))
        };
        if read.is_err() {
            self.search.failed(&path);
        }
        read
    }

    fn deserialize_unit<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.note(Kind::Plain("unit"));
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.note(Kind::List);
        let left = usize::from(self.offers("[]"));
        visitor.visit_seq(Parts {
            of: self,
            left,
            at: None,
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        mut self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.note(Kind::Tuple(length));
        visitor.visit_seq(Parts {
            of: self,
            left: length,
            at: Some(0),
        })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.note(Kind::Map);
        let entry = self.offers("<key>") && self.offers("<value>");
        visitor.visit_map(Pairs {
            left: match entry {
                true => VecDeque::from([("", false)]),
                false => VecDeque::new(),
            },
            of: self,
            last: None,
            is_struct: false,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        if self.enter::<V>(name, Kind::Struct(name, fields)) {
            self.ask_about(fields);
        }
        self.read_fields(fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        if self.enter::<V>(name, Kind::Enum(name, variants)) {
            for other in 1..variants.len() {
                let path = self.path.clone();
                self.search.later(&path, Act::Take(other));
            }
        }
        if variants.is_empty() {
            return Err(Stop::Other);
        }
        let at = match self.again {
            0 => self.search.variant(&self.path, variants),
            again => (again - 1) % variants.len(),
        };
        let variant = variants[at];
        let step = format!("#{variant}");
        let path = format!("{}{step}", self.path);
        let read = visitor.visit_enum(Variant {
            of: self.inside(&step),
            variant,
        });
        if read.is_err() {
            self.search.failed(&path);
        }
        read
    }

    fn deserialize_identifier<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.note(Kind::Plain("identifier"));
        visitor.visit_str(NO_FIELD)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_unit()
    }

    /// As MessagePack, by which payloads are read.
    fn is_human_readable(&self) -> bool {
        false
    }
}

impl Reading<'_> {
    /// Has it tried which fields may be missing, and whether others are passed over.
    pub(super) fn ask_about(&mut self, fields: &'static [&'static str]) {
        let path = self.path.clone();
        for field in fields {
            self.search.later(&path, Act::Omit(field));
        }
        self.search.later(&path, Act::Extra);
    }

    pub(super) fn read_fields<'de, V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let left = match self.again {
            0 => self.search.offered(&self.path, fields),
            _ => fields.iter().map(|field| (*field, true)).collect(),
        };
        let path = self.path.clone();
        let (noted, mut last) = (self.again == 0, None);
        let Reading {
            search,
            path: own,
            around,
            again,
        } = self;
        let read = visitor.visit_map(Pairs {
            left,
            of: Reading {
                search: &mut *search,
                path: own,
                around,
                again,
            },
            last: Some(&mut last),
            is_struct: true,
        });
        if noted && !search.noted {
            search.judge(&path, last, read.as_ref().err());
        }
        read
    }
}

impl Search {
    /// Learns from how a reading of fields came out.
    fn judge(&mut self, path: &str, last: Option<&'static str>, stop: Option<&Stop>) {
        let act = match self.aim.path == path {
            true => self.aim.act,
            false => Act::Look,
        };
        match (act, stop) {
            (_, Some(Stop::Duplicate(of))) => {
                let slot = self.slot(path);
                match last {
                    Some(last) if last != *of => slot.aliases.push((last, of)),
                    // Another name of it came before it: next time that one comes later.
                    _ if !slot.first.contains(of) => slot.first.push(of),
                    _ => return,
                }
                (self.noted, self.changed) = (true, true);
            }
            (Act::Omit(field), None) => self.slot(path).tried.push(field),
            (Act::Omit(field), Some(Stop::Missing(missing))) if field == *missing => {
                let slot = self.slot(path);
                slot.tried.push(field);
                slot.required.push(field);
                self.noted = true;
            }
            (Act::Extra, Some(Stop::UnknownField)) => {
                self.slot(path).closed = true;
                self.noted = true;
            }
            // It is not known why: then nothing is said of the field.
            (Act::Omit(_) | Act::Extra, Some(_)) => self.noted = true,
            _ => {}
        }
    }
}
