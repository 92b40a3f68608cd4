//! What is seen of types that users have.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;

use super::*;

fn plain(name: &'static str) -> Tree {
    Tree::Plain(name)
}

fn fields(tree: &Tree) -> Vec<(&'static str, Tree, bool)> {
    match tree {
        Tree::Struct { fields, .. } => fields
            .all
            .iter()
            .map(|it| (it.name, it.tree.clone(), it.may_be_missing))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_without_names_are_seen() {
    assert_eq!(trace::<u64>(), plain("u64"));
    assert_eq!(trace::<String>(), plain("string"));
    assert_eq!(trace::<()>(), plain("unit"));
    assert_eq!(trace::<Option<u8>>(), Tree::Option(plain("u8").into()));
    assert_eq!(trace::<HashSet<bool>>(), Tree::List(plain("bool").into()));
    assert_eq!(
        trace::<(u8, char)>(),
        Tree::Tuple(vec![plain("u8"), plain("char")])
    );
    assert_eq!(
        trace::<BTreeMap<String, Vec<i64>>>(),
        Tree::Map(
            plain("string").into(),
            Box::new(Tree::List(plain("i64").into()))
        )
    );
    assert_eq!(trace::<uuid::Uuid>(), plain("bytes"));
    assert_eq!(trace::<NonZeroU32>(), plain("u32"));
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its fields are looked at")]
struct Order {
    customer: String,
    #[serde(default)]
    note: String,
    #[serde(alias = "amount", alias = "sum")]
    total: NonZeroU32,
    coupon: Option<String>,
    #[serde(rename = "kind")]
    of: u8,
    #[serde(skip)]
    cached: bool,
    due: Duration,
}

#[test]
fn fields_are_seen_with_what_may_be_missing_and_by_which_names() {
    let order = trace::<Order>();
    let seen = fields(&order);
    let names: Vec<_> = seen.iter().map(|(name, _, _)| *name).collect();
    assert_eq!(
        names,
        ["customer", "note", "total", "coupon", "kind", "due"]
    );
    let may: Vec<_> = seen.iter().filter(|it| it.2).map(|it| it.0).collect();
    assert_eq!(may, ["note", "coupon"]);
    let Tree::Struct { name, fields } = order else {
        panic!("it is one")
    };
    assert_eq!(name, "Order");
    assert!(!fields.closed);
    let mut aliases = fields.all[2].aliases.clone();
    aliases.sort_unstable();
    assert_eq!(aliases, ["amount", "sum"]);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its fields are looked at")]
struct Strict {
    a: u8,
}

#[test]
fn a_type_that_refuses_unknown_fields_is_known_as_such() {
    let Tree::Struct { fields, .. } = trace::<Strict>() else {
        panic!("it is one")
    };
    assert!(fields.closed);
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its variants are looked at")]
enum Payment {
    Cash,
    Card(String),
    Split(Box<Payment>, Box<Payment>),
    Transfer { iban: String, memo: Option<String> },
}

#[test]
fn all_variants_are_seen_with_what_they_hold() {
    let Tree::Enum { name, variants } = trace::<Payment>() else {
        panic!("it is one")
    };
    assert_eq!(name, "Payment");
    let again = || Tree::Same("Payment");
    assert_eq!(variants[0], ("Cash", Content::Unit));
    assert_eq!(variants[1], ("Card", Content::Value(plain("string"))));
    assert_eq!(
        variants[2],
        ("Split", Content::Value(Tree::Tuple(vec![again(), again()])))
    );
    let ("Transfer", Content::Fields(fields)) = &variants[3] else {
        panic!("{variants:?}")
    };
    let seen: Vec<_> = fields
        .all
        .iter()
        .map(|it| (it.name, it.may_be_missing))
        .collect();
    assert_eq!(seen, [("iban", false), ("memo", true)]);
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its fields are looked at")]
struct Folder {
    parent: Option<Box<Folder>>,
    children: Vec<Folder>,
    by_name: BTreeMap<String, Folder>,
    payments: Vec<(Payment, Folders)>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its fields are looked at")]
struct Folders(Vec<Folder>);

#[test]
fn a_type_inside_itself_is_seen_once() {
    let again = || Box::new(Tree::Same("Folder"));
    let seen = fields(&trace::<Folder>());
    assert_eq!(seen[0].1, Tree::Option(again()));
    assert_eq!(seen[1].1, Tree::List(again()));
    assert_eq!(seen[2].1, Tree::Map(plain("string").into(), again()));
    let Tree::List(payment) = &seen[3].1 else {
        panic!("{seen:?}")
    };
    let Tree::Tuple(parts) = &**payment else {
        panic!("{seen:?}")
    };
    let Tree::Enum { variants, .. } = &parts[0] else {
        panic!("{seen:?}")
    };
    assert!(
        variants.iter().all(|(_, it)| *it != Content::Unknown),
        "{variants:?}"
    );
    assert_eq!(parts[1], Tree::List(again()));
}

#[derive(Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its variants are looked at")]
enum Either {
    A(u8),
    B { b: u8 },
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its fields are looked at")]
struct Flat {
    a: u8,
    #[serde(flatten)]
    rest: BTreeMap<String, u8>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
#[expect(dead_code, reason = "only its variants are looked at")]
enum Tagged {
    A { a: u8 },
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its fields are looked at")]
struct Around {
    first: Tagged,
    second: u8,
    third: Option<u8>,
}

#[test]
fn what_depends_on_the_value_is_opaque_and_hides_nothing_beside_it() {
    assert_eq!(trace::<Either>(), Tree::Opaque);
    assert_eq!(trace::<Flat>(), Tree::Opaque);
    assert_eq!(trace::<Tagged>(), Tree::Opaque);
    let seen = fields(&trace::<Around>());
    assert_eq!(seen[0].1, Tree::Opaque);
    assert_eq!((seen[1].0, &seen[1].1), ("second", &plain("u8")));
    assert_eq!(seen[2].1, Tree::Option(plain("u8").into()));
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Email;

impl TryFrom<String> for Email {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match text.contains('@') {
            true => Ok(Self),
            false => Err("no @".into()),
        }
    }
}

#[derive(Deserialize)]
#[serde(try_from = "u8")]
struct Never;

impl TryFrom<u8> for Never {
    type Error = String;
    fn try_from(_: u8) -> Result<Self, String> {
        Err("never".into())
    }
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its fields are looked at")]
struct Picky {
    email: Email,
    never: Never,
    after: bool,
}

#[test]
fn a_type_that_takes_few_values_is_seen_and_one_that_takes_none_hides_nothing_beside_it() {
    let seen = fields(&trace::<Picky>());
    assert_eq!(seen[0].1, plain("string"));
    assert_eq!(seen[1].1, plain("u8"));
    assert_eq!(seen[2].1, plain("bool"));
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its fields are looked at")]
struct Page<T> {
    items: Vec<T>,
}

#[test]
fn a_generic_type_inside_itself_with_another_type_is_another_one() {
    let seen = fields(&trace::<Page<Page<u8>>>());
    let Tree::List(inner) = &seen[0].1 else {
        panic!("{seen:?}")
    };
    assert_eq!(fields(inner)[0].1, Tree::List(plain("u8").into()));
}
