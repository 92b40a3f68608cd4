//! What sound functions become: `step` and `workflow`, and what both share.
//!
//! Expanded code names only `__private` and public types of the runtime, by absolute path,
//! and holds no logic of its own.

pub(crate) mod about;
pub(crate) mod shape;
pub(crate) mod step;
pub(crate) mod typed;
pub(crate) mod workflow;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{PatType, Path, Signature, Type};

use crate::model::{Function, Param, ParamKind, Resource};

/// The function that holds the body as written, under a name of ours.
///
/// Nested in the outer function, so a backtrace reads `charge::__body`.
pub(crate) fn body_function(function: &Function, body: &TokenStream) -> TokenStream {
    let span = function.span();
    let attributes = &function.attributes.body;
    let name = body_name(span);
    let Signature {
        asyncness,
        generics,
        output,
        ..
    } = &function.sig;
    let where_clause = &generics.where_clause;
    let asyncness = asyncness.map(|_| quote_spanned!(span=> async));
    let params = function.params.iter().map(|param| &param.written);
    quote_spanned! {span=>
        #(#attributes)*
        #asyncness fn #name #generics (#(#params),*) #output #where_clause #body
    }
}

/// The name of the function that holds the body.
pub(crate) fn body_name(span: Span) -> syn::Ident {
    syn::Ident::new("__body", span)
}

/// The parameters of the outer function: the user's names, every lifetime named.
pub(crate) fn outer_params(params: &[(&Param, Type)]) -> TokenStream {
    let params = params.iter().map(|(param, ty)| {
        let PatType { colon_token, .. } = param.written;
        let name = &param.name;
        quote!(#name #colon_token #ty)
    });
    quote!(#(#params),*)
}

/// The value of the probe for a return type: how it crosses the journal, and whether it can
/// fail, found from the resolved type.
pub(crate) fn returns(door: &TokenStream, ty: &Type) -> TokenStream {
    let span = Span::mixed_site().located_at(type_span(ty));
    let door = relocate(door, span);
    quote_spanned! {span=>
        {
            use #door::PlainReturn as _;
            #door::Probe::<#ty>::new().returns()
        }
    }
}

/// The `>` that ends the outer function's signature, with the span of the user's own `)`.
///
/// The compiler counts a signature as the user's when its first and last token are. Lints about
/// it, such as missing documentation, then point at the function and not at the attribute.
pub(crate) fn closing_bracket(function: &Function) -> syn::Token![>] {
    syn::Token![>](function.sig.paren_token.span.close())
}

/// The type that bears the function's name.
pub(crate) fn marker(function: &Function, name: &syn::Ident) -> TokenStream {
    let span = function.span();
    let cfg = function.attributes.cfg();
    let vis = &function.vis;
    quote_spanned! {span=>
        #cfg
        #[doc(hidden)]
        #[allow(non_camel_case_types)]
        #[non_exhaustive]
        #vis struct #name {}
    }
}

/// The function's name as a generated token, for the type that bears it.
pub(crate) fn marker_name(function: &Function) -> syn::Ident {
    let mut name = function.sig.ident.clone();
    name.set_span(function.sig.ident.span().resolved_at(Span::call_site()));
    name
}

/// The line of the function's name, as the compiler will say it.
pub(crate) fn place(function: &Function) -> (TokenStream, TokenStream) {
    let span = function.sig.ident.span();
    (
        quote_spanned!(span=> ::core::file!()),
        quote_spanned!(span=> ::core::line!()),
    )
}

/// `__private` of the runtime, located at the function.
pub(crate) fn door(function: &Function, runtime: &Path) -> TokenStream {
    let span = function.span();
    let runtime = relocate(runtime, span);
    quote_spanned!(span=> #runtime::__private)
}

/// Gives all tokens one place to be shown at, keeping what they resolve to.
pub(crate) fn relocate(tokens: &impl ToTokens, span: Span) -> TokenStream {
    tokens
        .to_token_stream()
        .into_iter()
        .map(|mut token| {
            token.set_span(token.span().located_at(span));
            token
        })
        .collect()
}

/// The span that stands for a type: of its first token, past `&` and the like. A stable
/// toolchain cannot join spans into the whole of it.
pub(crate) fn type_span(ty: &Type) -> Span {
    match ty {
        Type::Reference(reference) => type_span(&reference.elem),
        Type::Paren(inner) => type_span(&inner.elem),
        Type::Group(inner) => type_span(&inner.elem),
        other => first_span(other),
    }
}

/// The span of the first token.
pub(crate) fn first_span(tokens: &impl ToTokens) -> Span {
    let mut tokens = tokens.to_token_stream().into_iter();
    tokens
        .next()
        .map_or_else(Span::call_site, |token| token.span())
}

/// How the body is called from the values of one attempt, in the order of its parameters.
///
/// `name` says what a parameter's value is called there.
pub(crate) fn body_call(function: &Function, name: fn(&Param) -> syn::Ident) -> TokenStream {
    let span = function.span();
    let body = body_name(span);
    let turbofish = function.turbofish();
    let turbofish = (!turbofish.is_empty()).then(|| quote_spanned!(span=> ::<#(#turbofish),*>));
    let values = function.params.iter().map(|param| {
        let name = name(param);
        match &param.kind {
            ParamKind::Resource {
                wanted: Some(Resource::Borrowed(_)),
                ..
            } => {
                quote_spanned!(span=> &*#name)
            }
            _ => quote!(#name),
        }
    });
    quote_spanned!(span=> #body #turbofish (#(#values),*))
}
