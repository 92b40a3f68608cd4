//! The other attributes of an annotated function, sorted by where they go.
//!
//! One function becomes several items, so each attribute needs a place:
//!
//! - `cfg` goes on every item;
//! - what describes the function to its callers and to lints (`doc`, `deprecated`, `must_use`,
//!   `allow`, `expect`, `warn`, `deny`, `forbid`, `inline`, `cold`) goes on the outer function;
//! - what changes how a symbol is linked or called (`no_mangle`, `test`, …) is refused by
//!   `check`, because the outer function only builds a call;
//! - everything else (`#[tracing::instrument]`, …) goes on the inner function that holds the
//!   body, where it sees the body as written.

use proc_macro2::TokenStream;
use quote::quote;
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Path, Token};

/// Attributes that describe the function to its callers.
const DESCRIPTIVE: &[&str] = &["deprecated", "doc", "inline", "must_use", "cold"];
/// Attributes that set lint levels.
const LEVELS: &[&str] = &["allow", "deny", "expect", "forbid", "warn"];
/// Attributes that a function which only builds a call cannot bear, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("export_name", LINKED),
    ("link_section", LINKED),
    ("no_mangle", LINKED),
    ("naked", LINKED),
    ("target_feature", LINKED),
    ("proc_macro", LINKED),
    ("bench", TEST),
    ("test", TEST),
    ("main", TEST),
    ("step", BOTH),
    ("workflow", BOTH),
];
const LINKED: &str = "it belongs to a function that is linked or called by its symbol, and this one only builds a call; put it on a plain function that the body calls";
const TEST: &str = "a test harness or runtime calls such a function itself, and this one only builds a call for the engine; write a plain function beside it";
const BOTH: &str = "a function is one step or one workflow, because the journal knows it by one name; keep one of the two attributes, and call the other function from it";

/// The attributes of one function by where they go.
#[derive(Default)]
pub(crate) struct Attributes {
    /// `cfg`: on every generated item.
    pub(crate) cfg: Vec<Attribute>,
    /// On the outer function.
    pub(crate) descriptive: Vec<Attribute>,
    /// Lint levels, on the outer function and whatever stands beside it.
    pub(crate) levels: Vec<Attribute>,
    /// On the function that holds the body.
    pub(crate) body: Vec<Attribute>,
    /// Those that cannot be kept, each with its reason.
    pub(crate) refused: Vec<(Attribute, &'static str)>,
}

impl Attributes {
    /// Sorts attributes by where they go.
    pub(crate) fn sort(attributes: Vec<Attribute>) -> Self {
        let mut sorted = Self::default();
        for attribute in attributes {
            sorted.place(attribute);
        }
        sorted
    }

    fn place(&mut self, attribute: Attribute) {
        let path = named(&attribute);
        let name = last_segment(&path);
        let plain = path.get_ident().is_some();
        if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| name == *refused) {
            self.refused.push((attribute, reason));
        } else if plain && name == "track_caller" {
            // The outer function has it already, and twice is a warning.
        } else if plain && name == "cfg" {
            self.cfg.push(attribute);
        } else if plain && DESCRIPTIVE.contains(&&*name) {
            self.descriptive.push(attribute);
        } else if plain && LEVELS.contains(&&*name) {
            self.levels.push(attribute);
        } else if plain && name == "cfg_attr" && only_describes(&attribute) {
            self.descriptive.push(attribute);
        } else {
            self.body.push(attribute);
        }
    }

    /// What goes on the outer function.
    pub(crate) fn outer(&self) -> TokenStream {
        let (cfg, descriptive, levels) = (&self.cfg, &self.descriptive, &self.levels);
        quote!(#(#cfg)* #(#descriptive)* #(#levels)*)
    }

    /// The lint levels for an item beside the outer function.
    ///
    /// An `expect` becomes an `allow` there: the lint fires in one of the two items, and the
    /// other one's expectation would be reported as unfulfilled.
    pub(crate) fn levels_beside(&self) -> TokenStream {
        self.levels.iter().map(allow_for_expect).collect()
    }

    /// What goes on the outer function when its body stands elsewhere.
    pub(crate) fn outer_without_body(&self) -> TokenStream {
        let (cfg, descriptive, levels) = (&self.cfg, &self.descriptive, self.levels_beside());
        quote!(#(#cfg)* #(#descriptive)* #levels)
    }

    /// What goes on items that exist only when the function does.
    pub(crate) fn cfg(&self) -> TokenStream {
        let cfg = &self.cfg;
        quote!(#(#cfg)*)
    }
}

fn allow_for_expect(attribute: &Attribute) -> TokenStream {
    match &attribute.meta {
        Meta::List(list) if list.path.is_ident("expect") => {
            let lints = &list.tokens;
            quote!(#[allow(#lints)])
        }
        _ => quote!(#attribute),
    }
}

/// What an attribute is: for `#[unsafe(no_mangle)]` that is `no_mangle`.
pub(crate) fn named(attribute: &Attribute) -> Path {
    if attribute.path().is_ident("unsafe")
        && let Ok(inner) = attribute.parse_args::<Meta>()
    {
        return inner.path().clone();
    }
    attribute.path().clone()
}

/// The last segment of a path: `test` for `tokio::test`.
fn last_segment(path: &Path) -> String {
    let last = path.segments.last();
    last.map_or_else(String::new, |segment| segment.ident.to_string())
}

/// Says whether a `cfg_attr` holds nothing but what goes on the outer function.
fn only_describes(attribute: &Attribute) -> bool {
    let parser = Punctuated::<Meta, Token![,]>::parse_terminated;
    let Ok(metas) = attribute.parse_args_with(parser) else {
        return false;
    };
    metas.iter().skip(1).all(|meta| {
        let name = meta.path().get_ident().map(ToString::to_string);
        name.is_some_and(|name| DESCRIPTIVE.contains(&&*name) || LEVELS.contains(&&*name))
    })
}
