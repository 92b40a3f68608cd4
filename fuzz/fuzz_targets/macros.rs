#![no_main]
#![allow(dead_code, unreachable_pub, reason = "the modules are those of another crate")]

// A macro crate cannot be called, so its modules are compiled into this one; they look for each other at the root.
#[path = "../../workflow-macros/src"]
mod modules {
    pub(crate) mod args;
    pub(crate) mod attributes;
    pub(crate) mod check;
    pub(crate) mod determinism;
    pub(crate) mod diagnostics;
    pub(crate) mod duration;
    pub(crate) mod entry;
    pub(crate) mod expand;
    pub(crate) mod fallback;
    pub(crate) mod lifetimes;
    pub(crate) mod model;
    pub(crate) mod scopes;
    pub(crate) mod shape;
    pub(crate) mod together;
    pub(crate) mod tokens;
    pub(crate) mod types;
    pub(crate) mod written;
}

use libfuzzer_sys::fuzz_target;
use proc_macro2::TokenStream;

#[allow(unused_imports, reason = "the modules name each other by `crate::`")]
pub(crate) use modules::*;

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
