//! The `Idempotency-Key` header: what a client may write, and the key that it means.
//!
//! Owns the syntax. Never echoes what it refuses: a key may be secret.

use http::{HeaderMap, HeaderName};

use crate::key::Key;

/// The header that names the key.
pub(super) const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest key in a header: ids and hashes are far below.
pub(super) const MAX_LEN: usize = 255;

/// Reads the key of a request; `None` if it names none.
///
/// Two forms mean the same: a quoted string, as structured fields have it (`"8e03978e"`), and the bare text
/// (`8e03978e`), which most clients send.
///
/// # Errors
///
/// Says which rule was broken.
pub(super) fn key_of(headers: &HeaderMap) -> Result<Option<Key>, &'static str> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err("the header is there more than once");
    }
    let value = value.to_str();
    let value = value.map_err(|_| "it may hold visible ASCII characters only")?;
    let value = value.trim_matches([' ', '\t']);
    let key = match value.strip_prefix('"') {
        Some(quoted) => unquoted(quoted)?,
        None => bare(value)?,
    };
    match key.len() {
        0 => Err("it is empty"),
        1..=MAX_LEN => Ok(Some(Key::from(key))),
        _ => Err("it is longer than 255 characters"),
    }
}

/// Reads what stands behind the first quotation mark: printable ASCII, with `\"` and `\\`, up to the second one.
fn unquoted(rest: &str) -> Result<String, &'static str> {
    let mut key = String::with_capacity(rest.len());
    let mut characters = rest.chars();
    loop {
        match characters.next() {
            None => return Err("its quotation mark is not closed"),
            Some('"') => break,
            Some('\\') => match characters.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                _ => return Err("only a quotation mark and a backslash can be escaped"),
            },
            Some(plain @ ' '..='~') => key.push(plain),
            Some(_) => return Err("it may hold visible ASCII characters only"),
        }
    }
    match characters.next() {
        None => Ok(key),
        Some(_) => Err("nothing may follow the closing quotation mark"),
    }
}

/// Reads a key without quotation marks.
fn bare(value: &str) -> Result<String, &'static str> {
    let is_fine = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | ',' | ';');
    match value.chars().all(is_fine) {
        true => Ok(value.to_owned()),
        false => Err(
            "without quotation marks it may hold no blank, comma, semicolon, quotation mark or backslash",
        ),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn read(values: &[&str]) -> Result<Option<String>, &'static str> {
        let mut headers = HeaderMap::new();
        for value in values {
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header value");
            headers.append(KEY, value);
        }
        key_of(&headers).map(|key| key.map(|key| key.as_str().to_owned()))
    }

    #[test]
    fn a_quoted_and_a_bare_key_are_the_same() {
        for value in ["\"8e03978e-40d5\"", "8e03978e-40d5", "  8e03978e-40d5\t"] {
            assert_eq!(read(&[value]), Ok(Some("8e03978e-40d5".to_owned())));
        }
        assert_eq!(
            read(&[r#""a \"b\" \\ c""#]),
            Ok(Some(r#"a "b" \ c"#.to_owned()))
        );
        assert_eq!(read(&[]), Ok(None));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let long = "k".repeat(256);
        let wrong = [
            "",
            "\"\"",
            "\"open",
            "\"a\" b",
            "\"a\";b=1",
            "a b",
            "a,b",
            "a;b",
            "a\"b",
            "a\\b",
            "\"a\\b\"",
            "é",
            &long,
        ];
        for value in wrong {
            assert!(read(&[value]).is_err(), "{value:?}");
        }
        assert!(read(&["a", "a"]).is_err());
        assert!(read(&[&long[1..]]).is_ok());
    }

    proptest! {
        #[test]
        fn every_printable_key_comes_back_quoted(key in "[ -~]{1,255}") {
            let quoted = format!("\"{}\"", key.replace('\\', r"\\").replace('"', "\\\""));
            prop_assert_eq!(read(&[&quoted]), Ok(Some(key)));
        }
    }
}
