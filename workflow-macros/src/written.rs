//! Tokens as a person would write them: for descriptions of a function, never for code.
//!
//! The compiler's own printing puts a space between all tokens that passed through a macro. This is
//! a guess by the neighbours of a token; a wrong guess costs a space in a picture.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;

/// Longest text that is kept of a condition or a pattern: it labels a branch, it does not repeat it.
const LONGEST: usize = 60;

/// What stands left of the next token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Nothing, or an opening bracket, or an operator that is glued to what follows.
    Glue,
    /// A name, a literal or a closing bracket: what follows may be an operator.
    Operand,
    /// A name that begins with an upper-case letter: `<` after it opens its arguments.
    Type,
    /// A word of the language.
    Word,
    /// An operator or a comma.
    Operator,
}

/// What is open and not closed yet.
#[derive(Default)]
struct Open {
    /// Lists of type arguments.
    angles: usize,
    /// The parameters of a closure.
    closure: bool,
}

/// Words after which `&`, `*` and `-` stand for themselves.
const WORDS: &[&str] = &[
    "as", "async", "await", "break", "dyn", "else", "for", "if", "impl", "in", "let", "match",
    "move", "mut", "ref", "return", "where", "while",
];

/// Writes tokens down.
pub(crate) fn written(tokens: &impl ToTokens) -> String {
    let mut text = String::new();
    write(tokens.to_token_stream(), &mut text);
    text
}

/// Writes tokens down, shortened to what fits a label.
pub(crate) fn label(tokens: &impl ToTokens) -> String {
    let text = written(tokens);
    if text.chars().count() <= LONGEST {
        return text;
    }
    let mut short: String = text.chars().take(LONGEST - 1).collect();
    short.push('…');
    short
}

fn write(stream: TokenStream, text: &mut String) {
    let mut opened = Open::default();
    let mut left = Left::Glue;
    let mut tokens = stream.into_iter().peekable();
    while let Some(token) = tokens.next() {
        left = match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{ ", " }"),
                    Delimiter::None => ("", ""),
                };
                let apart = group.delimiter() == Delimiter::Brace && left != Left::Glue;
                if apart || matches!(left, Left::Word | Left::Operator) {
                    space(text);
                }
                text.push_str(open);
                write(group.stream(), text);
                text.push_str(close);
                Left::Operand
            }
            TokenTree::Ident(ident) => {
                if left != Left::Glue {
                    space(text);
                }
                let name = ident.to_string();
                let lifetime = text.ends_with('\'');
                text.push_str(&name);
                match WORDS.contains(&&*name) {
                    true if name != "await" => Left::Word,
                    _ if lifetime => Left::Word,
                    _ if name.starts_with(char::is_uppercase) => Left::Type,
                    _ => Left::Operand,
                }
            }
            TokenTree::Literal(literal) => {
                if left != Left::Glue {
                    space(text);
                }
                text.push_str(&literal.to_string());
                Left::Operand
            }
            TokenTree::Punct(punct) => {
                let mut operator = String::from(punct.as_char());
                let mut joint = punct.spacing() == Spacing::Joint;
                while joint {
                    let Some(TokenTree::Punct(next)) = tokens.peek() else {
                        break;
                    };
                    if !one_operator(&operator, next.as_char()) {
                        break;
                    }
                    operator.push(next.as_char());
                    joint = next.spacing() == Spacing::Joint;
                    tokens.next();
                }
                punctuate(&operator, left, text, &mut opened)
            }
        };
    }
}

/// Says whether a character that follows at once belongs to the operator before it.
fn one_operator(operator: &str, next: char) -> bool {
    match operator {
        "'" | "," | ";" | "?" | "::" => false,
        // `>>` may close two lists of arguments.
        "<" | ">" => next == '=',
        _ => next != '\'',
    }
}

fn punctuate(operator: &str, left: Left, text: &mut String, opened: &mut Open) -> Left {
    let after_operand = matches!(left, Left::Operand | Left::Type);
    match operator {
        "." | "::" | "..=" | ".." => {
            if left == Left::Operator && operator.starts_with("..") {
                space(text);
            }
            text.push_str(operator);
            Left::Glue
        }
        "," | ";" | ":" => {
            text.push_str(operator);
            Left::Operator
        }
        "?" => {
            text.push('?');
            Left::Operand
        }
        "!" if after_operand => {
            text.push('!');
            Left::Glue
        }
        "<" if left == Left::Type || (left == Left::Glue && text.ends_with("::")) => {
            opened.angles += 1;
            text.push('<');
            Left::Glue
        }
        ">" if opened.angles > 0 => {
            opened.angles -= 1;
            text.push('>');
            Left::Type
        }
        "|" if opened.closure || !after_operand => {
            if !opened.closure && left != Left::Glue {
                space(text);
            }
            text.push('|');
            opened.closure = !opened.closure;
            match opened.closure {
                true => Left::Glue,
                false => Left::Operator,
            }
        }
        "&" | "*" | "-" | "!" | "'" | "#" | "$" | "&&" if !after_operand => {
            if left != Left::Glue {
                space(text);
            }
            text.push_str(operator);
            Left::Glue
        }
        _ => {
            if left != Left::Glue {
                space(text);
            }
            text.push_str(operator);
            Left::Operator
        }
    }
}

fn space(text: &mut String) {
    if !text.is_empty() && !text.ends_with(' ') {
        text.push(' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_written_as_a_person_writes_them() {
        for text in [
            "Result<Receipt, Error>",
            "Option<&str>",
            "&'a [u8]",
            "std::collections::HashMap<String, Vec<(u8, u8)>>",
            "impl Into<U>",
            "Box<dyn Fn(u8) -> u8>",
            "order.total > 100 && !order.paid",
            "let Some(x) = &self.next",
            "a == b.len() - 1",
            "x < 5",
            "Ok(n) if n >= 3",
            "Some(Order { id, .. })",
            "order.items.iter().any(|item| item.open)",
            "for item in &order.items",
            "charge(a, 5)?.await",
            "f::<u8>(1)",
            "0..5",
        ] {
            let tokens: TokenStream = text.parse().expect("the test's own tokens");
            assert_eq!(written(&tokens), text);
        }
    }

    #[test]
    fn a_label_is_cut_to_a_length_that_can_be_shown() {
        let long: TokenStream = "a && ".repeat(30).parse().expect("tokens");
        let label = label(&long);
        assert_eq!(label.chars().count(), LONGEST);
        assert!(label.ends_with('…'), "{label}");
    }
}
