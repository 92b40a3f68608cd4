//! What is emitted when an item has mistakes, so that one mistake gives one message.
//!
//! A function whose signature is unsound gets a stub: its name, its arguments, its type, and
//! its body in an inner function of its own. Callers still resolve, editors still complete,
//! and nothing of it is ever run. An item that is no function is emitted as it was.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Safety, Signature, Type};

use crate::args::{StepOptions, WorkflowOptions};
use crate::expand::{body_function, door, marker, marker_name, outer_params, step, workflow};
use crate::model::{Function, Param};
use crate::types::{self, Borrows};

/// Stands in for a step with an unsound signature.
pub(crate) fn step(function: &Function, options: &StepOptions) -> TokenStream {
    if function.receiver.is_some() {
        return as_written(function);
    }
    let (span, door) = (function.span(), door(function, &options.runtime));
    let stub = match callable_type(function) {
        Some(ty) => outer(
            function,
            &quote_spanned!(span=> #door::StepCall<'static, #ty>),
        ),
        None => natural(function),
    };
    if !options.marker {
        return stub;
    }
    let (name, cfg) = (marker_name(function), function.attributes.cfg());
    let marker = marker(function, &name);
    let definition = step::definition(function, options, &door);
    quote_spanned! {span=>
        #stub
        #marker
        #cfg
        impl #name {
            #[doc(hidden)]
            pub const NAME: &'static ::core::primitive::str = "";
        }
        #cfg
        impl #door::Step for #name {
            const DEFINITION: &'static #door::StepDefinition = &#definition;
        }
    }
}

/// Stands in for a workflow with an unsound signature.
pub(crate) fn workflow(function: &Function, options: &WorkflowOptions) -> TokenStream {
    if function.receiver.is_some() {
        return as_written(function);
    }
    if options.inline.is_some() {
        return natural(function);
    }
    let (span, door) = (function.span(), door(function, &options.runtime));
    let name = workflow::type_name(function, options);
    let outer = outer(function, &quote_spanned!(span=> #door::WorkflowCall<#name>));
    let marker = marker(function, &name);
    let cfg = function.attributes.cfg();
    let output = callable_type(function).unwrap_or_else(|| syn::parse_quote!(()));
    let definition = workflow::definition(function, options, &door);
    let (ok, error, _) = workflow::parts(&output, &door);
    quote_spanned! {span=>
        #outer
        #marker
        #cfg
        impl #name {
            #[doc(hidden)]
            pub const NAME: &'static ::core::primitive::str = "";
            #[doc(hidden)]
            pub const VERSION: ::core::primitive::u32 = 1;
            #[doc(hidden)]
            pub fn diagram() -> #door::Diagram {
                ::core::unimplemented!()
            }
        }
        #cfg
        #[allow(unused, unreachable_code)]
        impl #door::Workflow for #name {
            const DEFINITION: &'static #door::WorkflowDefinition = &#definition;
            type Input = ();
            type Output = #output;
            type Ok = #ok;
            type Error = #error;
            fn returns() -> #door::Returns<Self::Output> {
                ::core::unimplemented!()
            }
            fn run(
                _: Self::Input,
            ) -> impl ::core::future::Future<Output = Self::Output> + ::core::marker::Send + 'static {
                ::core::future::pending::<Self::Output>()
            }
            fn split(_: Self::Output) -> ::core::result::Result<Self::Ok, Self::Error> {
                ::core::unimplemented!()
            }
        }
    }
}

/// Gives back a function as it was, but `async`: a method, because nothing else can stand in
/// the `impl` around it, and one that returns `impl Trait`, because only its body has that type.
fn as_written(function: &Function) -> TokenStream {
    let (attributes, vis) = (function.attributes.outer(), &function.vis);
    let (beside, body) = (&function.attributes.body, &function.body);
    let mut sig = function.sig.clone();
    sig.asyncness.get_or_insert_default();
    quote!(#attributes #(#beside)* #[allow(unused)] #vis #sig #body)
}

/// Gives back an item that is no function, unchanged.
pub(crate) fn item(item: TokenStream, attribute: &str, error: &syn::Error) -> TokenStream {
    let message = format!("`#[{attribute}]` goes on a free function with a body: {error}");
    let message = syn::Error::new(error.span(), message).into_compile_error();
    quote!(#item #message)
}

/// The return type in a form that a call can bear without borrowing, if it has one.
fn callable_type(function: &Function) -> Option<Type> {
    let ty = function.returns();
    let generic = !function.turbofish().is_empty() || types::impl_trait(&ty).is_some();
    (!generic).then(|| types::with_static_lifetimes(&ty))
}

/// The function under the user's name, returning `call`.
fn outer(function: &Function, call: &TokenStream) -> TokenStream {
    stub(function, None, call)
}

/// The function as an async function of its own, for types that no call can bear.
fn natural(function: &Function) -> TokenStream {
    let ty = function.returns();
    if types::impl_trait(&ty).is_some() {
        return as_written(function);
    }
    let ty = types::with_static_lifetimes(&ty);
    let asyncness = quote_spanned!(function.span()=> async);
    stub(function, Some(asyncness), &quote!(#ty))
}

fn stub(function: &Function, asyncness: Option<TokenStream>, returns: &TokenStream) -> TokenStream {
    let span = function.span();
    let params: Vec<(&Param, Type)> = function
        .journaled()
        .map(|param| (param, (*param.written.ty).clone()))
        .collect();
    let params = outer_params(&params);
    let Signature {
        fn_token,
        ident,
        generics,
        ..
    } = &function.sig;
    let where_clause = &generics.where_clause;
    let (attributes, vis) = (function.attributes.outer_without_body(), &function.vis);
    let body = body(function);
    quote_spanned! {span=>
        #attributes
        #[allow(unused, clippy::all, clippy::pedantic)]
        #vis #asyncness #fn_token #ident #generics (#params) -> #returns #where_clause {
            #body
            ::core::unimplemented!()
        }
    }
}

/// The body as written, where the mistakes in the signature cannot cause others in it.
fn body(function: &Function) -> Option<TokenStream> {
    let sig = &function.sig;
    let keeps_meaning = sig.variadic.is_none()
        && sig.constness.is_none()
        && matches!(sig.safety, Safety::Default)
        && Borrows::of(&function.returns()).any.is_none();
    if !keeps_meaning {
        return None;
    }
    let body = &function.body;
    let written = body_function(function, &quote!(#body));
    if sig.asyncness.is_some() {
        return Some(written);
    }
    let asyncness = quote_spanned!(function.span()=> async);
    Some(quote!(#asyncness #written))
}
