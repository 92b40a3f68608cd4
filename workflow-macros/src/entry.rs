//! From an attribute's tokens to those that replace it.
//!
//! Owns the order of the moves. Apart from the crate's root, because that can be called by the compiler only, and this
//! is fuzzed (`fuzz/`).

use proc_macro2::TokenStream;

use crate::args::{StepOptions, WorkflowOptions};
use crate::diagnostics::Diagnostics;
use crate::model::Function;
use crate::{check, expand, fallback};

/// Expands `#[step]`.
pub(crate) fn expand_step(options: TokenStream, item: TokenStream) -> TokenStream {
    let function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => return fallback::item(item, "step", &error),
    };
    let diagnostics = Diagnostics::default();
    let options = StepOptions::read(options, &diagnostics);
    check::step(&function, &options, &diagnostics);
    let findings = diagnostics.finish();
    let mut expanded = if findings.signature_is_sound {
        expand::step::expand(&function, &options)
    } else {
        fallback::step(&function, &options)
    };
    expanded.extend(findings.messages);
    expanded
}

/// Expands `#[workflow]`.
pub(crate) fn expand_workflow(options: TokenStream, item: TokenStream) -> TokenStream {
    let function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => return fallback::item(item, "workflow", &error),
    };
    let diagnostics = Diagnostics::default();
    let options = WorkflowOptions::read(options, &diagnostics);
    check::workflow(&function, &options, &diagnostics);
    let findings = diagnostics.finish();
    let mut expanded = if findings.signature_is_sound {
        expand::workflow::expand(&function, &options)
    } else {
        fallback::workflow(&function, &options)
    };
    expanded.extend(findings.messages);
    expanded
}
