//! The `use` declarations inside a body: what a name in it stands for.

use std::collections::HashMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::UseTree;

use crate::tokens::{is_punct, is_word};

/// What the `use` declarations of the blocks around a place bring in.
#[derive(Clone, Default)]
pub(crate) struct Imports {
    names: HashMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

impl Imports {
    /// Adds the `use` declarations of one block, wherever in it they stand.
    pub(crate) fn and_of(&self, block: &[TokenTree]) -> Self {
        let mut all = self.clone();
        for at in 0..block.len() {
            if let Some(end) = use_end(block, at) {
                let tree = block[at + 1..end - 1].iter().cloned();
                let tree: TokenStream = tree.skip_while(is_colon).collect();
                if let Ok(tree) = syn::parse2(tree) {
                    all.add(&mut Vec::new(), &tree);
                }
            }
        }
        all
    }

    fn add(&mut self, parents: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                parents.push(path.ident.to_string());
                self.add(parents, &path.tree);
                parents.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(module) = parents.last() {
                    self.names.insert(module.clone(), parents.clone());
                }
            }
            UseTree::Name(name) => self.bind(parents, &name.ident, &name.ident),
            UseTree::Rename(rename) => self.bind(parents, &rename.ident, &rename.rename),
            UseTree::Glob(_) => self.globs.push(parents.clone()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add(parents, tree);
                }
            }
        }
    }

    fn bind(&mut self, parents: &[String], name: &syn::Ident, bound: &syn::Ident) {
        let mut path = parents.to_vec();
        if name != "self" {
            path.push(name.to_string());
        }
        self.names.insert(bound.to_string(), path);
    }

    /// Returns what a path's first segment stands for, if an import says so.
    pub(crate) fn resolve(&self, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let mut full = self.names.get(first)?.clone();
        full.extend(rest.iter().cloned());
        Some(full)
    }

    /// Returns the full paths that glob imports could make of a path.
    pub(crate) fn through_globs(&self, path: &[String]) -> impl Iterator<Item = Vec<String>> {
        self.globs
            .iter()
            .map(move |glob| glob.iter().chain(path).cloned().collect())
    }
}

fn is_colon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':')
}

/// If a `use` declaration begins at `at`, returns where it ends.
pub(crate) fn use_end(tokens: &[TokenTree], at: usize) -> Option<usize> {
    if !is_word(tokens, at, "use") {
        return None;
    }
    let semicolon = (at + 1..tokens.len()).find(|i| is_punct(tokens, *i, ';'))?;
    Some(semicolon + 1)
}
