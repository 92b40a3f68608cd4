//! `#[workflow]`: an outer function that builds a `WorkflowCall`, and the type it names.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Signature, Type};

use super::about;
use super::shape::{self, target_name};
use super::step::{millis, optional};
use super::{
    body_call, body_function, closing_bracket, door, marker, marker_name, outer_params, place,
    returns, type_span,
};
use crate::args::{Changes, WorkflowOptions};
use crate::lifetimes::Naming;
use crate::model::{Function, Param};
use crate::scopes;
use crate::tokens::regroup;

/// Expands a function that `check` found sound.
pub(crate) fn expand(function: &Function, options: &WorkflowOptions) -> TokenStream {
    if options.inline.is_some() {
        inline(function, options)
    } else {
        workflow(function, options)
    }
}

fn name_of(function: &Function, options: &WorkflowOptions) -> String {
    let own_name = || function.sig.ident.unraw().to_string();
    options.name.clone().unwrap_or_else(own_name)
}

/// The name of the type that `register::<…>()` is given: the function's own, or another one
/// for a function that shares its name with a module.
pub(crate) fn type_name(function: &Function, options: &WorkflowOptions) -> syn::Ident {
    let name = marker_name(function);
    if options.marker == Some(false) {
        let name = name.unraw();
        return quote::format_ident!("{name}_workflow", span = name.span());
    }
    name
}

/// The body with a scope around every `async` block.
fn scoped_body(function: &Function, door: &TokenStream) -> TokenStream {
    let body = scopes::rewrite(&function.body, door);
    quote!(#body)
}

fn workflow(function: &Function, options: &WorkflowOptions) -> TokenStream {
    let door = door(function, &options.runtime);
    let span = function.span();
    let Signature {
        fn_token, ident, ..
    } = &function.sig;
    let (attributes, vis) = (function.attributes.outer_without_body(), &function.vis);
    let name = type_name(function, options);
    let marker = marker(function, &name);
    let arguments: Vec<(&Param, Type)> = function
        .journaled()
        .map(|param| (param, (*param.written.ty).clone()))
        .collect();
    let params = outer_params(&arguments);
    let names = arguments.iter().map(|(param, _)| &param.name);
    let close = closing_bracket(function);
    let inside = quote_spanned!(span=> #door::WorkflowCall::<#name>::new((#(#names,)*)));
    let block = regroup(&function.body, inside);
    let implementation = implementation(function, options, &door);
    let in_module = (options.marker == Some(false)).then(|| {
        let target = target_name(ident, span);
        about::target_in_module(function, &door, &quote_spanned!(span=> #name::#target))
    });
    quote_spanned! {span=>
        #attributes
        #[track_caller]
        #vis #fn_token #ident(#params) -> #door::WorkflowCall<#name #close #block
        #marker
        #implementation
        #in_module
    }
}

/// What the type that bears the workflow's name can do.
fn implementation(
    function: &Function,
    options: &WorkflowOptions,
    door: &TokenStream,
) -> TokenStream {
    let span = function.span();
    let (cfg, levels) = (
        function.attributes.cfg(),
        function.attributes.levels_beside(),
    );
    let (name, own_name) = (type_name(function, options), marker_name(function));
    let input = input(function);
    let names = function.journaled().map(Param::inner_name);
    let body = body_function(function, &scoped_body(function, door));
    let (definition, call) = (
        definition(function, options, door),
        body_call(function, Param::inner_name),
    );
    let output = function.returns();
    let (ok, error, split) = parts(&output, door);
    let returns = returns(door, &output);
    let target =
        quote_spanned!(span=> #door::Target::Workflow(<Self as #door::Workflow>::DEFINITION));
    let target = about::target(function, &quote!(pub), door, &target);
    quote_spanned! {span=>
        #cfg
        impl #name {
            /// The name that the journal knows this workflow by.
            pub const NAME: &'static ::core::primitive::str = <Self as #door::Workflow>::DEFINITION.name;
            /// The version that new runs begin with.
            pub const VERSION: ::core::primitive::u32 = <Self as #door::Workflow>::DEFINITION.version;
            /// Draws this workflow from its source.
            pub fn diagram() -> #door::Diagram {
                #door::Diagram::of::<Self>()
            }
            #target
        }
        #cfg
        #levels
        impl #door::Workflow for #name {
            const DEFINITION: &'static #door::WorkflowDefinition = &#definition;
            type Input = #input;
            type Output = #output;
            type Ok = #ok;
            type Error = #error;
            fn returns() -> #door::Returns<Self::Output> #returns
            fn run(
                (#(#names,)*): Self::Input,
            ) -> impl ::core::future::Future<Output = Self::Output> + ::core::marker::Send + 'static {
                #body
                // Whoever registers the type uses the function.
                #[allow(deprecated)]
                let _ = #own_name;
                #call
            }
            fn split(output: Self::Output) -> ::core::result::Result<Self::Ok, Self::Error> {
                #split
            }
        }
    }
}

/// The arguments as one tuple type.
///
/// The compiler blames the whole tuple for an argument that cannot be journaled, so it is
/// shown where the only argument's type is, or where the list of arguments is.
fn input(function: &Function) -> TokenStream {
    let types: Vec<_> = function
        .journaled()
        .map(|param| &param.written.ty)
        .collect();
    let place = match &types[..] {
        [only] => type_span(only),
        _ => function.sig.paren_token.span.join(),
    };
    quote_spanned!(proc_macro2::Span::mixed_site().located_at(place)=> (#(#types,)*))
}

pub(crate) fn definition(
    function: &Function,
    options: &WorkflowOptions,
    door: &TokenStream,
) -> TokenStream {
    let span = function.span();
    let (name, version) = (name_of(function, options), options.version.unwrap_or(1));
    let changes = match options.changes {
        Some(Changes::Tolerant) => quote_spanned!(span=> #door::CodeChanges::Tolerant),
        Some(Changes::Strict) | None => quote_spanned!(span=> #door::CodeChanges::Strict),
    };
    let key_ttl = optional(span, options.key_ttl.map(|it| millis(span, it)));
    let on_failure = options.on_failure.map(|chosen| {
        let chosen = syn::Ident::new(chosen, span);
        quote_spanned!(span=> #door::OnFailure::#chosen)
    });
    let on_failure = optional(span, on_failure);
    let args = function.journaled().map(Param::label);
    let about = about::workflow(function, door);
    let (file, line) = place(function);
    quote_spanned! {span=>
        #door::WorkflowDefinition {
            name: #name,
            version: #version,
            changes: #changes,
            key_ttl: #key_ttl,
            on_failure: #on_failure,
            args: &[#(#args),*],
            about: #about,
            file: #file,
            line: #line,
        }
    }
}

/// What success and failure give, read from the return type as written.
pub(crate) fn parts(output: &Type, door: &TokenStream) -> (TokenStream, TokenStream, TokenStream) {
    let span = proc_macro2::Span::mixed_site().located_at(type_span(output));
    if named_result(output) {
        let parts = quote_spanned!(span=> <#output as #door::ResultParts>);
        (
            quote_spanned!(span=> #parts::Ok),
            quote_spanned!(span=> #parts::Error),
            quote_spanned!(span=> #parts::split(output)),
        )
    } else {
        (
            quote!(#output),
            quote_spanned!(span=> ::core::convert::Infallible),
            quote_spanned!(span=> ::core::result::Result::Ok(output)),
        )
    }
}

fn named_result(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => path
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident == "Result"),
        Type::Paren(inner) => named_result(&inner.elem),
        Type::Group(inner) => named_result(&inner.elem),
        _ => false,
    }
}

/// `#[workflow(inline)]`: a helper in the same run, with a scope of its own.
fn inline(function: &Function, options: &WorkflowOptions) -> TokenStream {
    let door = door(function, &options.runtime);
    let span = function.span();
    let mut naming = Naming::new(&function.sig.generics);
    let arguments: Vec<(&Param, Type)> = function
        .journaled()
        .map(|param| (param, naming.name(&param.written.ty)))
        .collect();
    let params = outer_params(&arguments);
    let output = naming.name(&function.returns());
    let generics = naming.declare(&function.sig.generics);
    let where_clause = &generics.where_clause;
    let lifetime = naming.of_call();

    let Signature {
        fn_token, ident, ..
    } = &function.sig;
    let (attributes, vis) = (function.attributes.outer(), &function.vis);
    let body = body_function(function, &scoped_body(function, &door));
    let (name, call) = (
        name_of(function, options),
        body_call(function, |param| param.name.clone()),
    );
    let close = closing_bracket(function);
    let inside = quote_spanned!(span=> #body #door::inline_scope(#name, #call));
    let block = regroup(&function.body, inside);
    let helper = helper(function, options, &door);
    quote_spanned! {span=>
        #attributes
        #[track_caller]
        #vis #fn_token #ident #generics (#params)
            -> impl ::core::marker::Send + #lifetime + ::core::future::Future<Output = #output #close
            #where_clause
        #block
        #helper
    }
}

/// The type that bears a helper's name: by it the shapes of those who call it find its own.
fn helper(function: &Function, options: &WorkflowOptions, door: &TokenStream) -> TokenStream {
    let span = function.span();
    let (own_name, cfg) = (marker_name(function), function.attributes.cfg());
    let marker = marker(function, &own_name);
    let (name, shape) = (name_of(function, options), shape::function(function, door));
    let (file, line) = place(function);
    let target = quote_spanned! {span=>
        #door::Target::Inline(&#door::HelperDefinition {
            name: #name,
            shape: #shape,
            file: #file,
            line: #line,
        })
    };
    if options.marker == Some(false) {
        return about::target_in_module(function, door, &target);
    }
    let target = about::target(function, &quote!(pub), door, &target);
    quote_spanned! {span=>
        #marker
        #cfg
        impl #own_name {
            #target
        }
    }
}
