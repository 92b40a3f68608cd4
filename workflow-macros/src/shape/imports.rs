//! Where the name of a called function is to be looked up, given the `use`s inside the body.
//!
//! An import inside a body is not seen from outside it. So a name that one binds is turned into the path
//! that the import names; a name that only a glob could bind is looked up through that glob too.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::{Block, Item, Path, Stmt, UseTree};

/// What the items of one block bring into scope.
#[derive(Default)]
pub(super) struct Names {
    /// Names that a `use` binds, and what they stand for.
    bound: Vec<(Ident, Import)>,
    /// Modules that a `use` takes everything from.
    globs: Vec<Import>,
    /// Items of the block itself: nothing outside the body can see them.
    own: Vec<Ident>,
}

/// A path as an import gives it.
#[derive(Clone)]
struct Import {
    rooted: bool,
    segments: Vec<Ident>,
}

/// Where a function's name is to be looked up.
#[derive(Clone)]
pub(crate) enum Lookup {
    /// Nowhere: nothing outside the body can see it.
    No,
    /// In the module that the workflow is in, and then in these.
    Here {
        name: Option<Ident>,
        globs: Vec<TokenStream>,
    },
    /// In this module.
    In {
        name: Option<Ident>,
        first: Option<Ident>,
        module: TokenStream,
        globs: Vec<TokenStream>,
    },
}

impl Names {
    pub(super) fn of(block: &Block) -> Self {
        let mut names = Self::default();
        for stmt in &block.stmts {
            match stmt {
                Stmt::Item(Item::Use(it)) => {
                    let mut path = Import {
                        rooted: it.leading_colon.is_some(),
                        segments: Vec::new(),
                    };
                    names.add(&mut path, &it.tree);
                }
                Stmt::Item(item) => names.own.extend(own_name(item)),
                _ => {}
            }
        }
        names
    }

    fn add(&mut self, path: &mut Import, tree: &UseTree) {
        match tree {
            UseTree::Path(it) => {
                path.segments.push(it.ident.clone());
                self.add(path, &it.tree);
                path.segments.pop();
            }
            UseTree::Name(it) => self.bind(path, &it.ident, None),
            UseTree::Rename(it) => self.bind(path, &it.ident, Some(&it.rename)),
            UseTree::Glob(_) => self.globs.push(path.clone()),
            UseTree::Group(it) => it.items.iter().for_each(|tree| self.add(path, tree)),
        }
    }

    fn bind(&mut self, path: &Import, name: &Ident, bound: Option<&Ident>) {
        let mut full = path.clone();
        if name != "self" {
            full.segments.push(name.clone());
        }
        if let Some(name) = bound.or(full.segments.last()).cloned() {
            self.bound.push((name, full));
        }
    }
}

fn own_name(item: &Item) -> Option<Ident> {
    match item {
        Item::Enum(it) => Some(it.ident.clone()),
        Item::ExternCrate(it) => Some(it.ident.clone()),
        Item::Fn(it) => Some(it.sig.ident.clone()),
        Item::Mod(it) => Some(it.ident.clone()),
        Item::Struct(it) => Some(it.ident.clone()),
        Item::Type(it) => Some(it.ident.clone()),
        _ => None,
    }
}

impl Lookup {
    /// Finds where `prefix::name`, written as `path`, is to be looked up.
    pub(super) fn of(scopes: &[Names], path: &Path, prefix: &[Ident], name: &Ident) -> Self {
        let first = prefix.first().unwrap_or(name);
        let written = Import {
            rooted: path.leading_colon.is_some(),
            segments: prefix.iter().chain([name]).cloned().collect(),
        };
        if written.rooted {
            return written.lookup(scopes, false);
        }
        for names in scopes.iter().rev() {
            if names.own.contains(first) {
                return Self::No;
            }
            if let Some((_, import)) = names.bound.iter().rev().find(|(bound, _)| bound == first) {
                let mut full = import.clone();
                full.segments.extend(written.segments.into_iter().skip(1));
                return full.lookup(scopes, true);
            }
        }
        written.lookup(scopes, false)
    }

    /// The same without any path: a path may lead through what is not there.
    pub(super) fn only_here(self) -> Self {
        match self {
            Self::Here { name, globs } if globs.is_empty() => Self::Here { name, globs },
            _ => Self::No,
        }
    }

    /// The name that is looked up, where an import has another one.
    pub(super) fn name(&self, written: &Ident) -> Ident {
        match self {
            Self::Here { name, .. } | Self::In { name, .. } => name.as_ref().unwrap_or(written),
            Self::No => written,
        }
        .clone()
    }

    /// Tells lookups apart.
    pub(super) fn key(&self) -> String {
        match self {
            Self::No => "-".into(),
            Self::Here { globs, .. } => quote!(#(#globs),*).to_string(),
            Self::In {
                name,
                module,
                globs,
                ..
            } => quote!(#module #name #(, #globs)*).to_string(),
        }
    }
}

impl Import {
    fn tokens(&self) -> TokenStream {
        let (root, segments) = (self.rooted.then(|| quote!(::)), &self.segments);
        quote!(#root #(#segments)::*)
    }

    fn is_own(&self, scopes: &[Names]) -> bool {
        let first = self.segments.first();
        first.is_some_and(|first| scopes.iter().any(|names| names.own.contains(first)))
    }

    fn lookup(mut self, scopes: &[Names], imported: bool) -> Lookup {
        let all = || scopes.iter().flat_map(|names| &names.globs);
        if self.is_own(scopes) || all().any(|glob| glob.is_own(scopes)) {
            return Lookup::No;
        }
        let globs = all().map(Self::tokens).collect();
        let last = self.segments.pop();
        let name = last.filter(|_| imported);
        let first = self.segments.first().cloned();
        match first {
            // A crate: nothing that is called.
            None if imported => Lookup::No,
            None if self.rooted => Lookup::No,
            None => Lookup::Here { name, globs },
            // `self` is a word of the language, not a name.
            Some(first) if self.segments.len() == 1 && first.unraw() == "self" && !self.rooted => {
                Lookup::Here {
                    name,
                    globs: Vec::new(),
                }
            }
            first => Lookup::In {
                name,
                module: self.tokens(),
                first: first.filter(|_| !self.rooted),
                globs,
            },
        }
    }
}
