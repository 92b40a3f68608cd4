//! What a function says about itself beyond what running it needs: types as written, options, and whether a
//! step's body uses its id. For the audit, pictures and comparisons of code; never read while a run goes on.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::{ExprPath, Type};

use super::first_span;
use super::shape::{lookup, nothing, target_name};
use crate::args::StepOptions;
use crate::model::{Function, Param, ParamKind, Resource};
use crate::shape;
use crate::tokens::{group, is_punct, list};
use crate::types;
use crate::written::written;

/// The names by which a body takes hold of its step id.
const STEP_ID: &[&str] = &["step_id", "StepMetadata"];
/// The functions that give all that a step knows about itself, its id included.
const METADATA: &[&str] = &["get_step_metadata", "try_get_step_metadata"];
/// The names by which a body says that the other side had done its work already.
const ALREADY_DONE: &[&str] = &["already_done", "or_already_done"];

/// What a step says about itself.
pub(crate) fn step(function: &Function, options: &StepOptions, door: &TokenStream) -> TokenStream {
    let span = function.span();
    let (types, returns) = signature(function);
    let mut said = TokenStream::new();
    let mut say = |name: &str, value: TokenStream| {
        let name = Ident::new(name, span);
        said.extend(quote_spanned!(span=> #name: #value,));
    };
    let resources: Vec<_> = function.params.iter().filter_map(resource).collect();
    if !resources.is_empty() {
        say("resources", quote_spanned!(span=> &[#(#resources),*]));
    }
    let body = function.body.stream();
    let flags = [
        ("uses_step_id", uses_step_id(&body)),
        ("already_done", names(&body, ALREADY_DONE)),
        ("blocking", options.blocking.is_some()),
    ];
    for (name, _) in flags.into_iter().filter(|(_, is)| *is) {
        say(name, quote_spanned!(span=> true));
    }
    let texts = [
        ("key", options.key.as_ref().map(written)),
        ("retry_if", options.retry_if.as_ref().map(written)),
        ("audit", options.audit.clone()),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            say(
                name,
                quote_spanned!(span=> ::core::option::Option::Some(#text)),
            );
        }
    }
    if let Some(path) = &options.undo {
        say("undone_by", undone_by(path, door));
    }
    let (seen, returned) = seen(function, door);
    say("seen", seen);
    say("returned", returned);
    quote_spanned! {span=>
        #door::StepAbout { #said ..#door::StepAbout::new(&[#(#types),*], #returns) }
    }
}

fn resource(param: &Param) -> Option<String> {
    match &param.kind {
        ParamKind::Resource {
            wanted: Some(Resource::Borrowed(ty) | Resource::Shared(ty)),
            ..
        } => Some(written(ty)),
        _ => None,
    }
}

/// What a workflow says about itself.
pub(crate) fn workflow(function: &Function, door: &TokenStream) -> TokenStream {
    let span = function.span();
    let (types, returns) = signature(function);
    let shape = super::shape::function(function, door);
    let (seen, returned) = seen(function, door);
    quote_spanned! {span=>
        #door::WorkflowAbout {
            types: &[#(#types),*],
            returns: #returns,
            seen: #seen,
            returned: #returned,
            shape: #shape,
        }
    }
}

/// The constant by which callers find what a function is to them: on the type beside it, or in its module.
pub(crate) fn target(
    function: &Function,
    vis: &impl ToTokens,
    door: &TokenStream,
    target: &TokenStream,
) -> TokenStream {
    let span = function.span();
    let name = target_name(&function.sig.ident, span);
    quote_spanned! {span=>
        #[doc(hidden)]
        #[allow(non_upper_case_globals)]
        #vis const #name: #door::Target = #target;
    }
}

/// The constant of a function that has no type beside it because a module has its name: that module is where it
/// is looked for.
pub(crate) fn target_in_module(
    function: &Function,
    door: &TokenStream,
    value: &TokenStream,
) -> TokenStream {
    let (cfg, target) = (
        function.attributes.cfg(),
        target(function, &function.vis, door, value),
    );
    quote_spanned!(function.span()=> #cfg #target)
}

/// The types of the arguments and of what is returned, as written.
fn signature(function: &Function) -> (Vec<String>, String) {
    let types = function.journaled().map(|param| written(&param.written.ty));
    (types.collect(), written(&function.returns()))
}

/// How the types of the arguments and of what is returned are asked for their structure: functions that do it. A type
/// that depends on the caller cannot be asked.
fn seen(function: &Function, door: &TokenStream) -> (TokenStream, TokenStream) {
    let span = function.span();
    let generic = !function.turbofish().is_empty();
    let owned = |ty: &Type| types::owned(ty).filter(|_| !generic);
    let seen = function
        .journaled()
        .map(|param| match owned(&param.written.ty) {
            Some(ty) => quote_spanned! {span=>
                || { use #door::UnseenType as _; (&#door::TypeProbe::<#ty>::new()).seen() }
            },
            None => quote_spanned!(span=> || ::core::option::Option::None),
        });
    let returned = match owned(&function.returns()) {
        Some(ty) => quote_spanned! {span=>
            || {
                use #door::{PlainType as _, UnseenReturn as _};
                (&#door::TypeProbe::<#ty>::new()).returned()
            }
        },
        None => quote_spanned!(span=> || ::core::option::Option::None),
    };
    (quote_spanned!(span=> &[#(#seen),*]), returned)
}

/// The step that takes this one back: by name, and what that name stands for.
fn undone_by(path: &ExprPath, door: &TokenStream) -> TokenStream {
    let span = Span::mixed_site().located_at(first_span(path));
    let text = written(path);
    let (nothing, target) = match shape::lookup(&path.path) {
        Some((name, place)) if path.qself.is_none() => (
            nothing([name].into_iter(), door, span),
            lookup(name, &place, door),
        ),
        _ => (
            TokenStream::new(),
            quote_spanned!(span=> #door::Target::Other),
        ),
    };
    quote_spanned! {span=>
        ::core::option::Option::Some((#text, || {
            #nothing
            const TARGET: #door::Target = #target;
            TARGET
        }))
    }
}

/// Says whether a body names its step id, or takes all that the step knows about itself. One that only
/// reads another part of it on the spot, as in `get_step_metadata().attempt`, does not.
fn uses_step_id(body: &TokenStream) -> bool {
    let tokens = list(body.clone());
    (0..tokens.len()).any(|at| match &tokens[at] {
        TokenTree::Ident(ident) if STEP_ID.iter().any(|name| ident == name) => true,
        TokenTree::Ident(ident) if METADATA.iter().any(|name| ident == name) => {
            let called = group(&tokens, at + 1)
                .is_some_and(|group| group.delimiter() == Delimiter::Parenthesis);
            let other_part = called
                && is_punct(&tokens, at + 2, '.')
                && matches!(tokens.get(at + 3), Some(TokenTree::Ident(part)) if part == "attempt"
                    || part == "step_name" || part == "step_started_at" || part == "run_id"
                    || part == "workflow_name" || part == "namespace");
            called && !other_part
        }
        TokenTree::Group(group) => uses_step_id(&group.stream()),
        _ => false,
    })
}

/// Says whether one of these names stands anywhere in the tokens.
fn names(body: &TokenStream, wanted: &[&str]) -> bool {
    body.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => wanted.iter().any(|name| ident == name),
        TokenTree::Group(group) => names(&group.stream(), wanted),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_uses_its_step_id_if_it_names_it_or_takes_all_of_the_metadata() {
        for (body, expected) in [
            ("pay(get_step_metadata().step_id).await", true),
            ("let meta = get_step_metadata(); pay(meta)", true),
            ("log!(\"{}\", meta.step_id)", true),
            ("pay(&workflow_runtime::get_step_metadata())", true),
            ("let StepMetadata { run_id, .. } = meta;", true),
            ("if get_step_metadata().attempt > 1 { slow() }", false),
            ("use workflow_runtime::get_step_metadata; pay()", false),
            ("pay(customer)", false),
        ] {
            let tokens: TokenStream = body.parse().expect("the test's own tokens");
            assert_eq!(uses_step_id(&tokens), expected, "{body}");
        }
    }
}
