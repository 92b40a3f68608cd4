//! Calls in the arguments of macros, which have no grammar of their own.
//!
//! Arguments that are expressions are walked as such. What is not (the arms of a `select!`) is read token
//! by token: blocks in it are walked, and `name(..)` is a call.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Block, Expr, Path, Token};

use super::{Node, Walk, drives_together};
use crate::tokens::{braces, is_pair, is_punct, is_word, list, nested_item_end};

impl Walk {
    pub(super) fn macro_input(&mut self, it: &syn::Macro) {
        let name = super::text_of(&it.path);
        if name == "macro_rules" {
            return;
        }
        let tokens = list(it.tokens.clone());
        let together = drives_together(&name);
        match (expressions(&it.tokens), together) {
            (Some(all), false) => all.iter().for_each(|expr| self.visit_expr(expr)),
            (Some(all), true) => {
                let branch = |walk: &mut Self, expr| walk.apart(|walk| walk.visit_expr(expr));
                let branches = all.iter().map(|expr| branch(self, expr)).collect();
                self.push_together(name, it.path.span(), branches);
            }
            (None, false) => self.scan(&tokens),
            (None, true) => {
                let arm = |walk: &mut Self, arm: &[TokenTree]| walk.apart(|walk| walk.scan(arm));
                let branches = arms(&tokens).into_iter().map(|it| arm(self, it)).collect();
                self.push_together(name, it.path.span(), branches);
            }
        }
    }

    /// Finds blocks and calls in tokens of an unknown grammar.
    fn scan(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        while at < tokens.len() {
            if let Some(end) = nested_item_end(tokens, at) {
                at = end;
                continue;
            }
            if is_word(tokens, at, "async") {
                let head = at + 1 + usize::from(is_word(tokens, at + 1, "move"));
                if let Some(block) = braces(tokens, head) {
                    let body = self.apart(|walk| walk.scan_group(block));
                    let place = tokens[at].span();
                    if !body.is_empty() {
                        self.out.push(Node::Block { place, body });
                    }
                    at = head + 1;
                    continue;
                }
            }
            match &tokens[at] {
                TokenTree::Ident(_) => at = self.scan_path(tokens, at),
                TokenTree::Group(group) => {
                    self.scan_group(group);
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// Reads the path that begins at `at`; if it is called, that is a call.
    fn scan_path(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let mut end = at + 1;
        while is_pair(tokens, end, ':', ':')
            && matches!(tokens.get(end + 2), Some(TokenTree::Ident(_)))
        {
            end += 3;
        }
        let Some(TokenTree::Group(arguments)) = tokens.get(end) else {
            return end;
        };
        let method = at > 0 && is_punct(tokens, at - 1, '.');
        let tried = is_punct(tokens, end + 1, '?');
        self.scan_group(arguments);
        if arguments.delimiter() == Delimiter::Parenthesis && !method && !tried {
            let path = tokens[at..end].iter().cloned().collect::<TokenStream>();
            if let Ok(path) = syn::parse2::<Path>(path) {
                self.call(&path);
            }
        }
        end + 1
    }

    fn scan_group(&mut self, group: &Group) {
        let whole = TokenStream::from(TokenTree::from(group.clone()));
        if group.delimiter() == Delimiter::Brace
            && let Ok(block) = syn::parse2::<Block>(whole)
        {
            return self.visit_block(&block);
        }
        match expressions(&group.stream()) {
            Some(all) => all.iter().for_each(|expr| self.visit_expr(expr)),
            None => self.scan(&list(group.stream())),
        }
    }
}

/// The tokens as expressions between commas, if they are that.
fn expressions(tokens: &TokenStream) -> Option<Punctuated<Expr, Token![,]>> {
    let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
    parser.parse2(tokens.clone()).ok()
}

/// The arms of something like `select!`: each up to the comma or the block after its `=>`.
fn arms(tokens: &[TokenTree]) -> Vec<&[TokenTree]> {
    let mut arms = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < tokens.len() {
        if is_pair(tokens, at, '=', '>') {
            let body = at + 2;
            let end = match braces(tokens, body) {
                Some(_) => body + 1,
                None => (body..tokens.len())
                    .find(|i| is_punct(tokens, *i, ','))
                    .unwrap_or(tokens.len()),
            };
            arms.push(&tokens[start..end]);
            start = end;
            at = end;
        } else {
            at += 1;
        }
    }
    arms.push(&tokens[start.min(tokens.len())..]);
    arms
}
