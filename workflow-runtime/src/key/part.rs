//! What a key can be made of: text, integers, ids, and the user's own types that say how.
//!
//! Owns [`KeyPart`], which is asked for instead of `Display` on purpose: what a type displays may be
//! shortened, rounded or redacted, and then two customers would have one key. Floats and times are left
//! out for the same reason.

use std::borrow::Cow;

#[cfg(doc)]
use super::Key;
use crate::ids::{RunId, StepId};

/// Something that a key can be made of.
///
/// Implement it for your own ids, with a text that no two of them share:
///
/// ```
/// use std::borrow::Cow;
/// use workflow_runtime::{Key, KeyPart};
///
/// struct OrderId(u64);
///
/// impl KeyPart for OrderId {
///     fn key_part(&self) -> Cow<'_, str> {
///         self.0.to_string().into()
///     }
/// }
///
/// assert_eq!(Key::business("order", OrderId(7)), Key::business("order", "7"));
/// ```
#[diagnostic::on_unimplemented(
    message = "a key cannot be made of `{Self}`",
    note = "text, integers, bools and ids can; for a type of your own implement `KeyPart` with a text that no \
            two values share; for a whole value take `Key::hash(&value)`"
)]
pub trait KeyPart {
    /// Returns the part's text. No two different values of the type may have the same.
    fn key_part(&self) -> Cow<'_, str>;
}

/// Several parts, in order; see [`Key::of`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no list of parts of a key",
    note = "`Key::of` takes a tuple of up to eight parts, as in `Key::of((tenant, order))`, or a slice of them"
)]
pub trait KeyParts {
    /// Shows each part's text, in order.
    #[doc(hidden)]
    fn each(&self, show: &mut dyn FnMut(&str));
}

/// Appends text, with `%` and the characters that are said written as `%` and two hexadecimal digits.
pub(super) fn escape(text: &str, out: &mut String, special: impl Fn(usize, char) -> bool) {
    for (at, c) in text.char_indices() {
        if c.is_ascii() && (c == '%' || special(at, c)) {
            out.push_str(&format!("%{:02X}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
}

impl<T: KeyPart + ?Sized> KeyPart for &T {
    fn key_part(&self) -> Cow<'_, str> {
        (**self).key_part()
    }
}

impl KeyPart for str {
    fn key_part(&self) -> Cow<'_, str> {
        self.into()
    }
}

impl KeyPart for String {
    fn key_part(&self) -> Cow<'_, str> {
        self.as_str().into()
    }
}

impl KeyPart for Box<str> {
    fn key_part(&self) -> Cow<'_, str> {
        (&**self).into()
    }
}

impl KeyPart for Cow<'_, str> {
    fn key_part(&self) -> Cow<'_, str> {
        (&**self).into()
    }
}

macro_rules! parts_by_text {
    ($($part:ty),*) => {$(
        impl KeyPart for $part {
            fn key_part(&self) -> Cow<'_, str> {
                self.to_string().into()
            }
        }
    )*};
}

parts_by_text!(
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    bool,
    char,
    RunId,
    StepId,
    uuid::Uuid
);

impl<T: KeyPart> KeyParts for [T] {
    fn each(&self, show: &mut dyn FnMut(&str)) {
        self.iter().for_each(|part| show(&part.key_part()));
    }
}

impl<T: KeyPart> KeyParts for Vec<T> {
    fn each(&self, show: &mut dyn FnMut(&str)) {
        self.as_slice().each(show);
    }
}

impl<T: KeyPart, const N: usize> KeyParts for [T; N] {
    fn each(&self, show: &mut dyn FnMut(&str)) {
        self.as_slice().each(show);
    }
}

impl<T: KeyParts + ?Sized> KeyParts for &T {
    fn each(&self, show: &mut dyn FnMut(&str)) {
        (**self).each(show);
    }
}

macro_rules! parts_of_tuples {
    ($(($($part:ident $index:tt),+))*) => {$(
        impl<$($part: KeyPart),+> KeyParts for ($($part,)+) {
            fn each(&self, show: &mut dyn FnMut(&str)) {
                $(show(&self.$index.key_part());)+
            }
        }
    )*};
}

parts_of_tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}
