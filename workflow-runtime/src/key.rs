//! Keys that users choose: of a run, or of one call among several of a name.
//!
//! Owns [`Key`] and its limits. A key is text; it never comes from a clock or a random source.

use std::fmt;

/// The longest key, in bytes: longer ones belong hashed into a shorter one.
pub(crate) const MAX_KEY_LEN: usize = 1024;

/// A business key: the same text means the same thing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// Returns the key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Says what is wrong with the key, if anything is.
    pub(crate) fn problem(&self) -> Option<String> {
        match self.0.len() {
            0 => Some("a key cannot be empty".into()),
            len if len > MAX_KEY_LEN => Some(format!(
                "a key of {len} bytes is too long: at most {MAX_KEY_LEN} are allowed, hash the rest"
            )),
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        Self(text.as_str().into())
    }
}

macro_rules! from_integer {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Key {
            fn from(number: $integer) -> Self {
                Self(number.to_string().into())
            }
        }
    )*};
}

from_integer!(
    i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize
);
