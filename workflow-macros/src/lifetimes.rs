//! Names the lifetimes that a signature leaves out.
//!
//! The outer function returns a call that borrows its arguments, so the borrows need one
//! name. Elided lifetimes become that one, named ones outlive it, and so do type parameters
//! and `impl Trait` arguments. Lifetimes inside `Fn(&T)` and `fn(&T)` are their own and stay.

use proc_macro2::Span;
use syn::visit_mut::{self, VisitMut};
use syn::{
    GenericParam, Generics, Lifetime, LifetimeParam, ParenthesizedGenericArguments, Type,
    TypeFnPtr, TypeImplTrait, TypeParamBound, TypeReference, parse_quote,
};

/// Names elided lifetimes in the types it is given, and remembers whether it saw any lifetime.
pub(crate) struct Naming {
    /// The name they get.
    pub(crate) lifetime: Lifetime,
    /// Whether a call can borrow anything at all.
    borrows: bool,
}

impl Naming {
    /// Picks a name that the signature does not use.
    pub(crate) fn new(generics: &Generics) -> Self {
        let taken = |name: &str| {
            generics
                .lifetimes()
                .any(|param| param.lifetime.ident == name)
        };
        let name = if taken("step") { "'step_" } else { "'step" };
        Self {
            lifetime: Lifetime::new(name, Span::mixed_site()),
            borrows: !generics.params.is_empty(),
        }
    }

    /// Names nothing and makes type parameters outlive everything: for a body that runs on
    /// another thread.
    pub(crate) fn owned() -> Self {
        Self {
            lifetime: Lifetime::new("'static", Span::mixed_site()),
            borrows: true,
        }
    }

    /// Returns a parameter's type with every lifetime named.
    pub(crate) fn name(&mut self, ty: &Type) -> Type {
        let mut ty = ty.clone();
        self.visit_type_mut(&mut ty);
        ty
    }

    /// Says how long a call lives: as long as what it borrows, or for ever.
    pub(crate) fn of_call(&self) -> Lifetime {
        if self.borrows {
            self.lifetime.clone()
        } else {
            Lifetime::new("'static", Span::mixed_site())
        }
    }

    /// Declares the lifetime in the outer function's generics and makes the rest outlive it.
    pub(crate) fn declare(&self, generics: &Generics) -> Generics {
        let mut generics = generics.clone();
        if !self.borrows {
            return generics;
        }
        let lifetime = &self.lifetime;
        let mut elsewhere = Vec::new();
        for param in &mut generics.params {
            match param {
                GenericParam::Lifetime(param) => {
                    param.colon_token.get_or_insert_default();
                    param.bounds.push(lifetime.clone());
                }
                // Beside the other bounds, wherever they are: clippy wants them in one place.
                GenericParam::Type(param) if !param.bounds.is_empty() => {
                    param
                        .bounds
                        .push(TypeParamBound::Lifetime(lifetime.clone()));
                }
                GenericParam::Type(param) => elsewhere.push(param.ident.clone()),
                GenericParam::Const(_) => {}
            }
        }
        for ty in elsewhere {
            let clause = generics.make_where_clause();
            clause.predicates.push(parse_quote!(#ty: #lifetime));
        }
        if lifetime.ident != "static" {
            let declared = LifetimeParam::new(lifetime.clone());
            generics.params.insert(0, GenericParam::Lifetime(declared));
        }
        generics
    }
}

impl VisitMut for Naming {
    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        self.borrows = true;
        reference
            .lifetime
            .get_or_insert_with(|| self.lifetime.clone());
        visit_mut::visit_type_reference_mut(self, reference);
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident == "_" {
            self.borrows = true;
            *lifetime = self.lifetime.clone();
        } else if lifetime.ident != "static" {
            self.borrows = true;
        }
    }

    fn visit_type_impl_trait_mut(&mut self, ty: &mut TypeImplTrait) {
        self.borrows = true;
        visit_mut::visit_type_impl_trait_mut(self, ty);
        let lifetime = TypeParamBound::Lifetime(self.lifetime.clone());
        ty.bounds.push(lifetime);
    }

    fn visit_type_fn_ptr_mut(&mut self, _: &mut TypeFnPtr) {}

    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {
    }
}
