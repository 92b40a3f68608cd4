//! The compile-time half of the determinism check: what a workflow's body may not name.
//!
//! It sees paths in the body and in macro arguments, `use` declarations inside the body, and
//! the `select!` macros. It cannot see into functions that the body calls, bare names that a
//! file-level `use` brought in, methods, or the order in which a `HashMap` is iterated. Those
//! are left to the checks while running and in replay; `docs/determinism.md` says so.
//!
//! `nondeterministic!(…)` and nested items are skipped.

mod imports;
mod rules;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::ext::IdentExt;

use self::imports::{Imports, use_end};
use self::rules::Kind;
use crate::diagnostics::{Diagnostics, Place};
use crate::tokens::{group, is_macro_input, is_pair, is_punct, is_word, list, nested_item_end};

/// Reports everything in a body that a replay would see otherwise.
pub(crate) fn scan(body: &Group, diagnostics: &Diagnostics) {
    Scan { diagnostics }.stream(body.stream(), &Imports::default());
}

struct Scan<'a> {
    diagnostics: &'a Diagnostics,
}

/// A path found in a list of tokens.
struct Found {
    segments: Vec<String>,
    /// Written with a leading `::`, so that no import changes it.
    absolute: bool,
    start: usize,
    end: usize,
}

impl Scan<'_> {
    fn stream(&self, stream: TokenStream, outside: &Imports) {
        let tokens = list(stream);
        let imports = outside.and_of(&tokens);
        let mut at = 0;
        while at < tokens.len() {
            at = self.token(&tokens, at, &imports);
        }
    }

    /// Looks at what begins at `at` and returns where the rest begins.
    fn token(&self, tokens: &[TokenTree], at: usize, imports: &Imports) -> usize {
        if let Some(end) = nested_item_end(tokens, at).or_else(|| use_end(tokens, at)) {
            return end;
        }
        if let Some(group) = group(tokens, at) {
            let attribute = group.delimiter() == Delimiter::Bracket
                && at > 0
                && (is_punct(tokens, at - 1, '#') || is_inner_attribute(tokens, at));
            if !attribute {
                self.stream(group.stream(), imports);
            }
            return at + 1;
        }
        let Some(path) = find_path(tokens, at) else {
            return at + 1;
        };
        if is_macro_input(tokens, path.end + 1) {
            if path
                .segments
                .last()
                .is_some_and(|last| last == "nondeterministic")
            {
                return path.end + 2;
            }
            if self.is_select(tokens, &path, imports) {
                return path.end + 1;
            }
        }
        if let Some(kind) = judge(tokens, &path, imports) {
            self.report(tokens, &path, kind);
        }
        path.end
    }

    /// Handles a macro named `select`, and says whether it was one.
    fn is_select(&self, tokens: &[TokenTree], path: &Found, imports: &Imports) -> bool {
        let full = resolved(path, imports);
        if full.last().is_none_or(|last| last != "select") {
            return false;
        }
        let inside = group(tokens, path.end + 1).map(|group| list(group.stream()));
        let biased =
            inside.is_some_and(|inside| is_word(&inside, 0, "biased") && is_punct(&inside, 1, ';'));
        if let Some(kind) = rules::find_select(&full, biased) {
            self.report(tokens, path, kind);
        }
        true
    }

    fn report(&self, tokens: &[TokenTree], path: &Found, kind: &Kind) {
        let mut written = path.segments.join("::");
        if is_macro_input(tokens, path.end + 1) {
            written.push('!');
        }
        let place: TokenStream = tokens[path.start..path.end].iter().cloned().collect();
        self.diagnostics
            .on(Place::Inside, place, kind.message(&written));
    }
}

/// Says what a path means in the light of the imports.
fn judge(tokens: &[TokenTree], path: &Found, imports: &Imports) -> Option<&'static Kind> {
    if path.segments.len() == 1 && !is_used_as_function(tokens, path) {
        return None;
    }
    if path.absolute {
        return rules::find(&path.segments);
    }
    if let Some(full) = imports.resolve(&path.segments) {
        return rules::find(&full);
    }
    let mut through_globs = imports.through_globs(&path.segments);
    through_globs
        .find_map(|full| rules::find_in_full(&full))
        .or_else(|| rules::find(&path.segments))
}

fn resolved(path: &Found, imports: &Imports) -> Vec<String> {
    let through = (!path.absolute).then(|| imports.resolve(&path.segments));
    through.flatten().unwrap_or_else(|| path.segments.clone())
}

/// Says whether a single name is called, or passed alone as an argument: a field or a
/// binding of the same name is neither.
fn is_used_as_function(tokens: &[TokenTree], path: &Found) -> bool {
    let called = group(tokens, path.end)
        .is_some_and(|group| group.delimiter() == Delimiter::Parenthesis)
        || is_pair(tokens, path.end, ':', ':');
    let begins = path.start == 0 || is_punct(tokens, path.start - 1, ',');
    let ends = path.end == tokens.len() || is_punct(tokens, path.end, ',');
    called || (begins && ends)
}

/// Reads the path that begins at `at`.
fn find_path(tokens: &[TokenTree], at: usize) -> Option<Found> {
    let absolute = is_pair(tokens, at, ':', ':');
    let mut end = if absolute { at + 2 } else { at };
    let follows_dot =
        at > 0 && is_punct(tokens, at - 1, '.') && !(at > 1 && is_pair(tokens, at - 2, '.', '.'));
    let mut segments = Vec::new();
    while let Some(TokenTree::Ident(ident)) = tokens.get(end) {
        segments.push(ident.unraw().to_string());
        end += 1;
        let after = if is_pair(tokens, end, ':', ':') {
            end + 2
        } else {
            break;
        };
        match tokens.get(after) {
            Some(TokenTree::Ident(_)) => end = after,
            Some(TokenTree::Punct(open)) if open.as_char() == '<' => {
                let closed = generics_end(tokens, after);
                if is_pair(tokens, closed, ':', ':') {
                    end = closed + 2;
                } else {
                    break;
                }
            }
            _ => break,
        }
    }
    if segments.is_empty() || follows_dot {
        return None;
    }
    Some(Found {
        segments,
        absolute,
        start: at,
        end,
    })
}

/// Returns where the `<…>` that opens at `at` ends.
fn generics_end(tokens: &[TokenTree], at: usize) -> usize {
    let mut depth = 0_usize;
    for end in at..tokens.len() {
        if is_punct(tokens, end, '<') {
            depth += 1;
        } else if is_punct(tokens, end, '>') && !(end > 0 && is_pair(tokens, end - 1, '-', '>')) {
            depth -= 1;
            if depth == 0 {
                return end + 1;
            }
        }
    }
    tokens.len()
}

fn is_inner_attribute(tokens: &[TokenTree], at: usize) -> bool {
    at > 1 && is_punct(tokens, at - 1, '!') && is_punct(tokens, at - 2, '#')
}

#[cfg(test)]
mod tests;
