//! JSON as journal files need it: text to a tree and back, exactly.
//!
//! Owns a small reader and writer. Not a library's, for four reasons: the order of an object's entries is
//! kept, an integer stays the integer it was, nesting is as deep as a payload's may be and no deeper, and
//! an error has the line it is on. It knows nothing of journals.

use std::borrow::Cow;
use std::fmt::Write as _;

/// How deep a text may nest: a payload nests 256 deep, and its escapes twice as deep.
const MAX_DEPTH: usize = 600;

/// The most values of one tree, so that a hostile text cannot ask for much more memory than a payload takes.
const MAX_VALUES: usize = 4_000_000;

/// What is printed in one line if it goes there.
const LINE: usize = 100;

/// A value. Objects keep the order of their entries.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    /// An integer that is not negative.
    UInt(u64),
    /// A negative integer.
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    /// An object with one entry, which is how everything is written that JSON has no form for.
    pub(super) fn tagged(tag: &'a str, value: Self) -> Self {
        Self::Object(vec![(tag.into(), value)])
    }

    /// What it is, for messages: never the value.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a truth value",
            Self::UInt(_) | Self::Int(_) => "an integer",
            Self::Float(_) => "a fraction",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    pub(super) fn is_scalar(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Object(_))
    }

    /// Writes it: in one line if it is short, otherwise an entry to a line.
    pub(super) fn print(&self, out: &mut String, indent: usize) {
        let before = out.len();
        self.print_short(out);
        if self.is_scalar() || out.len() - before <= LINE {
            return;
        }
        out.truncate(before);
        let line = |out: &mut String, first: bool, indent: usize| {
            out.push_str(if first { "\n" } else { ",\n" });
            out.extend(std::iter::repeat_n(' ', indent));
        };
        match self {
            Self::List(list) => {
                out.push('[');
                for (n, value) in list.iter().enumerate() {
                    line(out, n == 0, indent + 2);
                    value.print(out, indent + 2);
                }
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent));
                out.push(']');
            }
            Self::Object(entries) => {
                out.push('{');
                for (n, (key, value)) in entries.iter().enumerate() {
                    line(out, n == 0, indent + 2);
                    print_text(key, out);
                    out.push_str(": ");
                    value.print(out, indent + 2);
                }
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent));
                out.push('}');
            }
            _ => unreachable!("scalars were printed"),
        }
    }

    fn print_short(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::UInt(number) => {
                let _ = write!(out, "{number}");
            }
            Self::Int(number) => {
                let _ = write!(out, "{number}");
            }
            // With a point or an exponent always, so that it is read as what it was.
            Self::Float(number) => {
                let _ = write!(out, "{number:?}");
            }
            Self::Text(text) => print_text(text, out),
            Self::List(list) => {
                out.push('[');
                for (n, value) in list.iter().enumerate() {
                    out.push_str(if n == 0 { "" } else { ", " });
                    value.print_short(out);
                }
                out.push(']');
            }
            Self::Object(entries) => {
                out.push('{');
                for (n, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if n == 0 { "" } else { ", " });
                    print_text(key, out);
                    out.push_str(": ");
                    value.print_short(out);
                }
                out.push('}');
            }
        }
    }
}

/// Writes a text in quotes.
pub(super) fn print_text(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Line separators too: some editors and languages take them for the end of a line.
            char if char.is_control() || matches!(char, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", char as u32);
            }
            char => out.push(char),
        }
    }
    out.push('"');
}

/// Says what is wrong with a text, and on which line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) line: usize,
    pub(super) problem: String,
}

/// Reads values from a text, one after the other.
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
    values: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            values: 0,
        }
    }

    /// Where the next value begins.
    pub(super) fn place(&mut self) -> usize {
        self.peek();
        self.at
    }

    /// The line of a place, from 1. It is counted: for messages only.
    pub(super) fn line_of(&self, place: usize) -> usize {
        let read = self.text.as_bytes()[..place.min(self.text.len())].iter();
        1 + read.filter(|byte| **byte == b'\n').count()
    }

    pub(super) fn wrong(&self, problem: impl Into<String>) -> Malformed {
        Malformed {
            line: self.line_of(self.at),
            problem: problem.into(),
        }
    }

    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// Takes this byte if it is the next one.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes this byte, which must be the next one.
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        match self.take(byte) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{}`", byte as char))),
        }
    }

    fn unexpected(&self, wanted: &str) -> Malformed {
        match self.text[self.at..].chars().next() {
            Some(char) => self.wrong(format!("{wanted} is expected, and there is {char:?}")),
            None => self.wrong(format!("{wanted} is expected, and the text ends")),
        }
    }

    /// Nothing may follow.
    pub(super) fn end(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end of the text")),
        }
    }

    /// Reads the next value.
    pub(super) fn value(&mut self) -> Result<Json<'a>, Malformed> {
        self.values = 0;
        self.value_at(0)
    }

    fn value_at(&mut self, depth: usize) -> Result<Json<'a>, Malformed> {
        self.values += 1;
        if depth > MAX_DEPTH || self.values > MAX_VALUES {
            let limits = format!("{MAX_DEPTH} levels and {MAX_VALUES} values are the most");
            return Err(self.wrong(format!("it nests too deep or is too large: {limits}")));
        }
        match self.peek() {
            Some(b'"') => self.string().map(Json::Text),
            Some(b'[') => self.list(depth),
            Some(b'{') => self.object(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json<'a>, Malformed> {
        self.expect(b'[')?;
        let mut list = Vec::new();
        if self.take(b']') {
            return Ok(Json::List(list));
        }
        loop {
            list.push(self.value_at(depth + 1)?);
            if !self.take(b',') {
                self.expect(b']')?;
                return Ok(Json::List(list));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json<'a>, Malformed> {
        self.expect(b'{')?;
        let mut entries = Vec::new();
        if self.take(b'}') {
            return Ok(Json::Object(entries));
        }
        loop {
            let key = self.key()?;
            entries.push((key, self.value_at(depth + 1)?));
            if !self.take(b',') {
                self.expect(b'}')?;
                return Ok(Json::Object(entries));
            }
        }
    }

    /// Reads the name of an entry and the colon behind it.
    pub(super) fn key(&mut self) -> Result<Cow<'a, str>, Malformed> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a name in quotes"));
        }
        let key = self.string()?;
        self.expect(b':')?;
        Ok(key)
    }

    fn word(&mut self) -> Result<Json<'a>, Malformed> {
        let rest = &self.text[self.at..];
        let words = [
            ("null", Json::Null),
            ("true", Json::Bool(true)),
            ("false", Json::Bool(false)),
        ];
        for (word, value) in words {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.unexpected("a value"))
    }

    fn number(&mut self) -> Result<Json<'a>, Malformed> {
        let rest = &self.text[self.at..];
        let is_part = |char: char| char.is_ascii_digit() || "+-.eE".contains(char);
        let len = rest.find(|char| !is_part(char)).unwrap_or(rest.len());
        let number = &rest[..len];
        let read = if number.contains(['.', 'e', 'E']) {
            let finite = number.parse().ok().filter(|float: &f64| float.is_finite());
            finite.map(Json::Float)
        } else if let Ok(number) = number.parse() {
            Some(Json::UInt(number))
        } else {
            number.parse().ok().map(Json::Int)
        };
        let read = read.ok_or_else(|| self.wrong("a number is malformed or too large"))?;
        self.at += len;
        Ok(read)
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Malformed> {
        self.at += 1; // the quote
        let rest = &self.text[self.at..];
        let stop = rest.find(|char| matches!(char, '"' | '\\') || char < ' ');
        let stop = stop.ok_or_else(|| self.wrong("a text does not end"))?;
        if rest.as_bytes()[stop] == b'"' {
            self.at += stop + 1;
            return Ok(Cow::Borrowed(&rest[..stop]));
        }
        let mut text = rest[..stop].to_owned();
        let mut chars = rest[stop..].char_indices();
        loop {
            let Some((at, char)) = chars.next() else {
                return Err(self.wrong("a text does not end"));
            };
            match char {
                '"' => {
                    self.at += stop + at + 1;
                    return Ok(Cow::Owned(text));
                }
                '\\' => {
                    let escaped = escaped(&mut chars);
                    let wrong = || self.wrong("an escape in a text is malformed");
                    text.push(escaped.ok_or_else(wrong)?);
                }
                char if char < ' ' => {
                    return Err(self.wrong("a line ends within a text: write it as \\n"));
                }
                char => text.push(char),
            }
        }
    }
}

/// What stands behind a backslash.
fn escaped(chars: &mut std::str::CharIndices<'_>) -> Option<char> {
    Some(match chars.next()?.1 {
        '"' => '"',
        '\\' => '\\',
        '/' => '/',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => {
            let first = hex4(chars)?;
            if !(0xd800..0xdc00).contains(&first) {
                return char::from_u32(first);
            }
            // The first half of a character beyond 16 bits.
            if chars.next()?.1 != '\\' || chars.next()?.1 != 'u' {
                return None;
            }
            let second = hex4(chars)?;
            let second = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
            return char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + second);
        }
        _ => return None,
    })
}

fn hex4(chars: &mut std::str::CharIndices<'_>) -> Option<u32> {
    (0..4).try_fold(0, |number, _| {
        Some(number * 16 + chars.next()?.1.to_digit(16)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Json<'_>, Malformed> {
        let mut reader = Reader::new(text);
        let value = reader.value()?;
        reader.end().map(|()| value)
    }

    #[test]
    fn what_is_printed_is_read_as_it_was() {
        let long = "x".repeat(120);
        let value = Json::Object(vec![
            ("a\"b\\c\n\u{1}\u{2028}😀".into(), Json::text(&*long)),
            ("max".into(), Json::UInt(u64::MAX)),
            ("min".into(), Json::Int(i64::MIN)),
            ("empty".into(), Json::List(vec![])),
            (
                "floats".into(),
                Json::List(
                    [0.0, -0.0, 1.0, 1e300, 5e-324, 0.1, -1e21]
                        .map(Json::Float)
                        .into(),
                ),
            ),
            (
                "twice".into(),
                Json::Object(vec![
                    ("k".into(), Json::Null),
                    ("k".into(), Json::Bool(true)),
                ]),
            ),
        ]);
        let mut text = String::new();
        value.print(&mut text, 0);
        let again = read(&text).unwrap();
        assert_eq!(again, value);
        assert_eq!(format!("{again:?}"), format!("{value:?}"), "-0.0 is -0.0");
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_line() {
        let bad = [
            "",
            "nul",
            "[1,]",
            "{\"a\" 1}",
            "\"a",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "1e999",
            "--1",
            "1.2.3",
            "[1 2]",
            "{1: 2}",
            "\"a\nb\"",
            "99999999999999999999",
            "[",
            "{",
            "1 2",
            "\u{feff}1",
            "\"\\",
            "\"\\u12\"",
            "-",
        ];
        for text in bad {
            assert!(read(text).is_err(), "{text:?} was read");
        }
        assert_eq!(read("[\n1,\n\n!]").unwrap_err().line, 4);
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read(&format!("{}{}", "[".repeat(500), "]".repeat(500))).is_ok());
        let many = format!("[{}0]", "0,".repeat(MAX_VALUES));
        assert!(read(&many).is_err());
    }

    #[test]
    fn escapes_of_others_are_read() {
        let text = r#""\u00e9\ud83d\ude00\/\b\f""#;
        assert_eq!(read(text).unwrap(), Json::text("é😀/\u{8}\u{c}"));
    }
}
