//! What is taken out of a journal before it leaves.
//!
//! Owns what stands in place of a value (something of the same type, so that the code under replay can still read
//! it) and the mark that says so. Digests that are in the journal stay: they are how replay tells inputs apart. It never
//! touches ids, names, times and places in the source.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use rmpv::Value;

use super::JournalFile;
use super::kinds::{self, Part};
use super::value::{self, Place};
#[cfg(feature = "testing")]
use crate::journal::{ChildStarted, Event, Record, StepCompleted, StepIntent};

/// From this length on, a text that was taken out is looked for within other texts too.
const LONG_TEXT: usize = 6;

/// What stands in place of a key or a reason.
pub(crate) const TEXT: &str = "(redacted)";

/// How the text of a secret key begins; see [`Key::secret`](crate::Key::secret).
const SECRET_KEY: &str = "=*";

/// What is to become of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Redact {
    /// It stays.
    Keep,
    /// An empty value of the same type takes its place: `""`, `0`, `0.0`, `false`, zeros as many as there were bytes.
    Blank,
    /// This text takes its place: for what the code reads from a text (a date, an enum's variant).
    With(String),
}

/// A value in a payload: a text, a number, a truth value or bytes; never a list or a map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PayloadValue<'a>(&'a Value);

impl<'a> PayloadValue<'a> {
    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&'a str> {
        self.0.as_str()
    }

    /// The number, if it is a whole one that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        self.0.as_u64()
    }

    /// The number, if it is a whole one.
    pub fn as_i64(&self) -> Option<i64> {
        self.0.as_i64()
    }

    /// The number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        self.0.as_f64()
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        self.0.as_bool()
    }

    /// The bytes, if it is bytes.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match self.0 {
            Value::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl fmt::Display for PayloadValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl JournalFile {
    /// Takes out what `choose` says, value by value. It is given the path, as `charge.input.card.number` or
    /// `run.output.items[2].price`, and the value.
    ///
    /// A text that was taken out anywhere is taken out everywhere in the file, keys and reasons included: it flows from
    /// inputs to outputs and into messages. From six bytes on, a text that contains it goes as well.
    ///
    /// A payload that cannot be looked into is one value, its bytes: all of a file that is
    /// [coded](JournalFile::is_coded), and what is no MessagePack.
    pub fn redact(mut self, mut choose: impl FnMut(&str, PayloadValue<'_>) -> Redact) -> Self {
        self.redact_values(&mut |path, value| choose(path.text, PayloadValue(value)));
        self
    }

    /// Takes out all values under fields of these names, at any depth of any payload, whatever the case of their
    /// letters; and, like [`JournalFile::redact`], every copy of a text that was there.
    ///
    /// A payload that cannot be looked into may have such a field, so it is taken out whole. Of a file that is
    /// [coded](JournalFile::is_coded) these are all: [open](crate::Export::opened) it first to take out single fields.
    pub fn redact_fields<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        let names: Vec<String> = names.into_iter().map(str::to_lowercase).collect();
        self.redact_values(&mut |path, _| {
            let mut fields = path.fields.iter();
            match path.closed || fields.any(|field| names.contains(&field.to_lowercase())) {
                true => Redact::Blank,
                false => Redact::Keep,
            }
        });
        self
    }

    /// Takes out every value of every payload, keys and reasons.
    ///
    /// Names of fields stay, and how many elements a list has. An enum's variant without fields is a text in a payload,
    /// and cannot be told from one: name its field in [`JournalFile::redact_all_but`].
    pub fn redact_all(self) -> Self {
        self.redact_all_but([])
    }

    /// The same, but for fields of these names.
    pub fn redact_all_but<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        let kept: Vec<String> = names.into_iter().map(str::to_lowercase).collect();
        self.each_payload(&mut |path, _| {
            let mut fields = path.fields.iter();
            match fields.any(|field| kept.contains(&field.to_lowercase())) {
                true => Redact::Keep,
                false => Redact::Blank,
            }
        });
        self.redact_texts(&mut |_, _| true);
        self
    }

    /// Takes out what is known to be secret.
    pub(crate) fn redact_secrets(&mut self) {
        self.redact_texts(&mut |part, text| part == "key" && text.starts_with(SECRET_KEY));
    }

    fn redact_texts(&mut self, choose: &mut dyn FnMut(&str, &str) -> bool) {
        let mut any = false;
        for record in &mut self.records {
            kinds::parts(&mut record.event, &mut |_, part_name, part| {
                if let Part::Key(text) | Part::Reason(text) = part
                    && **text != *TEXT
                    && choose(part_name, text)
                {
                    *text = TEXT.into();
                    any = true;
                }
            });
        }
        self.texts_redacted |= any;
    }

    fn redact_values(&mut self, choose: &mut dyn FnMut(&Path<'_>, &Value) -> Redact) {
        let mut taken = BTreeSet::new();
        self.each_payload(&mut |path, value| {
            let redact = choose(path, value);
            if redact != Redact::Keep
                && let Some(text) = value.as_str().filter(|text| !text.is_empty())
            {
                taken.insert(text.to_owned());
            }
            redact
        });
        let long: Vec<&String> = taken
            .iter()
            .filter(|text| text.len() >= LONG_TEXT)
            .collect();
        let is_copy =
            |text: &str| taken.contains(text) || long.iter().any(|long| text.contains(&***long));
        if taken.is_empty() {
            return;
        }
        self.each_payload(&mut |_, value| match value.as_str() {
            Some(text) if is_copy(text) => Redact::Blank,
            _ => Redact::Keep,
        });
        self.redact_texts(&mut |_, text| is_copy(text));
    }

    /// Shows every value of every payload, and does what is said to be done with it.
    fn each_payload(&mut self, choose: &mut dyn FnMut(&Path<'_>, &Value) -> Redact) {
        for record in &mut self.records {
            let mut number = 0;
            let (seq, coded, marks) = (record.seq, self.coded, &mut self.marks);
            kinds::parts(&mut record.event, &mut |name, part_name, part| {
                let Part::Payload(payload, _) = part else {
                    return;
                };
                let places = marks.entry((seq, number)).or_default();
                // What cannot be looked into is one value. What was taken out of a coded file is none of the codec's.
                let parsed = match coded && places.is_empty() {
                    true => None,
                    false => value::parse_any(payload),
                };
                let mut walk = Walk {
                    closed: parsed.is_none(),
                    text: format!("{name}.{part_name}"),
                    fields: Vec::new(),
                    place: Vec::new(),
                    known: places,
                    choose,
                };
                let mut value = parsed.unwrap_or_else(|| Value::Binary(payload.to_vec()));
                if walk.value(&mut value) {
                    *payload = Bytes::from(value::encode(&value));
                }
                places.sort_unstable(); // as they are read
                if places.is_empty() {
                    marks.remove(&(seq, number));
                }
                number += 1;
            });
        }
    }
}

#[cfg(feature = "testing")]
impl JournalFile {
    /// The records as they are replayed: where something was taken out of what is only compared (inputs of calls, the
    /// run's result), whatever the code has there fits. What the code reads is as it is in the file.
    pub(crate) fn records_to_replay(&self) -> Vec<Record> {
        let mut records = self.records.clone();
        if !self.is_redacted() {
            return records;
        }
        let anything = || Bytes::from(value::encode(&redacted()));
        for record in &mut records {
            let is_compared = match &mut record.event {
                Event::StepCompleted(StepCompleted { input, .. })
                | Event::StepIntent(StepIntent { input, .. })
                | Event::ChildStarted(ChildStarted { input, .. }) => {
                    // Its digest is of the value that it was, and there is nothing else to compare.
                    input.get_or_insert_with(anything);
                    |part: &str| part == "input"
                }
                Event::RunCompleted(_) | Event::RunFailed(_) => |_: &str| true,
                _ => continue,
            };
            let (seq, mut number) = (record.seq, 0);
            kinds::parts(&mut record.event, &mut |_, part_name, part| {
                let Part::Payload(payload, _) = part else {
                    return;
                };
                if let Some(places) = self.marks.get(&(seq, number))
                    && is_compared(part_name)
                    && let Some(mut value) = value::parse(payload)
                {
                    places.iter().for_each(|place| open(&mut value, place));
                    *payload = value::encode(&value).into();
                }
                number += 1;
            });
        }
        records
    }
}

#[cfg(feature = "testing")]
fn redacted() -> Value {
    let (kind, data) = crate::replay::REDACTED;
    Value::Ext(kind, data.to_vec())
}

/// Puts at a place what anything fits.
#[cfg(feature = "testing")]
fn open(value: &mut Value, place: &[u32]) {
    let Some((&at, rest)) = place.split_first() else {
        *value = redacted();
        return;
    };
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let inner = match value {
        Value::Array(list) => list.get_mut(at),
        Value::Map(entries) => entries.get_mut(at).map(|(_, value)| value),
        _ => None,
    };
    if let Some(inner) = inner {
        open(inner, rest);
    }
}

/// Where a value is.
struct Path<'a> {
    text: &'a str,
    /// It is all of a payload that cannot be looked into.
    closed: bool,
    /// Names of the fields on the way.
    fields: &'a [String],
}

/// The way through one payload.
struct Walk<'a, 'c> {
    closed: bool,
    text: String,
    fields: Vec<String>,
    place: Place,
    known: &'a mut Vec<Place>,
    choose: &'a mut (dyn FnMut(&Path<'_>, &Value) -> Redact + 'c),
}

impl Walk<'_, '_> {
    /// Goes through a value. Says whether it was changed.
    fn value(&mut self, value: &mut Value) -> bool {
        match value {
            Value::Nil => false,
            Value::Array(list) => {
                let mut changed = false;
                for (n, value) in list.iter_mut().enumerate() {
                    let len = self.text.len();
                    self.text.push_str(&format!("[{n}]"));
                    changed |= self.at(n, value);
                    self.text.truncate(len);
                }
                changed
            }
            Value::Map(entries) => {
                let is_error = is_error(entries);
                let mut changed = false;
                for (n, (key, value)) in entries.iter_mut().enumerate() {
                    let name = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                    if is_error && name == "retry" {
                        continue; // what an error asks of retries: the code has to read it
                    }
                    let len = self.text.len();
                    self.text.push('.');
                    self.text.push_str(&name);
                    self.fields.push(name);
                    changed |= self.at(n, value);
                    self.fields.pop();
                    self.text.truncate(len);
                }
                changed
            }
            leaf => self.leaf(leaf),
        }
    }

    fn at(&mut self, n: usize, value: &mut Value) -> bool {
        self.place.push(u32::try_from(n).unwrap_or(u32::MAX));
        let changed = self.value(value);
        self.place.pop();
        changed
    }

    fn leaf(&mut self, value: &mut Value) -> bool {
        if self.known.contains(&self.place) {
            return false; // it was taken out before
        }
        let path = Path {
            text: &self.text,
            closed: self.closed,
            fields: &self.fields,
        };
        *value = match (self.choose)(&path, value) {
            Redact::Keep => return false,
            Redact::Blank => blank(value),
            Redact::With(text) => Value::from(text),
        };
        self.known.push(self.place.clone());
        true
    }
}

/// An empty value of the same type.
fn blank(value: &Value) -> Value {
    match value {
        Value::Boolean(_) => Value::Boolean(false),
        Value::Integer(_) => Value::from(0),
        Value::F32(_) => Value::F32(0.0),
        Value::F64(_) => Value::F64(0.0),
        Value::String(_) => Value::from(""),
        // An array of a fixed length needs as many.
        Value::Binary(bytes) => Value::Binary(vec![0; bytes.len()]),
        Value::Ext(kind, bytes) => Value::Ext(*kind, vec![0; bytes.len()]),
        Value::Nil | Value::Array(_) | Value::Map(_) => value.clone(),
    }
}

/// Says whether a map is an error of this crate.
fn is_error(entries: &[(Value, Value)]) -> bool {
    const FIELDS: [&str; 4] = ["message", "causes", "retry", "interrupted"];
    let mut names = entries
        .iter()
        .map(|(key, _)| key.as_str().unwrap_or_default());
    entries
        .iter()
        .any(|(key, _)| key.as_str() == Some("message"))
        && names.all(|name| FIELDS.contains(&name))
}
