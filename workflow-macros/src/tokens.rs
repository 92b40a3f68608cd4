//! Reading a body as tokens: what the scope rewrite and the determinism scan share.
//!
//! Both work on tokens rather than on a syntax tree, because macro arguments have no tree
//! and must follow the same rules as the code around them.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

/// Words that can stand before `!(…)` without naming a macro.
const KEYWORDS: &[&str] = &[
    "as", "break", "else", "if", "in", "let", "match", "move", "mut", "ref", "return", "while",
    "yield",
];

/// Returns the tokens of a stream as a list.
pub(crate) fn list(stream: TokenStream) -> Vec<TokenTree> {
    stream.into_iter().collect()
}

/// Says whether the token at `at` is this word.
pub(crate) fn is_word(tokens: &[TokenTree], at: usize, word: &str) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Ident(ident)) if ident == word)
}

/// Says whether the token at `at` is this character.
pub(crate) fn is_punct(tokens: &[TokenTree], at: usize, wanted: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// Says whether two characters stand together at `at`, as in `::`.
pub(crate) fn is_pair(tokens: &[TokenTree], at: usize, first: char, second: char) -> bool {
    let joint = matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == first && p.spacing() == Spacing::Joint);
    joint && is_punct(tokens, at + 1, second)
}

/// Returns the group at `at`.
pub(crate) fn group(tokens: &[TokenTree], at: usize) -> Option<&Group> {
    match tokens.get(at) {
        Some(TokenTree::Group(group)) => Some(group),
        _ => None,
    }
}

/// Returns the braces at `at`.
pub(crate) fn braces(tokens: &[TokenTree], at: usize) -> Option<&Group> {
    group(tokens, at).filter(|group| group.delimiter() == Delimiter::Brace)
}

/// Says whether the group at `at` holds the arguments of a macro.
pub(crate) fn is_macro_input(tokens: &[TokenTree], at: usize) -> bool {
    if at < 2 || group(tokens, at).is_none() || !is_punct(tokens, at - 1, '!') {
        return false;
    }
    match &tokens[at - 2] {
        TokenTree::Ident(name) => !KEYWORDS.contains(&&*name.to_string()),
        _ => false,
    }
}

/// If a nested function or macro definition begins at `at`, returns where it ends.
///
/// Such items are not part of the body around them: nothing in them runs when it runs.
pub(crate) fn nested_item_end(tokens: &[TokenTree], at: usize) -> Option<usize> {
    if is_word(tokens, at, "macro_rules") && is_punct(tokens, at + 1, '!') {
        let group = (at + 2..tokens.len()).find(|i| group(tokens, *i).is_some())?;
        return Some(group + 1);
    }
    if !is_word(tokens, at, "fn") || !matches!(tokens.get(at + 1), Some(TokenTree::Ident(_))) {
        return None;
    }
    let end = (at + 2..tokens.len())
        .find(|i| braces(tokens, *i).is_some() || is_punct(tokens, *i, ';'))?;
    Some(end + 1)
}

/// Builds a group like `like` around other tokens, with its span.
///
/// A function whose block has the user's span counts as the user's own: only then does the
/// compiler say that it is never used.
pub(crate) fn regroup(like: &Group, stream: TokenStream) -> Group {
    let mut group = Group::new(like.delimiter(), stream);
    group.set_span(like.span());
    group
}
