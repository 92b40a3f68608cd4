//! Strategies for property tests of keys and payloads (feature `proptest`).
//!
//! Owns what is likely to break code that handles keys: text that looks like something else, is empty, too long, or
//! meets another text when it is joined. The values are made to be given to the functions of this crate and to your own.
//!
//! ```
//! use proptest::prelude::*;
//! use workflow_runtime::Key;
//! use workflow_runtime::testing::strategies;
//!
//! proptest! {
//!     // #[test]
//!     fn two_orders_have_two_keys(a in strategies::business_ids(), b in strategies::business_ids()) {
//!         prop_assume!(a != b);
//!         prop_assert_ne!(Key::business("order", &a), Key::business("order", &b));
//!     }
//! }
//! # two_orders_have_two_keys();
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde::{Deserialize, Serialize};

use crate::key::MAX_KEY_LEN;

/// Text that has surprised somebody: separators, escapes, what looks empty, numbers, or another text.
const HOSTILE: [&str; 28] = [
    "=",
    "=(",
    "=#",
    "=*",
    ":",
    ",",
    ")",
    "(",
    "%",
    "%2C",
    "%%",
    "a:b",
    "a,b",
    "a/b",
    "a-b",
    "..",
    " ",
    "\t",
    "\n",
    "\0",
    "\u{feff}",
    "\u{200b}",
    "e\u{301}",
    "é",
    "ß",
    "𝒦",
    "👩‍👩‍👧",
    "-0",
];

/// Makes ids of the business that can be used: not empty, and short enough for a key of them to be allowed.
pub fn business_ids() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z0-9-]{1,24}",
        2 => any::<u64>().prop_map(|number| number.to_string()),
        3 => vec(fragments(), 1..5).prop_map(|parts| parts.concat()),
        1 => text(1..64),
    ]
    .prop_filter("not empty", |id| !id.is_empty())
}

/// Makes text that somebody may hand over as a key: usable, empty, beginning with `=`, longer than is allowed, in any
/// script.
pub fn hostile_text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => business_ids(),
        1 => Just(String::new()),
        3 => vec(fragments(), 0..6).prop_map(|parts| parts.concat()),
        2 => text(0..200),
        1 => (MAX_KEY_LEN - 2..MAX_KEY_LEN + 3).prop_map(|len| "k".repeat(len)),
        1 => (1..3_usize).prop_map(|times| "ü".repeat(times * MAX_KEY_LEN / 2)),
    ]
}

/// Makes the parts of a composite key (`Key::of`), some of which meet when they are joined by hand.
pub fn key_parts() -> impl Strategy<Value = Vec<String>> {
    vec(
        prop_oneof![fragments(), business_ids(), Just(String::new())],
        1..6,
    )
}

/// Makes two different lists of parts whose texts are the same when they are joined: what a composite key has to
/// tell apart.
pub fn meeting_parts() -> impl Strategy<Value = (Vec<String>, Vec<String>)> {
    (vec(fragments(), 2..6), any::<prop::sample::Index>()).prop_map(|(parts, at)| {
        let at = at.index(parts.len() - 1);
        let mut joined = parts.clone();
        let next = joined.remove(at + 1);
        joined[at].push_str(&next);
        (parts, joined)
    })
}

/// Makes values for the `Idempotency-Key` header, right and wrong ones: quoted, bare, empty, with bytes that no header may
/// have.
pub fn header_values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => business_ids().prop_map(|id| format!("\"{id}\"").into_bytes()),
        2 => "[!-~]{1,40}".prop_map(String::into_bytes),
        2 => hostile_text().prop_map(String::into_bytes),
        2 => vec(any::<u8>(), 0..64),
        1 => "[ \\t]{0,3}\"[a-z\\\\\"]{0,12}\"[ \\t]{0,3}".prop_map(String::into_bytes),
    ]
}

/// A value of any shape that a journal can keep: what users' inputs and outputs consist of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Payload {
    /// Nothing.
    Unit,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Signed(i64),
    /// A large whole number.
    Unsigned(u64),
    /// A number that is not NaN: that is not equal to itself, so nothing could be compared.
    Float(f64),
    /// Text.
    Text(String),
    /// Values in order.
    List(Vec<Payload>),
    /// Named values.
    Map(BTreeMap<String, Payload>),
    /// A value that may be missing.
    Option(Option<Box<Payload>>),
}

/// Makes payloads, nested up to four deep.
pub fn payloads() -> impl Strategy<Value = Payload> {
    let leaf = prop_oneof![
        Just(Payload::Unit),
        any::<bool>().prop_map(Payload::Bool),
        any::<i64>().prop_map(Payload::Signed),
        select(vec![0, 1, u64::MAX, i64::MAX as u64 + 1]).prop_map(Payload::Unsigned),
        floats().prop_map(Payload::Float),
        hostile_text().prop_map(Payload::Text),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Payload::List),
            btree_map(hostile_text(), inner.clone(), 0..6).prop_map(Payload::Map),
            proptest::option::of(inner.prop_map(Box::new)).prop_map(Payload::Option),
        ]
    })
}

fn floats() -> impl Strategy<Value = f64> {
    let special = select(vec![
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
    ]);
    prop_oneof![1 => special, 3 => any::<f64>().prop_filter("not NaN", |it| !it.is_nan())]
}

/// A short text that has surprised somebody, or a plain one.
fn fragments() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => select(&HOSTILE[..]).prop_map(str::to_owned),
        1 => "[a-c]{1,2}",
    ]
}

/// Text in any script.
fn text(len: Range<usize>) -> impl Strategy<Value = String> {
    vec(any::<char>(), len).prop_map(|chars| chars.into_iter().collect())
}
