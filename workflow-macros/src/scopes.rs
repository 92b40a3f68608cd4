//! The rewrite that gives every `async` block of a workflow a scope of its own.
//!
//! A step's id depends on the scope that makes the call, so that a step added in one branch
//! of a join moves no id in another. The rule is part of the id derivation and frozen with it:
//!
//! 1. `async [move] { … }` becomes `block_scope(async [move] { … })`, at any depth and in
//!    macro arguments too. There is no list of known macros.
//! 2. `async [move] |…| body`, outside macro arguments, keeps its head; its body becomes
//!    `closure_scope(async { body }).await`.
//! 3. Plain closures open no scope: how often `sort_by` calls one is not structure.
//! 4. Nested `fn` items and `macro_rules!` definitions are left alone: they are not this body.
//!
//! It works on tokens, so `?`, `return`, labels and inference inside a block stay as they were.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::Expr;
use syn::parse::{ParseStream, Parser};

use crate::tokens::{
    braces, is_macro_input, is_pair, is_punct, is_word, list, nested_item_end, regroup,
};

/// Where the tokens being rewritten stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Code,
    MacroInput,
}

/// Rewrites a body. `door` is the path of the runtime's `__private`.
pub(crate) fn rewrite(body: &Group, door: &TokenStream) -> Group {
    regroup(body, Rewrite { door }.stream(body.stream(), Within::Code))
}

struct Rewrite<'a> {
    door: &'a TokenStream,
}

/// An async closure found in a list of tokens.
struct Closure {
    /// Where its parameters end.
    head_end: usize,
    /// The return type, if it is written.
    returns: Option<TokenStream>,
    /// Its body as one expression.
    body: TokenStream,
    /// Where the token after it is.
    end: usize,
}

impl Rewrite<'_> {
    fn stream(&self, stream: TokenStream, within: Within) -> TokenStream {
        let tokens = list(stream);
        let mut out = TokenStream::new();
        let mut at = 0;
        while at < tokens.len() {
            at = self.token(&tokens, at, within, &mut out);
        }
        out
    }

    /// Rewrites what begins at `at` and returns where the rest begins.
    fn token(
        &self,
        tokens: &[TokenTree],
        at: usize,
        within: Within,
        out: &mut TokenStream,
    ) -> usize {
        if let Some(end) = nested_item_end(tokens, at) {
            out.extend(tokens[at..end].iter().cloned());
            return end;
        }
        if is_word(tokens, at, "async") {
            let head = at + 1 + usize::from(is_word(tokens, at + 1, "move"));
            if let Some(block) = braces(tokens, head) {
                out.extend(self.block(&tokens[at..head], block, within));
                return head + 1;
            }
            if within == Within::Code
                && let Some(closure) = find_closure(tokens, head)
            {
                out.extend(tokens[at..closure.head_end].iter().cloned());
                out.extend(self.closure(&closure, tokens[at].span()));
                return closure.end;
            }
        }
        out.extend([match &tokens[at] {
            TokenTree::Group(group) => {
                let inside = if is_macro_input(tokens, at) {
                    Within::MacroInput
                } else {
                    within
                };
                regroup(group, self.stream(group.stream(), inside)).into()
            }
            other => other.clone(),
        }]);
        at + 1
    }

    fn block(&self, head: &[TokenTree], block: &Group, within: Within) -> TokenStream {
        let span = Span::mixed_site().located_at(head[0].span());
        let door = self.door;
        let block = regroup(block, self.stream(block.stream(), within));
        quote_spanned!(span=> #door::block_scope(#(#head)* #block))
    }

    /// The rest of an async closure after its parameters.
    ///
    /// The inner block borrows what it uses, whether the closure moves or not: it is awaited
    /// on the spot, and a `move` would make every such closure callable only once.
    fn closure(&self, closure: &Closure, place: Span) -> TokenStream {
        let span = Span::mixed_site().located_at(place);
        let door = self.door;
        let body = self.stream(closure.body.clone(), Within::Code);
        let (arrow, pin) = match &closure.returns {
            Some(ty) => (
                quote_spanned!(span=> -> #ty),
                // Gives the inner block the return type that the closure declares.
                quote_spanned! {span=>
                    if let ::core::option::Option::Some(value) = ::core::option::Option::<#ty>::None {
                        return value;
                    }
                },
            ),
            None => (quote!(), quote!()),
        };
        quote_spanned! {span=>
            #arrow { #door::closure_scope(async { #pin #body }).await }
        }
    }
}

/// Finds the async closure whose parameters begin at `at`.
fn find_closure(tokens: &[TokenTree], at: usize) -> Option<Closure> {
    if !is_punct(tokens, at, '|') {
        return None;
    }
    let close = (at + 1..tokens.len()).find(|i| is_punct(tokens, *i, '|'))?;
    let head_end = close + 1;
    if is_pair(tokens, head_end, '-', '>') {
        let block = (head_end + 2..tokens.len()).find(|i| braces(tokens, *i).is_some())?;
        return Some(Closure {
            head_end,
            returns: Some(tokens[head_end + 2..block].iter().cloned().collect()),
            body: tokens[block].clone().into(),
            end: block + 1,
        });
    }
    let rest: TokenStream = tokens[head_end..].iter().cloned().collect();
    let parser = |input: ParseStream<'_>| {
        input.parse::<Expr>()?;
        input.parse::<TokenStream>()
    };
    let after = parser.parse2(rest).ok()?;
    let end = tokens.len() - after.into_iter().count();
    Some(Closure {
        head_end,
        returns: None,
        body: tokens[head_end..end].iter().cloned().collect(),
        end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(body: &str) -> String {
        let body: TokenStream = body.parse().expect("the body has balanced tokens");
        let group = Group::new(proc_macro2::Delimiter::Brace, body);
        rewrite(&group, &quote!(d)).stream().to_string()
    }

    fn normal(text: &str) -> String {
        let tokens: TokenStream = text.parse().expect("the text has balanced tokens");
        tokens.to_string()
    }

    #[test]
    fn every_async_block_opens_a_scope_and_nothing_else_does() {
        let table = [
            ("async { a() }", "d::block_scope(async { a() })"),
            (
                "async move { a() }.await",
                "d::block_scope(async move { a() }).await",
            ),
            (
                "join!(async { a() }, b())",
                "join!(d::block_scope(async { a() }), b())",
            ),
            (
                "async { async move { a() } }",
                "d::block_scope(async { d::block_scope(async move { a() }) })",
            ),
            (
                "v.iter().map(|x| async move { a(x) })",
                "v.iter().map(|x| d::block_scope(async move { a(x) }))",
            ),
            (
                "select! { r = async { 1 } => r }",
                "select! { r = d::block_scope(async { 1 }) => r }",
            ),
            ("vec![async { 1 }]", "vec![d::block_scope(async { 1 })]"),
            ("v.sort_by(|a, b| a.cmp(b))", "v.sort_by(|a, b| a.cmp(b))"),
            ("let r#async = 1; r#async", "let r#async = 1; r#async"),
        ];
        for (written, expected) in table {
            assert_eq!(rewritten(written), normal(expected), "{written}");
        }
    }

    #[test]
    fn the_body_of_an_async_closure_opens_a_scope() {
        let table = [
            (
                "async |x| { a(x).await }",
                "async |x| { d::closure_scope(async { { a(x).await } }).await }",
            ),
            (
                "f(async move |x, y| a(x, y).await?, 2)",
                "f(async move |x, y| { d::closure_scope(async { a(x, y).await? }).await }, 2)",
            ),
            (
                "async || async { 1 }",
                "async || { d::closure_scope(async { d::block_scope(async { 1 }) }).await }",
            ),
            (
                "if !(async |x| x)(1).await {}",
                "if !(async |x| { d::closure_scope(async { x }).await })(1).await {}",
            ),
        ];
        for (written, expected) in table {
            assert_eq!(rewritten(written), normal(expected), "{written}");
        }
    }

    #[test]
    fn a_written_return_type_of_an_async_closure_reaches_its_body() {
        let text = rewritten("async |x: u8| -> Result<u8> { Ok(a(x)?) }");
        assert!(
            text.starts_with(&normal("async |x: u8| -> Result<u8>")),
            "{text}"
        );
        assert!(
            text.contains("Option :: < Result < u8 > > :: None"),
            "{text}"
        );
    }

    #[test]
    fn an_async_closure_in_macro_arguments_is_left_alone_but_not_its_blocks() {
        assert_eq!(
            rewritten("m!(async |x| async { x })"),
            normal("m!(async |x| d::block_scope(async { x }))")
        );
    }

    #[test]
    fn nested_items_are_not_part_of_the_body() {
        for written in [
            "async fn helper() { async { 1 }.await }",
            "fn helper() -> impl Future { async { 1 } }",
            "impl T { async fn a() { async {} ; } }",
            "#[step] async fn a() { async { 1 }.await }",
            "macro_rules! m { () => { async { 1 } } }",
        ] {
            assert_eq!(rewritten(written), normal(written), "{written}");
        }
        assert_eq!(
            rewritten("fn a() { async {} } async {}"),
            normal("fn a() { async {} } d::block_scope(async {})")
        );
        assert_eq!(
            rewritten("let f: fn(u8) = g; async {}"),
            normal("let f: fn(u8) = g; d::block_scope(async {})")
        );
    }
}
