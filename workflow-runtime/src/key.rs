//! Keys that users choose: of a run, or of one call among several of a name.
//!
//! Owns [`Key`], its limits, and how parts and payloads become one. A key is text; it never comes from a
//! clock or a random source. What is kept and shown of a secret key is a digest, made when the key is:
//! nothing behind this file ever sees the secret.

mod part;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;

pub use self::part::{KeyPart, KeyParts};
use crate::digest::digest;
use crate::ids;

/// The longest key, in bytes: longer ones belong hashed into a shorter one.
pub(crate) const MAX_KEY_LEN: usize = 1024;

/// What the text of every key begins with that was not given as plain text. Plain text that does is refused,
/// so that no plain text is ever taken for a key that was made of parts.
const MADE: char = '=';

/// Between the name and the id of a business key.
const NAMED: char = ':';

/// What the text of a key of parts goes on with. A kind that begins like this, or like one of the next
/// two, is escaped.
const OF: char = '(';

/// What the text of a hashed key goes on with.
const HASH: char = '#';

/// What the text of a secret key goes on with.
const SECRET: char = '*';

/// A business key: the same text means the same thing.
///
/// Text and integers are keys as they are. Where a key has parts, let one of the builders put them
/// together: parts that are joined by hand meet sooner or later (`a-b` and `c`, `a` and `b-c`).
///
/// ```
/// use workflow_runtime::Key;
///
/// let plain = Key::from("order-123");
/// let order = Key::business("order", 123);
/// let shipment = Key::of(("eu", 123, "express"));
/// assert_ne!(Key::business("a", "b:c"), Key::business("a:b", "c"));
/// assert_eq!(order.to_string(), "=order:123");
/// assert_eq!(shipment.to_string(), "=(eu,123,express)");
/// # let _ = plain;
/// ```
///
/// Do not put a time or a random number into a key: a repeated request would have another one, and be done
/// twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    text: Box<str>,
    /// Why it cannot be used. It is told where the key is used: whoever makes a key has nobody to tell.
    fault: Option<Box<str>>,
}

impl Key {
    /// Makes the key of a thing of the business: what kind of thing it is, and its id.
    ///
    /// A number and its digits are the same id. Neither the kind nor the id may be empty: an id that was
    /// forgotten would make all things of the kind one.
    pub fn business(kind: &str, id: impl KeyPart) -> Self {
        let id = id.key_part();
        let fault = match (kind.is_empty(), id.is_empty()) {
            (false, false) => None,
            (true, _) => Some("a business key needs a kind, as in `Key::business(\"order\", id)`"),
            (_, true) => Some(
                "the id of a business key is empty: all things of its kind would have this one key",
            ),
        };
        let mut text = String::with_capacity(kind.len() + id.len() + 2);
        text.push(MADE);
        let begins_like_another = kind.starts_with([OF, HASH, SECRET]);
        part::escape(kind, &mut text, |at, c| {
            c == NAMED || (at == 0 && begins_like_another)
        });
        text.push(NAMED);
        text.push_str(&id);
        Self::made(text, fault)
    }

    /// Makes a key of several parts, in their order: a tuple, or a list.
    ///
    /// No two lists of parts have the same key. A number and its digits are the same part.
    pub fn of(parts: impl KeyParts) -> Self {
        let mut text = String::from(MADE);
        text.push(OF);
        let (mut count, mut empty) = (0, 0);
        parts.each(&mut |part| {
            if count > 0 {
                text.push(',');
            }
            count += 1;
            empty += usize::from(part.is_empty());
            part::escape(part, &mut text, |_, c| matches!(c, ',' | ')'));
        });
        text.push(')');
        let fault = (empty == count).then_some("a key of parts needs one that is not empty");
        Self::made(text, fault)
    }

    /// Makes a key of the content of a value: equal content gives an equal key, in every process.
    ///
    /// The order of map entries does not count, nor do type names or the widths of integers; the order of
    /// sequences and the names of fields do. For requests that come without an id of their own. Two requests
    /// that are meant to be two must differ in something.
    pub fn hash<T: Serialize + ?Sized>(payload: &T) -> Self {
        match digest(payload) {
            Ok(digest) => Self::made(format!("{MADE}{HASH}{}", digest.strict), None),
            Err(error) => Self {
                text: format!("{MADE}{HASH}").into(),
                fault: Some(format!("a key cannot be made of this value: {error}").into()),
            },
        }
    }

    /// Replaces the key by a digest of it, at once: stores, lists, timelines, logs and errors have the digest
    /// only, as in `Key::business("card", number).secret()`. It names the same run as ever, also after a restart, as long as it is made secret every time.
    ///
    /// A digest hides what cannot be guessed. A card number can be: whoever has the store can try all of
    /// them.
    #[must_use]
    pub fn secret(self) -> Self {
        let fault = self.problem().filter(|_| self.text.len() <= MAX_KEY_LEN);
        let text = format!("{MADE}{SECRET}{}", ids::secret_text(&self.text));
        let fault = fault.map(String::into_boxed_str);
        Self {
            text: text.into(),
            fault,
        }
    }

    /// Takes a key as a list or a header shows it, whatever it was made of.
    pub fn shown(text: &str) -> Self {
        Self {
            text: text.into(),
            fault: None,
        }
    }

    fn made(text: String, fault: Option<&str>) -> Self {
        Self {
            text: text.into(),
            fault: fault.map(Into::into),
        }
    }

    /// Takes text as it is.
    fn plain(text: Box<str>) -> Self {
        let fault = text.starts_with(MADE).then(|| {
            "a key that is plain text cannot begin with `=`, which marks keys made of parts: use `Key::business`, \
             `Key::of` or `Key::hash` for those, and `Key::shown` for a key that was copied from a list"
                .into()
        });
        Self { text, fault }
    }

    /// Returns the key's text; of a secret key, of its digest.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Says what is wrong with the key, if anything is.
    pub(crate) fn problem(&self) -> Option<String> {
        if let Some(fault) = &self.fault {
            return Some(fault.clone().into());
        }
        match self.text.len() {
            0 => Some("a key cannot be empty".into()),
            len if len > MAX_KEY_LEN => Some(format!(
                "a key of {len} bytes is too long: at most {MAX_KEY_LEN} are allowed, make it of less, or with \
                 `Key::hash`"
            )),
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&Self> for Key {
    fn from(key: &Self) -> Self {
        key.clone()
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::plain(text.into())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::plain(text.into())
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        Self::plain(text.as_str().into())
    }
}

macro_rules! from_integer {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Key {
            fn from(number: $integer) -> Self {
                Self::plain(number.to_string().into())
            }
        }
    )*};
}

from_integer!(
    i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize
);
