//! What keys promise: different parts never meet, equal content always does, secrets are not told.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::*;
use crate::ids::RunId;

/// Characters that mean something in the text of a key, and some that do not.
const ALPHABET: [char; 8] = ['a', ':', '%', ',', '(', ')', '2', 'C'];

/// All texts of up to two of those characters.
fn texts() -> Vec<String> {
    let mut all = vec![String::new()];
    all.extend(ALPHABET.map(String::from));
    for first in ALPHABET {
        all.extend(ALPHABET.map(|second| format!("{first}{second}")));
    }
    all
}

fn is_new(seen: &mut HashMap<String, Vec<String>>, key: &Key, parts: &[&str]) {
    let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    if let Some(before) = seen.insert(key.as_str().to_owned(), parts.clone()) {
        panic!("{before:?} and {parts:?} have the key {key}");
    }
}

#[test]
fn no_two_short_lists_of_special_characters_have_the_same_key() {
    let (texts, mut seen) = (texts(), HashMap::new());
    for a in &texts {
        is_new(&mut seen, &Key::of((a,)), &[a]);
        for b in &texts {
            is_new(&mut seen, &Key::of((a, b)), &[a, b]);
            for c in texts.iter().take(9) {
                is_new(&mut seen, &Key::of((a, b, c)), &[a, b, c]);
            }
        }
    }
}

#[test]
fn no_two_business_keys_meet_nor_does_one_meet_another_kind() {
    let mut seen = HashMap::new();
    let marked = ["#", "*", "=", "#a", "*a"].map(str::to_owned);
    let texts: Vec<String> = texts().into_iter().chain(marked).collect();
    for kind in &texts {
        is_new(&mut seen, &Key::of((kind,)), &["of", kind]);
        for id in &texts {
            is_new(&mut seen, &Key::business(kind, id), &["business", kind, id]);
        }
        is_new(&mut seen, &Key::hash(kind), &["hash", kind]);
        let secret = Key::from(kind.as_str()).secret();
        is_new(&mut seen, &secret, &["secret", kind]);
    }
    assert_ne!(Key::business("a", "b:c"), Key::business("a:b", "c"));
}

fn parts() -> impl Strategy<Value = Vec<String>> {
    let part = prop_oneof![any::<String>(), "[%:,()#*=2CA9a]{0,5}"];
    proptest::collection::vec(part, 1..5)
}

/// A map that is written in the order in which it is given.
struct InOrder<'a>(&'a [(String, i64)]);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

proptest! {
    #[test]
    fn equal_parts_and_only_those_have_the_same_key(one in parts(), two in parts()) {
        prop_assert_eq!(Key::of(&one) == Key::of(&two), one == two);
        let business = |list: &[String]| Key::business(&list[0], &list[list.len() - 1]);
        let same = one[0] == two[0] && one[one.len() - 1] == two[two.len() - 1];
        prop_assert_eq!(business(&one).as_str() == business(&two).as_str(), same);
        prop_assert_eq!(Key::hash(&one) == Key::hash(&two), one == two);
        let secret = |list: &[String]| Key::of(list).secret().as_str().to_owned();
        prop_assert_eq!(secret(&one) == secret(&two), one == two);
    }

    #[test]
    fn moving_characters_between_parts_changes_the_key(
        text in "[%:,()#*=2CA9a]{2,9}",
        first in 0usize..10,
        second in 0usize..10,
    ) {
        let (first, second) = (first % text.len(), second % text.len());
        let of = |at: usize| Key::of((&text[..at], &text[at..]));
        let business = |at: usize| Key::business(&text[..at], &text[at..]);
        prop_assert_eq!(of(first).as_str() == of(second).as_str(), first == second);
        prop_assert_eq!(business(first).as_str() == business(second).as_str(), first == second);
    }

    #[test]
    fn no_usable_plain_text_is_the_key_of_parts(text in any::<String>(), list in parts()) {
        let made = [Key::of(&list), Key::business(&list[0], &text), Key::hash(&list)];
        for made in made {
            let typed = Key::from(made.as_str());
            prop_assert!(typed.problem().is_some(), "{} can be typed", made);
            let plain = Key::from(text.as_str());
            prop_assert!(plain.problem().is_some() || plain.as_str() != made.as_str());
            let shown = Key::shown(made.as_str());
            prop_assert_eq!(shown.as_str(), made.as_str());
        }
    }

    #[test]
    fn the_order_of_map_entries_is_not_in_the_key(
        entries in proptest::collection::btree_map(any::<String>(), any::<i64>(), 0..12)
            .prop_flat_map(|map| {
                let entries: Vec<_> = map.into_iter().collect();
                (Just(entries.clone()), Just(entries).prop_shuffle())
            }),
        value in any::<i64>(),
    ) {
        let (sorted, shuffled) = entries;
        prop_assert_eq!(Key::hash(&InOrder(&sorted)), Key::hash(&InOrder(&shuffled)));
        let tree: BTreeMap<_, _> = sorted.iter().cloned().collect();
        let table: HashMap<_, _> = sorted.iter().cloned().collect();
        prop_assert_eq!(Key::hash(&tree), Key::hash(&table));
        let mut other = tree.clone();
        other.insert("one more".to_owned(), value);
        prop_assert_eq!(Key::hash(&tree) == Key::hash(&other), tree == other);
    }
}

#[test]
fn a_number_and_its_digits_are_the_same_part() {
    assert_eq!(Key::business("order", 7), Key::business("order", "7"));
    assert_eq!(
        Key::of(("eu", 7_u64, true)),
        Key::of(["eu", "7", "true"].as_slice())
    );
    let run = RunId::from_bytes([7; 16]);
    assert_eq!(Key::of((run,)), Key::of((run.to_string(),)));
}

#[test]
fn the_texts_of_keys_never_change() {
    let payload = BTreeMap::from([("cents", 500), ("order", 7)]);
    let keys = [
        Key::from("order-123"),
        Key::from(42),
        Key::business("order", 123),
        Key::business("a:b%(", "c:d%"),
        Key::business("(x", "y"),
        Key::of(("eu", 123, "express")),
        Key::of(("a,b", "(c)", "%")),
        Key::hash(&payload),
        Key::from("4111 1111 1111 1111").secret(),
        Key::business("card", "4111").secret(),
    ];
    let texts = keys.each_ref().map(Key::as_str);
    assert_eq!(
        texts,
        [
            "order-123",
            "42",
            "=order:123",
            "=a%3Ab%25(:c:d%",
            "=%28x:y",
            "=(eu,123,express)",
            "=(a%2Cb,(c%29,%25)",
            "=#d57f256fc471ef9f51400845cb06a45e",
            "=*08syd2nebf3qrcwt9y0nvayfhm",
            "=*0928z827md0g65f2atkjmqbfp6",
        ]
    );
    assert!(keys.iter().all(|key| key.problem().is_none()));
}

#[test]
fn a_key_that_cannot_be_one_says_why_where_it_is_used() {
    struct Unfit;
    impl Serialize for Unfit {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }
    let none: [&str; 0] = [];
    let unfit = [
        (Key::from(""), "empty"),
        (Key::from("").secret(), "empty"),
        (Key::from("=order:7"), "cannot begin with `=`"),
        (Key::from("=order:7").secret(), "cannot begin with `=`"),
        (Key::business("", 7), "needs a kind"),
        (Key::business("order", ""), "is empty"),
        (Key::business("order", "").secret(), "is empty"),
        (Key::of(none), "not empty"),
        (Key::of(("", "")), "not empty"),
        (Key::hash(&Unfit), "cannot be made of this value"),
        (Key::from("x".repeat(1025)), "1025 bytes is too long"),
        (Key::business("x", "y".repeat(1022)), "too long"),
    ];
    for (key, part) in unfit {
        let problem = key.problem().expect("it cannot be used");
        assert!(problem.contains(part), "{problem}");
        assert!(
            !problem.contains("xx") && !problem.contains("yy"),
            "{problem}"
        );
    }
    let fit = [
        Key::from("x".repeat(1024)),
        Key::business("x", "y".repeat(1021)),
        Key::from("x".repeat(5000)).secret(),
        Key::of(("", "b")),
    ];
    for key in fit {
        assert_eq!(key.problem(), None);
    }
}

#[test]
fn a_secret_key_shows_nothing_of_itself() {
    let key = Key::business("card", "4111 1111").secret();
    let same = Key::business("card", "4111 1111").secret();
    assert_eq!(key, same);
    let other = Key::business("card", "4111 1112").secret();
    assert_ne!(key.as_str(), other.as_str());
    for shown in [format!("{key:?}"), key.to_string(), key.as_str().into()] {
        assert!(
            !shown.contains("4111") && !shown.contains("card"),
            "{shown}"
        );
    }
    assert_eq!(key.as_str().len(), 2 + 26);
}
