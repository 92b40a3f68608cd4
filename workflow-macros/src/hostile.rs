//! Random source in both attributes: they answer with tokens, an error message among them perhaps, and never panic.
//!
//! The same door is fuzzed in `fuzz/`.

use proc_macro2::TokenStream;
use proptest::prelude::*;

use crate::{expand_step, expand_workflow};

/// Expands both attributes. What does not even lex never reaches an attribute.
fn expand(options: &str, item: &str) {
    let (Ok(options), Ok(item)) = (options.parse::<TokenStream>(), item.parse::<TokenStream>())
    else {
        return;
    };
    let is_rust = syn::parse2::<syn::File>(item.clone()).is_ok();
    for attribute in [expand_step, expand_workflow] {
        let expanded = attribute(options.clone(), item.clone());
        // What was no Rust before is given back beside the message.
        assert!(
            !is_rust || syn::parse2::<syn::File>(expanded.clone()).is_ok(),
            "no Rust came out for #[{options}] {item}:\n{expanded}"
        );
    }
}

/// Pieces of which functions and options are made, and some that do not belong there.
const PIECES: &[&str] = &[
    "async",
    "fn",
    "f",
    "charge",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ":",
    "::",
    ",",
    ";",
    "->",
    "=>",
    "=",
    "&",
    "&mut",
    "'a",
    "'_",
    "'step",
    "mut",
    "self",
    "Self",
    "impl",
    "dyn",
    "where",
    "for",
    "const",
    "unsafe",
    "extern",
    "pub",
    "crate",
    "u8",
    "String",
    "Result<()>",
    "Option<Option<u8>>",
    "T",
    "T: Clone",
    "..",
    "...",
    "?",
    "!",
    "#",
    "#[resource]",
    "#[cfg(any())]",
    "#[doc = \"d\"]",
    "|x| x",
    "move",
    "await",
    ".await",
    "loop",
    "match x {}",
    "if",
    "else",
    "let",
    "x",
    "0",
    "1.5",
    "\"text\"",
    "'c'",
    "b\"b\"",
    "select!{}",
    "join!(a, b)",
    "async {}",
    "async move { step().await }",
    "tokio::spawn(x)",
    "std::env::var(\"A\")",
    "name",
    "name = \"n\"",
    "key = x",
    "key = x(a b)",
    "key = [a b]",
    "version = 2",
    "max_attempts = 0",
    "max_attempts = 99999999999999999999",
    "backoff = \"1s..2s\"",
    "backoff = \"..\"",
    "timeout = \"999999999999d\"",
    "timeout = \"\"",
    "retry_if = a::b",
    "undo = u",
    "at_most_once",
    "intent",
    "fresh_for = \"1s\"",
    "on_stale = \"rerun\"",
    "effect = \"read\"",
    "durability = \"x\"",
    "blocking",
    "inline",
    "unchecked",
    "marker = false",
    "changes = \"tolerant\"",
    "crate = \"c\"",
    "key_ttl = \"90d\"",
];

fn source(most: usize) -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(PIECES);
    proptest::collection::vec(piece, 0..most).prop_map(|pieces| pieces.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn random_tokens_make_no_attribute_panic(options in source(6), item in source(40)) {
        expand(&options, &item);
    }

    #[test]
    fn random_signatures_and_bodies_make_no_attribute_panic(
        options in source(4),
        generics in source(5),
        parameters in source(8),
        returned in source(5),
        body in source(30),
    ) {
        for function in ["async fn f", "fn f", "pub async fn f"] {
            expand(&options, &format!("{function}<{generics}>({parameters}) -> {returned} {{ {body} }}"));
            expand(&options, &format!("{function}({parameters}) {{ {body} }}"));
        }
    }

    #[test]
    fn random_text_makes_no_attribute_panic(options in "\\PC{0,30}", item in "\\PC{0,60}") {
        expand(&options, &item);
    }
}

/// Found by fuzzing: what syn leaves unread in brackets was held to be impossible, and the attribute panicked.
#[test]
fn a_mistake_in_the_brackets_of_an_options_value_is_one_message_and_no_panic() {
    for (options, name) in [
        ("key = f(a b)", "key"),
        ("key = [a b], name = \"n\"", "key"),
        ("name = \"n\", key = f(g(a b) c), timeout = \"1s\"", "key"),
        ("verison = 2(/ER*ROR*/) = \"90 days\",&o", "verison"),
    ] {
        for attribute in [expand_step, expand_workflow] {
            let [options, item] =
                [options, "async fn f() {}"].map(|text| text.parse().expect("tokens"));
            let said = attribute(options, item).to_string();
            let mistake = format!("the value of `{name}` is not an expression");
            assert_eq!(said.matches(&mistake).count(), 1, "{said}");
            assert!(!said.contains("unexpected token"), "{said}");
            assert!(!said.contains("expected a comma"), "{said}");
        }
    }
}
