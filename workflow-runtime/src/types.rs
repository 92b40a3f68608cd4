//! The structure of a type as serde sees it: what is asked of the types of arguments and results.
//!
//! Owns the data of the answer and the way in which expanded code asks. How a type is asked is in
//! `testing::lock`; without the feature `testing` nothing is asked and no code is made for it.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

/// What serde sees of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    /// A value without parts: `u64`, `string`, `unit`, …
    Plain(&'static str),
    /// A value or nothing.
    Option(Box<Tree>),
    /// Any number of values.
    List(Box<Tree>),
    /// Any number of keys with values.
    Map(Box<Tree>, Box<Tree>),
    /// So many values.
    Tuple(Vec<Tree>),
    /// Values by name.
    Struct {
        /// The type's name.
        name: &'static str,
        /// Its fields.
        fields: Fields,
    },
    /// One of several.
    Enum {
        /// The type's name.
        name: &'static str,
        /// Its variants, each with what it holds.
        variants: Vec<(&'static str, Content)>,
    },
    /// A type that this one is a part of.
    Same(&'static str),
    /// What it takes depends on the value, which there is none of.
    Opaque,
}

/// What a variant holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    Unit,
    /// One value, or several as a tuple.
    Value(Tree),
    /// Values by name.
    Fields(Fields),
    /// It could not be looked at.
    Unknown,
}

/// Fields by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields {
    /// The fields, in the order of the source.
    pub all: Vec<Field>,
    /// A name that is none of these is refused.
    pub closed: bool,
}

/// A field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Other names that it is read by.
    pub aliases: Vec<&'static str>,
    /// What it holds.
    pub tree: Tree,
    /// A value without it can be read.
    pub may_be_missing: bool,
}

/// What serde sees of a return type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    /// What success gives.
    pub ok: Tree,
    /// What failure gives, if it can fail.
    pub error: Option<Tree>,
}

/// Asks a type.
pub struct TypeProbe<T: ?Sized>(PhantomData<*const T>);

impl<T: ?Sized> TypeProbe<T> {
    /// Makes a probe.
    #[expect(clippy::new_without_default, reason = "named by expanded code only")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: DeserializeOwned> TypeProbe<T> {
    /// The answer for what can be read back.
    pub fn seen(&self) -> Option<Tree> {
        see::<T>()
    }
}

/// The answer for what cannot be read back: an argument of a step need not be.
pub trait UnseenType {
    /// The answer.
    fn seen(&self) -> Option<Tree>;
}

impl<T: ?Sized> UnseenType for TypeProbe<T> {
    fn seen(&self) -> Option<Tree> {
        None
    }
}

impl<T: DeserializeOwned, E: DeserializeOwned + 'static> TypeProbe<Result<T, E>> {
    /// The answer for a `Result`, under whatever name.
    pub fn returned(&self) -> Option<Returned> {
        let own = std::any::TypeId::of::<E>() == std::any::TypeId::of::<crate::Error>();
        let error = match own {
            true => Tree::Plain("error"),
            false => see::<E>()?,
        };
        Some(Returned {
            ok: see::<T>()?,
            error: Some(error),
        })
    }
}

/// The answer for everything else that is returned.
pub trait PlainType {
    /// The answer.
    fn returned(&self) -> Option<Returned>;
}

impl<T: DeserializeOwned> PlainType for TypeProbe<T> {
    fn returned(&self) -> Option<Returned> {
        Some(Returned {
            ok: see::<T>()?,
            error: None,
        })
    }
}

/// The answer for what cannot be read back: the compiler says so in other words.
pub trait UnseenReturn {
    /// The answer.
    fn returned(&self) -> Option<Returned>;
}

impl<T: ?Sized> UnseenReturn for &TypeProbe<T> {
    fn returned(&self) -> Option<Returned> {
        None
    }
}

#[cfg(feature = "testing")]
fn see<T: DeserializeOwned>() -> Option<Tree> {
    Some(crate::testing::lock::trace::<T>())
}

#[cfg(not(feature = "testing"))]
#[expect(
    clippy::extra_unused_type_parameters,
    reason = "what looks at types is not built in"
)]
fn see<T: DeserializeOwned>() -> Option<Tree> {
    None
}
