//! An annotated function as the rest of the crate sees it.
//!
//! Owns the split of a function into attributes by where they go, parameters by what they
//! are, signature and body. It accepts everything that has the shape of a function; `check`
//! refuses what cannot be a step or a workflow.
//!
//! The body stays a token tree. A body that does not parse (half-typed in an editor, or in
//! a syntax newer than this crate) still gets a real expansion, and the compiler reports it
//! with its own words.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::format_ident;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, FnArg, GenericArgument, Pat, PatType, PathArguments, Receiver, ReturnType,
    Signature, Type, Visibility,
};

use crate::attributes::Attributes;

/// A function under `#[step]` or `#[workflow]`.
pub(crate) struct Function {
    /// Its attributes, by where they go.
    pub(crate) attributes: Attributes,
    /// Its visibility.
    pub(crate) vis: Visibility,
    /// Its signature as written, without the attributes of its parameters that are ours.
    pub(crate) sig: Signature,
    /// The receiver, which makes it a method.
    pub(crate) receiver: Option<Receiver>,
    /// Its parameters in order.
    pub(crate) params: Vec<Param>,
    /// Its body, braces included.
    pub(crate) body: Group,
}

/// One parameter.
pub(crate) struct Param {
    /// The name it has in the outer function: the user's, or ours for a pattern.
    pub(crate) name: Ident,
    /// Pattern, type and foreign attributes as written.
    pub(crate) written: PatType,
    /// What it is to the runtime.
    pub(crate) kind: ParamKind,
}

/// What a parameter is to the runtime.
pub(crate) enum ParamKind {
    /// An argument of the call: digested, journaled, cloned for every attempt.
    Journaled,
    /// `#[resource]`: provided by the engine, absent from the call.
    Resource {
        /// The attribute, to point at.
        attribute: Box<Attribute>,
        /// What is asked for; `None` when the type is neither `&T` nor `Arc<T>`.
        wanted: Option<Resource>,
    },
}

/// The type of a resource and how the body takes it.
pub(crate) enum Resource {
    /// `&T`
    Borrowed(Box<Type>),
    /// `Arc<T>`
    Shared(Box<Type>),
}

impl Function {
    /// The type it returns, `()` included.
    pub(crate) fn returns(&self) -> Type {
        match &self.sig.output {
            ReturnType::Type(_, ty) => (**ty).clone(),
            ReturnType::Default => syn::parse_quote_spanned!(self.sig.ident.span()=> ()),
        }
    }

    /// The parameters that are arguments of the call.
    pub(crate) fn journaled(&self) -> impl Iterator<Item = &Param> {
        self.params
            .iter()
            .filter(|param| matches!(param.kind, ParamKind::Journaled))
    }

    /// The names of the type and const parameters, for a turbofish.
    pub(crate) fn turbofish(&self) -> Vec<&Ident> {
        let types = self.sig.generics.type_params().map(|param| &param.ident);
        let consts = self.sig.generics.const_params().map(|param| &param.ident);
        types.chain(consts).collect()
    }

    /// The span of generated tokens: resolved where the macro is, shown at the name.
    pub(crate) fn span(&self) -> Span {
        Span::mixed_site().located_at(self.sig.ident.span())
    }
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let mut sig: Signature = input.parse()?;
        let body = match input.parse()? {
            TokenTree::Group(body) if body.delimiter() == proc_macro2::Delimiter::Brace => body,
            other => {
                return Err(syn::Error::new(
                    other.span(),
                    "expected the function's body",
                ));
            }
        };
        let rest: TokenStream = input.parse()?;
        if !rest.is_empty() {
            return Err(syn::Error::new_spanned(rest, "expected one function"));
        }

        let mut receiver = None;
        let mut params = Vec::new();
        for input in &mut sig.inputs {
            match input {
                FnArg::Receiver(this) => receiver = Some(this.clone()),
                FnArg::Typed(typed) => params.push(Param::new(typed, params.len() + 1)),
            }
        }
        Ok(Self {
            attributes: Attributes::sort(attrs),
            vis,
            sig,
            receiver,
            params,
            body,
        })
    }
}

impl Param {
    /// Takes our own attributes off a parameter and says what it is.
    fn new(written: &mut PatType, position: usize) -> Self {
        let ours = written.attrs.iter().position(is_resource);
        let kind = match ours.map(|index| written.attrs.remove(index)) {
            Some(attribute) => ParamKind::Resource {
                attribute: Box::new(attribute),
                wanted: Resource::of(&written.ty),
            },
            None => ParamKind::Journaled,
        };
        let name = match &*written.pat {
            Pat::Ident(pat) if pat.by_ref.is_none() && pat.subpat.is_none() => pat.ident.clone(),
            _ => format_ident!("argument_{position}", span = Span::mixed_site()),
        };
        Self {
            name,
            written: written.clone(),
            kind,
        }
    }

    /// The name as a token of ours, for a binding that the user does not see.
    pub(crate) fn inner_name(&self) -> Ident {
        let mut name = self.name.clone();
        name.set_span(Span::mixed_site().located_at(name.span()));
        name
    }

    /// The name that reports show: the user's name for a plain binding, else its position.
    pub(crate) fn label(&self) -> String {
        syn::ext::IdentExt::unraw(&self.name).to_string()
    }
}

impl Resource {
    fn of(ty: &Type) -> Option<Self> {
        match ty {
            Type::Reference(reference) if reference.mutability.is_none() => {
                let inner = strip_parens(&reference.elem).clone();
                Some(Self::Borrowed(Box::new(inner)))
            }
            Type::Path(path) => {
                let last = path.path.segments.last()?;
                let PathArguments::AngleBracketed(generic) = &last.arguments else {
                    return None;
                };
                match generic.args.first()? {
                    GenericArgument::Type(inner) if last.ident == "Arc" => {
                        Some(Self::Shared(Box::new(inner.clone())))
                    }
                    _ => None,
                }
            }
            Type::Paren(inner) => Self::of(&inner.elem),
            Type::Group(inner) => Self::of(&inner.elem),
            _ => None,
        }
    }
}

/// Says whether an attribute of a parameter is our `#[resource]`.
fn is_resource(attribute: &Attribute) -> bool {
    attribute.path().is_ident("resource")
}

fn strip_parens(ty: &Type) -> &Type {
    match ty {
        Type::Paren(inner) => strip_parens(&inner.elem),
        Type::Group(inner) => strip_parens(&inner.elem),
        other => other,
    }
}
