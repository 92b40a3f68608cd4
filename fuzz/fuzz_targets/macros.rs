#![no_main]
#![allow(dead_code, unreachable_pub, reason = "the modules are those of another crate")]

#[path = "../../workflow-macros/src/args.rs"]
mod args;
#[path = "../../workflow-macros/src/attributes.rs"]
mod attributes;
#[path = "../../workflow-macros/src/check.rs"]
mod check;
#[path = "../../workflow-macros/src/determinism/mod.rs"]
mod determinism;
#[path = "../../workflow-macros/src/diagnostics.rs"]
mod diagnostics;
#[path = "../../workflow-macros/src/duration.rs"]
mod duration;
#[path = "../../workflow-macros/src/entry.rs"]
mod entry;
#[path = "../../workflow-macros/src/expand/mod.rs"]
mod expand;
#[path = "../../workflow-macros/src/fallback.rs"]
mod fallback;
#[path = "../../workflow-macros/src/lifetimes.rs"]
mod lifetimes;
#[path = "../../workflow-macros/src/model.rs"]
mod model;
#[path = "../../workflow-macros/src/scopes.rs"]
mod scopes;
#[path = "../../workflow-macros/src/shape.rs"]
mod shape;
#[path = "../../workflow-macros/src/together.rs"]
mod together;
#[path = "../../workflow-macros/src/tokens.rs"]
mod tokens;
#[path = "../../workflow-macros/src/types.rs"]
mod types;
#[path = "../../workflow-macros/src/written.rs"]
mod written;

use libfuzzer_sys::fuzz_target;
use proc_macro2::TokenStream;

// The first line is the attribute's options, the rest the item.
fuzz_target!(|source: &str| {
    let (options, item) = source.split_once('\n').unwrap_or(("", source));
    // Without spans and with a depth that a compiler has, too: the lexer's own recursion is not ours.
    if item.matches(['(', '[', '{', '<', '!', '&', '*', '-']).count() > 200 {
        return;
    }
    let (Ok(options), Ok(item)) = (options.parse::<TokenStream>(), item.parse::<TokenStream>()) else {
        return;
    };
    let is_rust = syn::parse2::<syn::File>(item.clone()).is_ok();
    for expand in [entry::expand_step, entry::expand_workflow] {
        let expanded = expand(options.clone(), item.clone());
        assert!(!is_rust || syn::parse2::<syn::File>(expanded).is_ok(), "no Rust came out");
    }
});
