//! A serializer that counts how deep a value nests, in front of one that does not.
//!
//! Serializing recurses, and rmp-serde bounds only reading: a value that nests ten thousand deep overflowed the stack and took
//! the process with it. Owns the count; every byte is the other serializer's.

use std::fmt::Display;

use serde::ser::{self, Error as _, Serialize, Serializer};

/// How deep a value may nest when it is written: containers, and what stands around them without leaving a trace (`Some`,
/// newtypes). Reading allows fewer containers; between the two, the error is that of reading.
const MAX_DEPTH: usize = 1024;

/// A serializer, or a container that is being written, with how much deeper it may go.
pub(crate) struct Bounded<S> {
    inner: S,
    left: usize,
}

impl<S> Bounded<S> {
    /// Bounds a serializer.
    pub(crate) fn new(inner: S) -> Self {
        Self {
            inner,
            left: MAX_DEPTH,
        }
    }

    fn within<'a, T: ?Sized>(&self, value: &'a T) -> Within<'a, T> {
        Within {
            value,
            left: self.left,
        }
    }
}

impl<S: Serializer> Bounded<S> {
    /// Goes one level down.
    fn deeper(self) -> Result<Self, S::Error> {
        match self.left.checked_sub(1) {
            Some(left) => Ok(Self { left, ..self }),
            None => Err(S::Error::custom("it nests too deep")),
        }
    }
}

/// A value below the first level.
struct Within<'a, T: ?Sized> {
    value: &'a T,
    left: usize,
}

impl<T: Serialize + ?Sized> Serialize for Within<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Bounded {
            inner: serializer,
            left: self.left,
        })
    }
}

/// What has no level of its own is the other serializer's as it is.
macro_rules! passed_on {
    ($($method:ident($($name:ident: $type:ty),*);)*) => {
        $(fn $method(self, $($name: $type),*) -> Result<S::Ok, S::Error> {
            self.inner.$method($($name),*)
        })*
    };
}

/// A container is one level.
macro_rules! containers {
    ($($method:ident($($name:ident: $type:ty),*) -> $container:ident;)*) => {
        $(fn $method(self, $($name: $type),*) -> Result<Self::$container, S::Error> {
            let Self { inner, left } = self.deeper()?;
            let inner = inner.$method($($name),*)?;
            Ok(Bounded { inner, left })
        })*
    };
}

impl<S: Serializer> Serializer for Bounded<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Bounded<S::SerializeSeq>;
    type SerializeTuple = Bounded<S::SerializeTuple>;
    type SerializeTupleStruct = Bounded<S::SerializeTupleStruct>;
    type SerializeTupleVariant = Bounded<S::SerializeTupleVariant>;
    type SerializeMap = Bounded<S::SerializeMap>;
    type SerializeStruct = Bounded<S::SerializeStruct>;
    type SerializeStructVariant = Bounded<S::SerializeStructVariant>;

    passed_on! {
        serialize_bool(value: bool);
        serialize_i8(value: i8);
        serialize_i16(value: i16);
        serialize_i32(value: i32);
        serialize_i64(value: i64);
        serialize_i128(value: i128);
        serialize_u8(value: u8);
        serialize_u16(value: u16);
        serialize_u32(value: u32);
        serialize_u64(value: u64);
        serialize_u128(value: u128);
        serialize_f32(value: f32);
        serialize_f64(value: f64);
        serialize_char(value: char);
        serialize_str(value: &str);
        serialize_bytes(value: &[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(name: &'static str);
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str);
    }

    containers! {
        serialize_seq(len: Option<usize>) -> SerializeSeq;
        serialize_tuple(len: usize) -> SerializeTuple;
        serialize_tuple_struct(name: &'static str, len: usize) -> SerializeTupleStruct;
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, len: usize) -> SerializeTupleVariant;
        serialize_map(len: Option<usize>) -> SerializeMap;
        serialize_struct(name: &'static str, len: usize) -> SerializeStruct;
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, len: usize) -> SerializeStructVariant;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let this = self.deeper()?;
        let value = this.within(value);
        this.inner.serialize_some(&value)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let this = self.deeper()?;
        let value = this.within(value);
        this.inner.serialize_newtype_struct(name, &value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let this = self.deeper()?;
        let value = this.within(value);
        this.inner
            .serialize_newtype_variant(name, index, variant, &value)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Containers whose elements come one by one.
macro_rules! elements {
    ($($container:ident :: $method:ident;)*) => {
        $(impl<C: ser::$container> ser::$container for Bounded<C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                let value = self.within(value);
                self.inner.$method(&value)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        })*
    };
}

elements! {
    SerializeSeq::serialize_element;
    SerializeTuple::serialize_element;
    SerializeTupleStruct::serialize_field;
    SerializeTupleVariant::serialize_field;
}

/// Containers whose elements have names.
macro_rules! fields {
    ($($container:ident)*) => {
        $(impl<C: ser::$container> ser::$container for Bounded<C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), C::Error> {
                let value = self.within(value);
                self.inner.serialize_field(name, &value)
            }

            fn skip_field(&mut self, name: &'static str) -> Result<(), C::Error> {
                self.inner.skip_field(name)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        })*
    };
}

fields! { SerializeStruct SerializeStructVariant }

impl<C: ser::SerializeMap> ser::SerializeMap for Bounded<C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        let key = self.within(key);
        self.inner.serialize_key(&key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        let value = self.within(value);
        self.inner.serialize_value(&value)
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    struct Unit;

    #[derive(Serialize)]
    struct Newtype(Option<Box<Newtype>>);

    #[derive(Serialize)]
    struct Pair(u8, i128);

    #[derive(Serialize)]
    enum Kind {
        Unit,
        New(u64),
        Pair(u8, char),
        Named { value: f32 },
    }

    #[derive(Serialize)]
    struct All<'a> {
        numbers: (i8, i16, i32, i64, u16, u32, u128, f64, bool),
        text: &'a str,
        unit: (),
        empty: Unit,
        pair: Pair,
        kinds: Vec<Kind>,
        map: BTreeMap<u8, Option<Newtype>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        none: Option<u8>,
        #[serde(flatten)]
        rest: BTreeMap<&'a str, [u8; 3]>,
        id: uuid::Uuid,
        shown: std::net::Ipv4Addr,
        bytes: bytes::Bytes,
    }

    fn plain<T: Serialize>(value: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut serializer = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
        value.serialize(&mut serializer).expect("serializes");
        bytes
    }

    fn bounded<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut serializer = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
        let done = value.serialize(Bounded::new(&mut serializer));
        done.map(|()| bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn every_byte_is_what_it_is_without_the_count() {
        let all = All {
            numbers: (-1, 2, -3, 4, 5, 6, u128::MAX, 7.5, true),
            text: "ä",
            unit: (),
            empty: Unit,
            pair: Pair(1, i128::MIN),
            kinds: vec![
                Kind::Unit,
                Kind::New(1),
                Kind::Pair(2, 'x'),
                Kind::Named { value: 0.5 },
            ],
            map: BTreeMap::from([(1, None), (2, Some(Newtype(None)))]),
            none: None,
            rest: BTreeMap::from([("more", [1, 2, 200])]),
            id: uuid::Uuid::from_u128(7),
            shown: std::net::Ipv4Addr::LOCALHOST,
            bytes: bytes::Bytes::from_static(b"abc"),
        };
        assert_eq!(bounded(&all), Ok(plain(&all)));
    }

    #[test]
    fn what_nests_too_deep_is_refused_and_what_does_not_is_not() {
        let nest = |depth: usize| {
            (1..depth).fold(Newtype(None), |inner, _| Newtype(Some(Box::new(inner))))
        };
        // Each is a newtype around an option.
        assert!(bounded(&nest(MAX_DEPTH / 2)).is_ok());
        let refused = bounded(&nest(MAX_DEPTH / 2 + 1));
        assert!(refused.is_err_and(|error| error.contains("nests too deep")));
        // Siblings are not deeper than each other.
        let wide: Vec<Vec<u8>> = vec![Vec::new(); 2 * MAX_DEPTH];
        assert!(bounded(&wide).is_ok());
    }
}
