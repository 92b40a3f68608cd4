//! Payloads as JSON values, and back to the same bytes.
//!
//! Owns the form of a payload in a file. MessagePack says more than JSON, so what JSON cannot say is an
//! object with one entry whose name begins with `$`; bytes that are not MessagePack in its
//! shortest form are written as they are. It never asks for the type of a value.

use rmpv::Value;

use super::json::Json;

/// How deep a payload may nest to be shown as a value.
pub(super) const MAX_DEPTH: usize = 256;

/// A place in a payload: from the root, which entry of a map or element of a list, and so on.
pub(super) type Place = Vec<u32>;

/// Reads MessagePack in whatever form; `None` if it is something else, or more than one value.
pub(super) fn parse_any(payload: &[u8]) -> Option<Value> {
    let mut rest = payload;
    let value = rmpv::decode::read_value_with_max_depth(&mut rest, MAX_DEPTH).ok()?;
    rest.is_empty().then_some(value)
}

/// Reads MessagePack; `None` if it is something else, or more than one value, or not in its shortest form:
/// then it would not come out as the same bytes.
pub(super) fn parse(payload: &[u8]) -> Option<Value> {
    parse_any(payload).filter(|value| encode(value) == payload)
}

/// Encodes a value.
pub(super) fn encode(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).expect("a Vec takes every write");
    bytes
}

/// Shows a payload. What stands at one of these places was taken out, and something else put there.
pub(super) fn to_json(payload: &[u8], redacted: &[Place]) -> Json<'static> {
    match parse(payload) {
        Some(value) => show(&value, &mut Vec::new(), redacted),
        None => Json::tagged("$payload", hex(payload)),
    }
}

/// Lower-case digits of bytes.
pub(super) fn hex(bytes: &[u8]) -> Json<'static> {
    Json::text(hex_text(bytes))
}

pub(super) fn hex_text(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| {
        [
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]
    });
    digits.map(char::from).collect()
}

/// Reads what [`hex_text`] writes.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    bytes.collect()
}

fn show(value: &Value, place: &mut Place, redacted: &[Place]) -> Json<'static> {
    let shown = match value {
        Value::Nil => Json::Null,
        Value::Boolean(value) => Json::Bool(*value),
        Value::Integer(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Json::UInt(number),
            (None, number) => Json::Int(number.unwrap_or_default()),
        },
        Value::F64(number) if number.is_finite() => Json::Float(*number),
        Value::F64(number) => Json::tagged("$f64", hex(&number.to_be_bytes())),
        Value::F32(number) if number.is_finite() => {
            Json::tagged("$f32", Json::Float(f64::from(*number)))
        }
        Value::F32(number) => Json::tagged("$f32", hex(&number.to_be_bytes())),
        // One that is not UTF-8 does not come out as the same bytes, and was not parsed.
        Value::String(text) => Json::text(text.as_str().unwrap_or_default().to_owned()),
        Value::Binary(bytes) => Json::tagged("$bytes", hex(bytes)),
        Value::Ext(kind, bytes) => {
            let kind = match u64::try_from(*kind) {
                Ok(kind) => Json::UInt(kind),
                Err(_) => Json::Int((*kind).into()),
            };
            Json::tagged("$ext", Json::List(vec![kind, hex(bytes)]))
        }
        Value::Array(list) => {
            let list = list.iter().enumerate();
            let list = list.map(|(n, value)| show_at(n, value, place, redacted));
            Json::List(list.collect())
        }
        Value::Map(entries) => show_map(entries, place, redacted),
    };
    match redacted.iter().any(|one| one == place) {
        true => Json::tagged("$redacted", shown),
        false => shown,
    }
}

fn show_at(n: usize, value: &Value, place: &mut Place, redacted: &[Place]) -> Json<'static> {
    if redacted.is_empty() {
        return show(value, place, redacted);
    }
    place.push(u32::try_from(n).unwrap_or(u32::MAX));
    let shown = show(value, place, redacted);
    place.pop();
    shown
}

/// A map is an object if its keys are names, all different, and none looks like an escape.
fn show_map(entries: &[(Value, Value)], place: &mut Place, redacted: &[Place]) -> Json<'static> {
    let mut names: Vec<&str> = entries.iter().filter_map(|(key, _)| key.as_str()).collect();
    let plain = names.len() == entries.len() && !names.iter().any(|name| name.starts_with('$'));
    names.sort_unstable();
    let plain = plain && names.windows(2).all(|two| two[0] != two[1]);
    let mut values = entries.iter().enumerate();
    let mut shown = |n, value| show_at(n, value, place, redacted);
    if plain {
        let entries = values.map(|(n, (key, value))| {
            let key = key.as_str().unwrap_or_default().to_owned();
            (key.into(), shown(n, value))
        });
        return Json::Object(entries.collect());
    }
    let pairs = values.by_ref().map(|(n, (key, value))| {
        Json::List(vec![show(key, &mut Vec::new(), &[]), shown(n, value)])
    });
    Json::tagged("$map", Json::List(pairs.collect()))
}

/// Reads a payload from what [`to_json`] shows, with the places where something was taken out.
///
/// # Errors
///
/// Says what is wrong, without any value.
pub(super) fn from_json(json: &Json<'_>) -> Result<(Vec<u8>, Vec<Place>), String> {
    if let Json::Object(entries) = json
        && let [(tag, Json::Text(text))] = &**entries
        && tag == "$payload"
    {
        let bytes = unhex(text).ok_or("`$payload` takes lower-case hexadecimal digits")?;
        return Ok((bytes, Vec::new()));
    }
    let mut redacted = Vec::new();
    let value = read(json, &mut Vec::new(), &mut redacted)?;
    Ok((encode(&value), redacted))
}

fn read(json: &Json<'_>, place: &mut Place, redacted: &mut Vec<Place>) -> Result<Value, String> {
    Ok(match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Boolean(*value),
        Json::UInt(number) => Value::from(*number),
        Json::Int(number) => Value::from(*number),
        Json::Float(number) => Value::F64(*number),
        Json::Text(text) => Value::from(&**text),
        Json::List(list) => {
            let list = list.iter().enumerate();
            let list = list.map(|(n, json)| read_at(n, json, place, redacted));
            Value::Array(list.collect::<Result<_, _>>()?)
        }
        Json::Object(entries) => match &**entries {
            [(tag, json)] if tag.starts_with('$') => read_tagged(tag, json, place, redacted)?,
            entries => {
                let entries = entries.iter().enumerate();
                let entries = entries.map(|(n, (key, json))| {
                    if key.starts_with('$') {
                        return Err(format!(
                            "`{key}` stands alone in its object, or in a `$map`"
                        ));
                    }
                    Ok((Value::from(&**key), read_at(n, json, place, redacted)?))
                });
                Value::Map(entries.collect::<Result<_, String>>()?)
            }
        },
    })
}

fn read_at(
    n: usize,
    json: &Json<'_>,
    place: &mut Place,
    redacted: &mut Vec<Place>,
) -> Result<Value, String> {
    place.push(u32::try_from(n).unwrap_or(u32::MAX));
    let read = read(json, place, redacted);
    place.pop();
    read
}

fn read_tagged(
    tag: &str,
    json: &Json<'_>,
    place: &mut Place,
    redacted: &mut Vec<Place>,
) -> Result<Value, String> {
    let bytes = |json: &Json<'_>| match json {
        Json::Text(text) => unhex(text).ok_or_else(|| wrong(tag, "lower-case hexadecimal digits")),
        _ => Err(wrong(tag, "lower-case hexadecimal digits")),
    };
    Ok(match (tag, json) {
        ("$redacted", json) => {
            redacted.push(place.clone());
            read(json, place, redacted)?
        }
        ("$f32", Json::Float(number)) => {
            #[expect(clippy::cast_possible_truncation, reason = "it was made of one")]
            let short = *number as f32;
            Value::F32(short)
        }
        ("$f32", json) => {
            let bits = bytes(json)?.try_into();
            Value::F32(f32::from_be_bytes(
                bits.map_err(|_| wrong(tag, "a fraction, or 4 bytes"))?,
            ))
        }
        ("$f64", json) => {
            let bits = bytes(json)?.try_into();
            Value::F64(f64::from_be_bytes(bits.map_err(|_| wrong(tag, "8 bytes"))?))
        }
        ("$bytes", json) => Value::Binary(bytes(json)?),
        ("$ext", Json::List(parts)) => match &**parts {
            [kind, data] => {
                let kind = match kind {
                    Json::UInt(kind) => i8::try_from(*kind).ok(),
                    Json::Int(kind) => i8::try_from(*kind).ok(),
                    _ => None,
                };
                Value::Ext(
                    kind.ok_or_else(|| wrong(tag, "a type and bytes"))?,
                    bytes(data)?,
                )
            }
            _ => return Err(wrong(tag, "a type and bytes")),
        },
        ("$map", Json::List(pairs)) => {
            let pairs = pairs.iter().enumerate().map(|(n, pair)| match pair {
                Json::List(pair) if pair.len() == 2 => Ok((
                    read(&pair[0], &mut Vec::new(), &mut Vec::new())?,
                    read_at(n, &pair[1], place, redacted)?,
                )),
                _ => Err(wrong(tag, "pairs of a key and a value")),
            });
            Value::Map(pairs.collect::<Result<_, _>>()?)
        }
        ("$payload", _) => return Err(wrong(tag, "a whole payload, not a part of one")),
        ("$ext" | "$map", _) => return Err(wrong(tag, "a list")),
        (tag, _) => return Err(format!("`{tag}` is not an escape that this release knows")),
    })
}

fn wrong(tag: &str, takes: &str) -> String {
    format!("`{tag}` takes {takes}")
}

/// Random payloads.
#[cfg(test)]
pub(super) mod strategies {
    use proptest::prelude::*;

    use super::Value;

    pub(in crate::export) fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            any::<bool>().prop_map(Value::Boolean),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u32>().prop_map(|bits| Value::F32(f32::from_bits(bits))),
            any::<u64>().prop_map(|bits| Value::F64(f64::from_bits(bits))),
            any::<String>().prop_map(Value::from),
            "[$a-c]{0,3}".prop_map(Value::from),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Binary),
            (any::<i8>(), prop::collection::vec(any::<u8>(), 0..20))
                .prop_map(|(kind, data)| Value::Ext(kind, data)),
        ];
        leaf.prop_recursive(5, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::vec((inner.clone(), inner.clone()), 0..5).prop_map(Value::Map),
                prop::collection::vec(("[$a-c]{0,3}".prop_map(Value::from), inner), 0..5)
                    .prop_map(Value::Map),
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::json::Reader;
    use super::strategies::values;
    use super::*;

    fn through_json(payload: &[u8]) -> Vec<u8> {
        let mut text = String::new();
        to_json(payload, &[]).print(&mut text, 0);
        let json = Reader::new(&text).value().expect("is JSON");
        let (bytes, redacted) = from_json(&json).expect("is a payload");
        assert!(redacted.is_empty());
        bytes
    }

    proptest! {
        #[test]
        fn every_value_comes_back_byte_for_byte(value in values()) {
            let payload = encode(&value);
            prop_assert_eq!(through_json(&payload), payload);
        }

        #[test]
        fn any_bytes_come_back_byte_for_byte(payload in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(through_json(&payload), payload);
        }
    }

    #[test]
    fn what_json_cannot_say_has_a_form_of_its_own() {
        let cases: [(&[u8], &str); 14] = [
            (&[0xc0], "null"),
            (&[5], "5"),
            (&[0xff], "-1"),
            (&[0xcc, 5], r#"{"$payload": "cc05"}"#), // not the shortest form
            (&[0xd0, 5], r#"{"$payload": "d005"}"#), // a signed 5
            (
                &[0xcf, 255, 255, 255, 255, 255, 255, 255, 255],
                "18446744073709551615",
            ),
            (&[0xcb, 0x80, 0, 0, 0, 0, 0, 0, 0], "-0.0"),
            (
                &[0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0],
                r#"{"$f64": "7ff8000000000000"}"#,
            ),
            (&[0xca, 0x3f, 0xc0, 0, 0], r#"{"$f32": 1.5}"#),
            (&[0xc4, 2, 1, 255], r#"{"$bytes": "01ff"}"#),
            (&[0xd4, 0xff, 7], r#"{"$ext": [-1, "07"]}"#),
            (&[0xa1, 0xff], r#"{"$payload": "a1ff"}"#), // a text that is not UTF-8
            (&[0x81, 1, 2], r#"{"$map": [[1, 2]]}"#),
            (
                &[0x82, 0xa1, b'a', 1, 0xa1, b'a', 2],
                r#"{"$map": [["a", 1], ["a", 2]]}"#,
            ),
        ];
        for (payload, expected) in cases {
            let mut text = String::new();
            to_json(payload, &[]).print(&mut text, 0);
            assert_eq!(text, expected);
            assert_eq!(through_json(payload), payload, "{expected}");
        }
        assert_eq!(
            through_json(&[0xdb, 0, 0, 0, 1, 0xff]),
            [0xdb, 0, 0, 0, 1, 0xff]
        );
    }

    #[test]
    fn malformed_escapes_are_refused_by_name() {
        for text in [
            r#"{"$bytes": "0"}"#,
            r#"{"$bytes": "0G"}"#,
            r#"{"$bytes": 1}"#,
            r#"{"$f64": "00"}"#,
            r#"{"$f32": 1}"#,
            r#"{"$ext": [1]}"#,
            r#"{"$ext": [300, ""]}"#,
            r#"{"$map": [1]}"#,
            r#"{"$map": 1}"#,
            r#"{"$new": 1}"#,
            r#"{"$a": 1, "b": 2}"#,
            r#"[{"$payload": "00"}]"#,
        ] {
            let json = Reader::new(text).value().expect("is JSON");
            let error = from_json(&json).expect_err(text);
            assert!(error.contains('$'), "{error}");
        }
    }
}
