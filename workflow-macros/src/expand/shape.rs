//! The shape of a body as a constant, and how the names in it find the functions they stand for.
//!
//! Nothing is registered at link time: that would need `unsafe` in the user's crate. A call of
//! `charge(..)` is resolved by the compiler's own rules instead. Beside every step, workflow and inline
//! helper stands a type of the same name, so for each name a block is written:
//!
//! ```ignore
//! { struct charge {} { use self::*; charge::TARGET } }
//! ```
//!
//! In the inner block the glob finds the type of that name in the workflow's module, defined or imported
//! there. Where there is none (a plain function, a closure in a variable), the empty type of the outer
//! block is found, of which a trait beside it says that it is nothing. For `a::b::charge(..)` the glob is
//! `a::b::*`.
//!
//! A *module* of that name hides the empty type. If the function in it is a step without a type of its
//! own (`marker = false`, which is meant for this), the constant stands in the module and is found. If it
//! is a plain function, there is none: the one case in which this does not compile. The constant's name
//! says the way out: written with its path, the call is looked up in the module itself.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;

use crate::model::Function;
use crate::shape::{Callee, Lookup, Node, Shape};

/// What the types beside functions call what they are to their callers. The compiler shows it for a
/// call of a plain function whose name is also a module's.
pub(crate) fn target_name(function: &Ident, span: Span) -> Ident {
    let function = function.unraw();
    format_ident!(
        "CALL_{function}_BY_ITS_PATH_AS_A_MODULE_HAS_ITS_NAME",
        span = span
    )
}

/// A trait that says of all types that no function of these names stands beside them. The constants of those
/// that do are their own, which the compiler prefers.
pub(crate) fn nothing<'a>(
    functions: impl Iterator<Item = &'a Ident>,
    door: &TokenStream,
    span: Span,
) -> TokenStream {
    let names: BTreeSet<Ident> = functions.map(|it| target_name(it, span)).collect();
    if names.is_empty() {
        return TokenStream::new();
    }
    let names = names.iter();
    quote_spanned! {span=>
        #[allow(non_upper_case_globals)]
        trait __Nothing {
            #(const #names: #door::Target = #door::Target::Other;)*
        }
        impl<__T> __Nothing for __T {}
    }
}

/// The function that gives the shape of a body.
pub(crate) fn function(function: &Function, door: &TokenStream) -> TokenStream {
    let span = function.span();
    let shape = Shape::of(&function.body);
    let nothing = nothing(shape.callees.iter().map(|it| &it.name), door, span);
    let callees = shape.callees.iter().map(|it| callee(it, door));
    let body = nodes(&shape.body, door, span);
    quote_spanned! {span=>
        || {
            #nothing
            const SHAPE: &'static #door::Shape = &#door::Shape {
                callees: &[#(#callees),*],
                body: #body,
            };
            SHAPE
        }
    }
}

fn callee(callee: &Callee, door: &TokenStream) -> TokenStream {
    let span = Span::mixed_site().located_at(callee.name.span());
    let (text, target) = (&callee.text, lookup(&callee.name, &callee.lookup, door));
    quote_spanned!(span=> #door::Callee { name: #text, target: #target })
}

/// What a name stands for.
pub(crate) fn lookup(name: &Ident, lookup: &Lookup, door: &TokenStream) -> TokenStream {
    let span = Span::mixed_site().located_at(name.span());
    let (name, target) = (ours(name.clone(), span), target_name(name, span));
    let found = quote_spanned!(span=> #name::#target);
    let fallback = quote_spanned!(span=> #[allow(non_camel_case_types)] struct #name {});
    match lookup {
        Lookup::No => quote_spanned!(span=> #door::Target::Other),
        Lookup::Here { globs, .. } => {
            let found = through(globs, found, span);
            quote_spanned!(span=> { #fallback { use self::*; #found } })
        }
        Lookup::In {
            module,
            first,
            globs,
            ..
        } => {
            let module = own_tokens(module, span);
            // The empty type would stand in the way of a module of its name.
            let (alias, module) = match first {
                Some(first) if *first == name => {
                    let alias = format_ident!("__module", span = span);
                    (
                        Some(quote_spanned!(span=> use #module as #alias;)),
                        quote!(#alias),
                    )
                }
                _ => (None, module),
            };
            let found = quote_spanned!(span=> { #alias { #fallback { use #module::*; #found } } });
            through(globs, found, span)
        }
    }
}

/// Puts an expression where the names of modules are seen.
fn through(globs: &[TokenStream], inside: TokenStream, span: Span) -> TokenStream {
    globs.iter().rev().fold(inside, |inside, glob| {
        let glob = own_tokens(glob, span);
        quote_spanned!(span=> { use #glob::*; #inside })
    })
}

/// Tokens of the user's as ours, so that lints do not see them twice.
fn own_tokens(tokens: &TokenStream, span: Span) -> TokenStream {
    let own = |token| match token {
        TokenTree::Ident(ident) => TokenTree::Ident(ours(ident, span)),
        mut other => {
            other.set_span(span);
            other
        }
    };
    tokens.clone().into_iter().map(own).collect()
}

fn ours(mut ident: Ident, span: Span) -> Ident {
    // `$crate` says by its span which crate it means.
    if ident != "$crate" {
        ident.set_span(span);
    }
    ident
}

fn nodes(nodes: &[Node], door: &TokenStream, span: Span) -> TokenStream {
    let nodes = nodes.iter().map(|it| node(it, door, span));
    quote_spanned!(span=> &[#(#nodes),*])
}

fn node(node: &Node, door: &TokenStream, span: Span) -> TokenStream {
    // With a span of our own it would be the attribute's line.
    let line = |place: &Span| quote_spanned!(*place=> ::core::line!());
    match node {
        Node::Call {
            callee,
            place,
            said,
        } => {
            let line = line(place);
            quote_spanned!(span=> #door::Node::Call { callee: #callee, line: #line, said: #said })
        }
        Node::Branch { head, place, arms } => {
            let line = line(place);
            let arms = arms.iter().map(|(when, body)| {
                let body = nodes(body, door, span);
                quote_spanned!(span=> (#when, #body))
            });
            quote_spanned!(span=> #door::Node::Branch { head: #head, line: #line, arms: &[#(#arms),*] })
        }
        Node::Loop { head, place, body } => {
            let (line, body) = (line(place), nodes(body, door, span));
            quote_spanned!(span=> #door::Node::Loop { head: #head, line: #line, body: #body })
        }
        Node::Together {
            head,
            race,
            place,
            branches,
        } => {
            let line = line(place);
            let branches = branches.iter().map(|it| nodes(it, door, span));
            quote_spanned! {span=>
                #door::Node::Together { head: #head, race: #race, line: #line, branches: &[#(#branches),*] }
            }
        }
        Node::Block { place, body } => {
            let (line, body) = (line(place), nodes(body, door, span));
            quote_spanned!(span=> #door::Node::Block { line: #line, body: #body })
        }
    }
}
