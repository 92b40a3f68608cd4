//! `#[step]`: an outer function that builds a `StepCall` by one call into the runtime.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Signature, Type};

use super::about;
use super::shape::target_name;
use super::typed;
use super::{
    body_call, body_function, closing_bracket, door, first_span, marker, marker_name, outer_params,
    place, returns, type_span,
};
use crate::args::StepOptions;
use crate::lifetimes::Naming;
use crate::model::{Function, Param, ParamKind, Resource};
use crate::tokens::regroup;

/// Expands a function that `check` found sound.
pub(crate) fn expand(function: &Function, options: &StepOptions) -> TokenStream {
    let door = door(function, &options.runtime);
    let definition = definition(function, options, &door);
    if !options.marker {
        let span = function.span();
        let target = quote_spanned!(span=> #door::Target::Step(&#definition));
        let target = about::target_in_module(function, &door, &target);
        let name = target_name(&function.sig.ident, span);
        let shared = quote_spanned!(span=> const { #name.step() });
        let outer = outer(function, options, &shared);
        return quote_spanned!(span=> #outer #target);
    }
    let (name, cfg) = (marker_name(function), function.attributes.cfg());
    let marker = marker(function, &name);
    let span = function.span();
    let shared = quote_spanned!(span=> <#name as #door::Step>::DEFINITION);
    let outer = outer(function, options, &shared);
    let target = quote_spanned!(span=> #door::Target::Step(<Self as #door::Step>::DEFINITION));
    let target = about::target(function, &quote!(pub), &door, &target);
    let types = typed::types(function, &name, &door);
    quote_spanned! {span=>
        #outer
        #marker
        #cfg
        impl #name {
            /// The name that the journal knows this step by.
            pub const NAME: &'static ::core::primitive::str = <Self as #door::Step>::DEFINITION.name;
            #target
        }
        #cfg
        impl #door::Step for #name {
            const DEFINITION: &'static #door::StepDefinition = &#definition;
        }
        #types
    }
}

/// What the runtime knows of the step without calling it.
pub(crate) fn definition(
    function: &Function,
    options: &StepOptions,
    door: &TokenStream,
) -> TokenStream {
    let span = function.span();
    let own_name = || function.sig.ident.unraw().to_string();
    let name = options.name.clone().unwrap_or_else(own_name);
    let args = function.journaled().map(Param::label);
    let max_attempts = optional(span, options.max_attempts.map(|n| quote!(#n)));
    let backoff = options.backoff.map(|(first, longest)| {
        let (first, longest) = (millis(span, first), millis(span, longest));
        quote!((#first, #longest))
    });
    let backoff = optional(span, backoff);
    let timeout = optional(span, options.timeout.map(|it| millis(span, it)));
    let undo = optional(span, options.undo.as_ref().map(|path| undo(function, path)));
    let choice = |family: &str, chosen: &str| {
        let (family, chosen) = (Ident::new(family, span), Ident::new(chosen, span));
        quote_spanned!(span=> #door::#family::#chosen)
    };
    let effect = options.effect.map(|effect| choice("EffectClass", effect));
    let effect = optional(span, effect);
    let announced = choice("Announced", announced(options));
    let fresh_for = options.fresh_for.map(|limit| {
        let limit = millis(span, limit);
        let on_stale = choice("OnStale", options.on_stale.unwrap_or("Rerun"));
        quote_spanned!(span=> #door::FreshFor { limit: #limit, on_stale: #on_stale })
    });
    let fresh_for = optional(span, fresh_for);
    let durability = options.durability.map(|it| choice("Durability", it));
    let durability = optional(span, durability);
    let about = about::step(function, options, door);
    let (file, line) = place(function);
    quote_spanned! {span=>
        #door::StepDefinition {
            name: #name,
            args: &[#(#args),*],
            max_attempts: #max_attempts,
            backoff: #backoff,
            timeout: #timeout,
            undo: #undo,
            effect: #effect,
            announced: #announced,
            fresh_for: #fresh_for,
            durability: #durability,
            module: ::core::module_path!(),
            about: #about,
            file: #file,
            line: #line,
        }
    }
}

/// Makes the call that takes the step back: the step named by `undo`, given the same arguments and
/// what this one returned.
fn undo(function: &Function, path: &syn::ExprPath) -> TokenStream {
    let span = Span::mixed_site().located_at(first_span(path));
    let names: Vec<_> = (0..function.journaled().count())
        .map(|n| quote::format_ident!("__argument_{n}", span = span))
        .collect();
    quote_spanned! {span=>
        |__undo| {
            let (#(#names,)*) = __undo.input()?;
            ::core::result::Result::Ok(__undo.run(#path(#(#names,)* __undo.output()?)))
        }
    }
}

/// What is on record before the body starts.
fn announced(options: &StepOptions) -> &'static str {
    match (options.at_most_once, options.intent) {
        (true, _) => "AtMostOnce",
        (false, true) => "Intent",
        (false, false) => "No",
    }
}

pub(super) fn optional(span: Span, value: Option<TokenStream>) -> TokenStream {
    match value {
        Some(value) => quote_spanned!(span=> ::core::option::Option::Some(#value)),
        None => quote_spanned!(span=> ::core::option::Option::None),
    }
}

pub(super) fn millis(span: Span, millis: u64) -> TokenStream {
    quote_spanned!(span=> ::core::time::Duration::from_millis(#millis))
}

/// The function under the user's name.
fn outer(function: &Function, options: &StepOptions, definition: &TokenStream) -> TokenStream {
    let door = door(function, &options.runtime);
    let span = function.span();
    let mut naming = match options.blocking {
        Some(_) => Naming::owned(),
        None => Naming::new(&function.sig.generics),
    };
    let arguments: Vec<(&Param, Type)> = function
        .journaled()
        .map(|param| (param, naming.name(&param.written.ty)))
        .collect();
    let params = outer_params(&arguments);
    let generics = naming.declare(&function.sig.generics);
    let where_clause = &generics.where_clause;
    let call = naming.of_call();

    let Signature {
        fn_token, ident, ..
    } = &function.sig;
    let (attributes, vis) = (function.attributes.outer(), &function.vis);
    let body = &function.body;
    let body = body_function(function, &quote!(#body));
    let ty = function.returns();
    let probe = probe(&door, &ty, options);
    let key = key(&door, span, options);
    let names = arguments.iter().map(|(param, _)| param.inner_name());
    let values = arguments.iter().map(|(param, ty)| blamed(param, ty));
    let close = closing_bracket(function);
    let attempt = attempt(function, options, &door);
    let inside = quote_spanned! {span=>
        #body
        #door::step_call(
            #definition,
            #probe,
            #key,
            (#(#values,)*),
            move |__attempt, (#(#names,)*)| #attempt,
        )
    };
    let block = regroup(&function.body, inside);
    quote_spanned! {span=>
        #attributes
        #[track_caller]
        #vis #fn_token #ident #generics (#params) -> #door::StepCall<#call, #ty #close #where_clause
        #block
    }
}

/// How the outcome crosses the journal, and which errors are tried again.
fn probe(door: &TokenStream, ty: &Type, options: &StepOptions) -> TokenStream {
    let mut probe = returns(door, ty);
    if let Some(path) = &options.retry_if {
        let span = Span::mixed_site().located_at(first_span(path));
        probe = quote_spanned!(span=> #probe.retry_if(#path));
    }
    if options.at_most_once {
        let span = Span::mixed_site().located_at(type_span(ty));
        probe = quote_spanned!(span=> #probe.at_most_once());
    }
    probe
}

fn key(door: &TokenStream, span: Span, options: &StepOptions) -> TokenStream {
    let key = options.key.as_ref().map(|key| {
        let span = Span::mixed_site().located_at(first_span(key));
        quote_spanned!(span=> ::core::convert::Into::<#door::Key>::into(#key))
    });
    optional(span, key)
}

/// An argument's value in a block that is shown where its type is: the compiler blames that
/// block for an argument that cannot be journaled.
fn blamed(param: &Param, ty: &Type) -> TokenStream {
    let name = &param.name;
    quote_spanned!(Span::mixed_site().located_at(type_span(ty))=> {#name})
}

/// What one attempt does: fetch the resources, then make the body's future.
fn attempt(function: &Function, options: &StepOptions, door: &TokenStream) -> TokenStream {
    let span = function.span();
    let fetched: Vec<_> = function
        .params
        .iter()
        .filter_map(|p| fetch(p, span))
        .collect();
    let call = body_call(function, Param::inner_name);
    let future = if options.blocking.is_some() {
        quote_spanned!(span=> #door::blocking(__attempt, move || #call))
    } else if fetched.is_empty() {
        quote_spanned!(span=> #call)
    } else {
        quote_spanned!(span=> async move { #call.await })
    };
    quote_spanned! {span=>
        {
            #(#fetched)*
            ::core::result::Result::Ok(#future)
        }
    }
}

fn fetch(param: &Param, span: Span) -> Option<TokenStream> {
    let ParamKind::Resource {
        wanted: Some(wanted),
        ..
    } = &param.kind
    else {
        return None;
    };
    let (Resource::Borrowed(ty) | Resource::Shared(ty)) = wanted;
    let name = param.inner_name();
    Some(quote_spanned!(span=> let #name = __attempt.resource::<#ty>()?;))
}
