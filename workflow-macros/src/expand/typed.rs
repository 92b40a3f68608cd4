//! The types of a step as its callers' tests name them: what it is given, owned, and what it returns.
//!
//! Emitted for steps whose types are the same in every call. Never read while a run goes on.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Lifetime, ParenthesizedGenericArguments, Type, TypeFnPtr, TypeImplTrait, TypeMacro,
    TypeTraitObject, parse_quote_spanned,
};

use super::type_span;
use crate::model::Function;

/// Says what the step's types are, unless they differ from call to call or cannot be owned.
pub(crate) fn types(function: &Function, name: &Ident, door: &TokenStream) -> TokenStream {
    if !function.turbofish().is_empty() {
        return TokenStream::new();
    }
    let owned = function.journaled().map(|p| owned(&p.written.ty, door));
    let Some(arguments) = owned.collect::<Option<Vec<Type>>>() else {
        return TokenStream::new();
    };
    let input = match &*arguments {
        [only] => quote!(#only),
        all => quote!((#(#all),*)),
    };
    let (span, cfg, output) = (
        function.span(),
        function.attributes.cfg(),
        function.returns(),
    );
    quote_spanned! {span=>
        #cfg
        #[allow(deprecated)]
        impl #door::TypedStep for #name {
            type Input = #input;
            type Output = #output;
        }
    }
}

/// Returns the type that an argument has when it is read back: what it borrows, it owns. `None` if that
/// cannot be written.
fn owned(ty: &Type, door: &TokenStream) -> Option<Type> {
    let mut owning = Owning { door, fails: false };
    let mut ty = ty.clone();
    owning.visit_type_mut(&mut ty);
    (!owning.fails).then_some(ty)
}

struct Owning<'a> {
    door: &'a TokenStream,
    fails: bool,
}

impl VisitMut for Owning<'_> {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        visit_mut::visit_type_mut(self, ty);
        if let Type::Reference(reference) = ty {
            let (door, inner) = (self.door, &reference.elem);
            let span = Span::mixed_site().located_at(type_span(inner));
            *ty = parse_quote_spanned!(span=> <#inner as #door::Owned>::Owned);
        }
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        *lifetime = Lifetime::new("'static", lifetime.span());
    }

    // Different in every call, of no size, with lifetimes of their own, or not to be looked into.
    fn visit_type_impl_trait_mut(&mut self, _: &mut TypeImplTrait) {
        self.fails = true;
    }

    fn visit_type_trait_object_mut(&mut self, _: &mut TypeTraitObject) {
        self.fails = true;
    }

    fn visit_type_fn_ptr_mut(&mut self, _: &mut TypeFnPtr) {
        self.fails = true;
    }

    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {
        self.fails = true;
    }

    fn visit_type_macro_mut(&mut self, _: &mut TypeMacro) {
        self.fails = true;
    }
}
