//! Questions about types as written.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{
    GenericArgument, Lifetime, ParenthesizedGenericArguments, PathArguments, Token, Type,
    TypeFnPtr, TypeImplTrait, TypePath, TypeReference,
};

/// What a type borrows, as far as it is written.
#[derive(Default)]
pub(crate) struct Borrows {
    /// The first reference or lifetime.
    pub(crate) any: Option<TokenStream>,
    /// The first `&mut` reference.
    pub(crate) mutable: Option<TokenStream>,
}

impl Borrows {
    pub(crate) fn of(ty: &Type) -> Self {
        let mut borrows = Self::default();
        borrows.visit_type(ty);
        borrows
    }
}

impl<'ast> Visit<'ast> for Borrows {
    fn visit_type_reference(&mut self, reference: &'ast TypeReference) {
        self.any.get_or_insert_with(|| reference.to_token_stream());
        if reference.mutability.is_some() {
            self.mutable
                .get_or_insert_with(|| reference.to_token_stream());
        }
        visit::visit_type_reference(self, reference);
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        if lifetime.ident != "static" {
            self.any.get_or_insert_with(|| lifetime.to_token_stream());
        }
    }

    // Lifetimes in the types of functions are their own.
    fn visit_type_fn_ptr(&mut self, _: &'ast TypeFnPtr) {}
    fn visit_parenthesized_generic_arguments(&mut self, _: &'ast ParenthesizedGenericArguments) {}
}

/// Finds the first `impl` of an `impl Trait` in a type.
pub(crate) fn impl_trait(ty: &Type) -> Option<Token![impl]> {
    struct Find(Option<Token![impl]>);
    impl<'ast> Visit<'ast> for Find {
        fn visit_type_impl_trait(&mut self, ty: &'ast TypeImplTrait) {
            self.0.get_or_insert(ty.impl_token);
        }
    }
    let mut find = Find(None);
    find.visit_type(ty);
    find.0
}

/// Finds the first `Option<Option<_>>` in a type.
pub(crate) fn nested_option(ty: &Type) -> Option<TypePath> {
    struct Find(Option<TypePath>);
    impl<'ast> Visit<'ast> for Find {
        fn visit_type_path(&mut self, path: &'ast TypePath) {
            if let Some(Type::Path(inner)) = inside_option(path)
                && inside_option(inner).is_some()
            {
                self.0.get_or_insert_with(|| path.clone());
            }
            visit::visit_type_path(self, path);
        }
    }
    let mut find = Find(None);
    find.visit_type(ty);
    find.0
}

/// Returns the type `T` of an `Option<T>`.
fn inside_option(path: &TypePath) -> Option<&Type> {
    let last = path.path.segments.last()?;
    match &last.arguments {
        PathArguments::AngleBracketed(generic) if last.ident == "Option" => {
            match generic.args.first()? {
                GenericArgument::Type(inner) => Some(inner),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns a type that borrows from nothing: every lifetime in it is `'static`.
pub(crate) fn with_static_lifetimes(ty: &Type) -> Type {
    struct Replace;
    impl VisitMut for Replace {
        fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
            reference.lifetime = Some(Lifetime::new("'static", Span::mixed_site()));
            visit_mut::visit_type_reference_mut(self, reference);
        }
        fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
            *lifetime = Lifetime::new("'static", lifetime.span());
        }
    }
    let mut ty = ty.clone();
    Replace.visit_type_mut(&mut ty);
    ty
}

/// The type of a value as it is read back from a journal: owned, without lifetimes. `None` where the type is not
/// known before the call (`impl Trait`).
pub(crate) fn owned(ty: &Type) -> Option<Type> {
    struct Own(bool);
    impl VisitMut for Own {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            while let Type::Reference(reference) = ty {
                *ty = match &*reference.elem {
                    Type::Path(path) if path.path.is_ident("str") => {
                        syn::parse_quote!(::std::string::String)
                    }
                    Type::Slice(slice) => {
                        let element = &slice.elem;
                        syn::parse_quote!(::std::vec::Vec<#element>)
                    }
                    other => other.clone(),
                };
            }
            let known = !matches!(
                ty,
                Type::ImplTrait(_) | Type::TraitObject(_) | Type::Infer(_)
            );
            self.0 &= known;
            visit_mut::visit_type_mut(self, ty);
        }

        fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
            *lifetime = Lifetime::new("'static", lifetime.span());
        }
    }
    let mut ty = ty.clone();
    let mut own = Own(true);
    own.visit_type_mut(&mut ty);
    own.0.then_some(ty)
}
