//! The report of a divergence: what the journal holds, what the code asked for, where, and what
//! to do.
//!
//! Owns the comparison of two inputs field by field and the text of the report. The text has
//! two parts: one without any payload, fit for logs and headers, and one that shows what
//! differs, which is kept as a payload.

use std::fmt::{self, Write as _};

use rmpv::Value;

use super::{Delivery, Recorded, WaitingCall};
use crate::ids::CallKind;
use crate::journal::ChildStarted;

/// How much of one value a report shows.
const SHOWN_CHARS: usize = 120;

/// How many differing fields a report shows.
const SHOWN_FIELDS: usize = 20;

/// What differs between two inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Where, as `order.items[2].price`.
    pub(crate) path: String,
    /// What the journal holds there, if anything.
    pub(crate) recorded: Option<String>,
    /// What the code has there now, if anything.
    pub(crate) now: Option<String>,
    /// It is an element of a sequence, not a named field.
    is_element: bool,
}

impl Difference {
    /// Says whether a named field is there on one side only: it was added or removed.
    pub(crate) fn is_one_sided(&self) -> bool {
        !self.is_element && (self.recorded.is_none() || self.now.is_none())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "(absent)".into());
        write!(
            f,
            "{}: journal {} | code {}",
            self.path,
            side(&self.recorded),
            side(&self.now)
        )
    }
}

/// What stands for a value that was taken out of a journal file, while it is replayed: whatever the code has there
/// fits. In no journal of a store.
#[cfg(feature = "testing")]
pub(crate) const REDACTED: (i8, &[u8]) = (82, b"workflow-runtime: redacted");

/// Says whether something was taken out of a recorded value.
#[cfg(feature = "testing")]
fn is_redacted(recorded: &Value) -> bool {
    match recorded {
        Value::Ext(kind, data) => (*kind, &**data) == REDACTED,
        Value::Array(list) => list.iter().any(is_redacted),
        Value::Map(entries) => entries.iter().any(|(_, value)| is_redacted(value)),
        _ => false,
    }
}

/// Says whether something was taken out of a recorded value: never, in what a store has.
#[cfg(not(feature = "testing"))]
fn is_redacted(_: &Value) -> bool {
    false
}

/// What two inputs come to whose digests are not the same.
pub(crate) enum Told {
    /// What differs was taken out of the journal.
    Redacted,
    /// Named fields were added or removed, and nothing else.
    OtherFields,
    /// They are told apart, by what can be shown of it.
    Apart(Vec<Difference>),
}

/// Tells two inputs apart whose digests are not the same, as far as they were kept. Without any difference that can be
/// shown, the digests' word counts; unless what differs was taken out.
pub(crate) fn tell_apart(recorded: Option<&Value>, now: Option<&Value>) -> Told {
    let found = match (recorded, now) {
        (Some(recorded), Some(now)) => compare_inputs(recorded, now),
        _ => Vec::new(),
    };
    if found.is_empty() {
        return match recorded.is_some_and(is_redacted) {
            true => Told::Redacted,
            false => Told::Apart(found),
        };
    }
    match found.iter().all(Difference::is_one_sided) {
        true => Told::OtherFields,
        false => Told::Apart(found),
    }
}

/// Compares two inputs field by field. Of very many differences not all are returned, but always one that is not
/// one-sided if there is one: it decides whether the inputs are told apart.
pub(crate) fn compare_inputs(recorded: &Value, now: &Value) -> Vec<Difference> {
    let mut found = Found::default();
    compare(String::new(), Some(recorded), Some(now), &mut found);
    found.shown
}

/// What a comparison has come to.
#[derive(Default)]
struct Found {
    /// One more than a report shows, at most: then it says that there are more.
    shown: Vec<Difference>,
    /// One of them is not one-sided.
    decided: bool,
}

impl Found {
    /// Says whether nothing that is found from now on matters.
    fn is_enough(&self) -> bool {
        self.decided && self.shown.len() > SHOWN_FIELDS
    }

    fn push(&mut self, difference: Difference) {
        let decides = !self.decided && !difference.is_one_sided();
        self.decided |= decides;
        if decides && self.shown.len() >= SHOWN_FIELDS {
            self.shown.insert(0, difference); // where a report shows it
            self.shown.truncate(SHOWN_FIELDS + 1);
        } else if self.shown.len() <= SHOWN_FIELDS {
            self.shown.push(difference);
        }
    }
}

fn compare(path: String, recorded: Option<&Value>, now: Option<&Value>, found: &mut Found) {
    if recorded == now || found.is_enough() {
        return;
    }
    match (recorded, now) {
        (Some(Value::Map(old)), Some(Value::Map(new))) => {
            for (key, value) in old {
                let other = lookup(new, key);
                compare(join(&path, key), Some(value), other, found);
            }
            for (key, value) in new.iter().filter(|(key, _)| lookup(old, key).is_none()) {
                compare(join(&path, key), None, Some(value), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for i in 0..old.len().max(new.len()) {
                compare(format!("{path}[{i}]"), old.get(i), new.get(i), found);
            }
        }
        #[cfg(feature = "testing")]
        (Some(Value::Ext(kind, data)), _) if (*kind, &**data) == REDACTED => {}
        (recorded, now) => found.push(Difference {
            is_element: path.ends_with(']'),
            path,
            recorded: recorded.map(show),
            now: now.map(show),
        }),
    }
}

fn lookup<'a>(map: &'a [(Value, Value)], key: &Value) -> Option<&'a Value> {
    map.iter().find(|(k, _)| k == key).map(|(_, value)| value)
}

fn join(path: &str, key: &Value) -> String {
    let key = key.as_str().map_or_else(|| show(key), str::to_owned);
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}

/// Shows a value, cut where it is long.
pub(crate) fn show(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// How every report ends.
const WAY_OUT: &str = "  nothing was run or written; to go on: bring the old calls back (rename with \
    `#[step(name = \"…\")]`, restore order and input), deploy, then `engine.resume(run)`";

/// What the code does instead.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The calls that it waits for.
    pub(crate) calls: Vec<WaitingCall>,
    /// The signals that it waits for.
    pub(crate) signals: Vec<String>,
    /// The workflow returned instead of waiting.
    pub(crate) returned: bool,
}

impl Asked {
    fn push_to(&self, text: &mut String) {
        if self.returned {
            text.push_str("  the code: returned without asking for it\n");
            return;
        }
        for call in &self.calls {
            let _ = writeln!(text, "  the code asked for: {}", describe_call(call));
        }
        for signal in &self.signals {
            let _ = writeln!(text, "  the code asked for: {signal}");
        }
        if self.calls.is_empty() && self.signals.is_empty() {
            text.push_str("  the code: waits for nothing that is journaled\n");
        }
    }
}

/// Everything a report says.
#[derive(Debug)]
pub(crate) struct Mismatch<'a> {
    pub(crate) recorded: &'a Delivery,
    pub(crate) asked: Asked,
    pub(crate) differences: Vec<Difference>,
}

impl Mismatch<'_> {
    /// The report without any payload.
    pub(crate) fn report(&self) -> String {
        let mut text = String::from("the code no longer fits the journal\n");
        let _ = writeln!(text, "  the journal holds: {}", describe(self.recorded));
        self.asked.push_to(&mut text);
        if self.is_other_input() {
            text.push_str("  the same call, but with other input");
            if !self.differences.is_empty() {
                let paths: Vec<_> = self.differences.iter().map(|d| d.path.as_str()).collect();
                let _ = write!(text, ": {}", paths.join(", "));
            }
            text.push('\n');
        }
        text.push_str(WAY_OUT);
        text
    }

    /// The part that shows payloads, if there is one.
    pub(crate) fn detail(&self) -> Option<String> {
        show_differences(&self.differences)
    }

    fn is_other_input(&self) -> bool {
        let mut calls = self.asked.calls.iter();
        calls.any(|call| Some(call.id) == self.recorded.id())
    }
}

/// Everything a report says of a child that the journal knows and the code does not call like that.
#[derive(Debug)]
pub(crate) struct ChildMismatch<'a> {
    pub(crate) recorded: &'a ChildStarted,
    pub(crate) asked: Asked,
    pub(crate) differences: &'a [Difference],
}

impl ChildMismatch<'_> {
    /// The report without any payload.
    pub(crate) fn report(&self) -> String {
        let ChildStarted {
            child,
            workflow,
            source,
            ..
        } = self.recorded;
        let mut text = format!(
            "the code no longer fits the journal\n  the journal holds: the child workflow \
             `{workflow}` ({child}), called at {source}\n"
        );
        self.asked.push_to(&mut text);
        if !self.differences.is_empty() {
            let paths: Vec<_> = self.differences.iter().map(|d| d.path.as_str()).collect();
            let _ = writeln!(
                text,
                "  the same call, but with other input: {}",
                paths.join(", ")
            );
        }
        text.push_str(WAY_OUT);
        text
    }

    /// The part that shows payloads, if there is one.
    pub(crate) fn detail(&self) -> Option<String> {
        show_differences(self.differences)
    }
}

pub(crate) fn show_differences(differences: &[Difference]) -> Option<String> {
    if differences.is_empty() {
        return None;
    }
    let mut text = String::new();
    for difference in differences.iter().take(SHOWN_FIELDS) {
        let _ = writeln!(text, "    {difference}");
    }
    if differences.len() > SHOWN_FIELDS {
        text.push_str("    … and more\n");
    }
    Some(text)
}

fn describe(delivery: &Delivery) -> String {
    match &delivery.what {
        Recorded::Step(step) => {
            let step = step.whole();
            format!(
                "record {}, step `{}` ({}), called at {}",
                delivery.seq, step.name, step.step, step.source
            )
        }
        Recorded::Child(child) => {
            format!(
                "record {}, the end of the child {}",
                delivery.seq, child.child
            )
        }
        Recorded::Signal(signal) => format!("the signal `{}`", signal.name),
        Recorded::Cancel(_) => "a request to cancel".into(),
        Recorded::Closing(_) => "the beginning of the run's undoing".into(),
        Recorded::Timer(timer) => {
            format!("record {}, a timer that fired ({timer})", delivery.seq)
        }
        Recorded::Intent(intent) => format!(
            "record {}, step `{}` ({}) about to run, called at {}",
            delivery.seq, intent.name, intent.step, intent.source
        ),
    }
}

pub(crate) fn describe_call(call: &WaitingCall) -> String {
    let what = match call.kind {
        CallKind::Step => format!("step `{}`", call.name),
        CallKind::Timer => "a timer".into(),
        CallKind::Child => format!("the child workflow `{}`", call.name),
        CallKind::Message => format!("a message to `{}`", call.name),
    };
    format!(
        "{what} ({}), called at {}:{}",
        call.id,
        call.site.file(),
        call.site.line()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, Value)]) -> Value {
        Value::Map(
            entries
                .iter()
                .map(|(key, value)| ((*key).into(), value.clone()))
                .collect(),
        )
    }

    #[test]
    fn inputs_are_compared_field_by_field() {
        let old = map(&[
            ("cents", 100.into()),
            ("to", "a".into()),
            ("items", Value::Array(vec![1.into(), 2.into()])),
        ]);
        let new = map(&[
            ("to", "a".into()),
            ("cents", 200.into()),
            ("items", Value::Array(vec![1.into(), 3.into()])),
            ("note", "hi".into()),
        ]);
        let shown: Vec<_> = compare_inputs(&old, &new)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            shown,
            [
                "cents: journal 100 | code 200",
                "items[1]: journal 2 | code 3",
                "note: journal (absent) | code \"hi\"",
            ]
        );
    }

    #[test]
    fn a_changed_field_behind_any_number_of_removed_ones_is_found_and_shown() {
        for removed in [0, 1, SHOWN_FIELDS, SHOWN_FIELDS + 1, 10 * SHOWN_FIELDS] {
            let names: Vec<_> = (0..removed).map(|n| format!("gone{n}")).collect();
            let mut old: Vec<_> = names.iter().map(|name| (&**name, 1.into())).collect();
            old.push(("cents", 100.into()));
            let found = compare_inputs(&map(&old), &map(&[("cents", 200.into())]));
            assert!(!found.iter().all(Difference::is_one_sided), "{removed}");
            assert_eq!(found.len(), (removed + 1).min(SHOWN_FIELDS + 1));
            let shown = show_differences(&found).expect("they differ");
            assert!(shown.contains("cents: journal 100 | code 200"), "{shown}");
            assert_eq!(shown.contains("… and more"), removed >= SHOWN_FIELDS);
            assert_eq!(shown.lines().count(), (removed + 1).min(SHOWN_FIELDS + 1));
        }
        let many: Vec<Value> = (0..1_000).map(Value::from).collect();
        let found = compare_inputs(&Value::Array(many), &Value::Array(Vec::new()));
        assert_eq!(found.len(), SHOWN_FIELDS + 1);
    }

    #[test]
    fn a_field_on_one_side_only_is_recognised() {
        let old = map(&[("a", 1.into())]);
        let new = map(&[("a", 1.into()), ("b", 2.into())]);
        assert!(
            compare_inputs(&old, &new)
                .iter()
                .all(Difference::is_one_sided)
        );
        assert!(!compare_inputs(&old, &map(&[("a", 2.into())]))[0].is_one_sided());
        let (short, long) = (Value::Array(vec![]), Value::Array(vec![1.into()]));
        assert!(
            !compare_inputs(&short, &long)[0].is_one_sided(),
            "a list that grew is other input"
        );
    }

    #[cfg(feature = "testing")]
    #[test]
    fn what_was_taken_out_is_found_however_deep_it_was_and_nothing_else_is_taken_for_it() {
        let gone = || Value::Ext(REDACTED.0, REDACTED.1.to_vec());
        let (other_kind, other_data) = (
            Value::Ext(REDACTED.0 + 1, REDACTED.1.to_vec()),
            Value::Ext(REDACTED.0, b"of a user".to_vec()),
        );
        for whole in [
            Value::Nil,
            "workflow-runtime: redacted".into(),
            other_kind.clone(),
            other_data.clone(),
            Value::Array(vec![1.into(), other_kind.clone()]),
            map(&[("cents", 100.into()), ("note", other_data.clone())]),
        ] {
            assert!(!is_redacted(&whole), "{whole}");
        }
        let list = Value::Array(vec![1.into(), gone()]);
        let fields = map(&[("cents", 100.into()), ("card", gone())]);
        let deep = map(&[("orders", Value::Array(vec![fields.clone()]))]);
        for part in [gone(), list, fields.clone(), deep] {
            assert!(is_redacted(&part), "{part}");
        }
        // Whatever the code has there fits; beside it, all is compared, and so is what only looks like it.
        let now = |cents: u32| map(&[("cents", cents.into()), ("card", "4111".into())]);
        assert_eq!(compare_inputs(&fields, &now(100)), []);
        let found = compare_inputs(&fields, &now(200));
        assert_eq!(found[0].to_string(), "cents: journal 100 | code 200");
        assert_eq!(found.len(), 1);
        for other in [other_kind, other_data] {
            assert_eq!(compare_inputs(&other, &1.into()).len(), 1, "{other}");
        }
    }
}
