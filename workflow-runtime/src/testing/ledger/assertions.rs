//! What a test asks a ledger when all is over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde::Serialize;

use super::{Count, Keys, Ledger, LedgerCall, show};

/// Something that was done more than once.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Duplicate {
    /// What was done.
    pub entry: String,
    /// The calls that did it, in order.
    pub calls: Vec<LedgerCall>,
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.entry, Count(self.calls.len(), "time"))?;
        for call in &self.calls {
            write!(f, "\n    call {} {}", call.number, call.circumstances())?;
        }
        Ok(())
    }
}

impl Duplicate {
    /// Says whether it was not one step that did it again.
    fn by_several_steps(&self) -> bool {
        let steps = self.calls.iter().filter_map(|call| call.step.as_ref());
        let steps: BTreeSet<_> = steps.map(|step| step.step_id).collect();
        steps.len() > 1
    }

    /// Says what the keys of the calls tell about the mistake.
    pub(in super::super) fn advice(&self, honoured: bool) -> &'static str {
        let keys: Vec<_> = self.calls.iter().map(|call| call.key.as_deref()).collect();
        if self
            .calls
            .iter()
            .any(|call| call.key.is_none() && call.step.is_none())
        {
            "it was asked for without a key, and by no step: a handler of messages has the message's id, which is the same \
             each time it is handed over (`message.id`)"
        } else if keys.contains(&None) {
            "it was asked for without a key: hand the step's id over as one (`get_step_metadata().step_id`); where the other \
             side takes none, look there first whether it was done (a step that is `at_most_once` never does it twice, but \
             perhaps not at all)"
        } else if self.by_several_steps() {
            "several steps did it, each under a key of its own: the workflow asked for it more than once, so look at what it \
             was told more than once"
        } else if keys.windows(2).any(|pair| pair[0] != pair[1]) {
            "the keys differ: a key has to be the same in every attempt and every process, so make it of the step's id \
             (`get_step_metadata().step_id`), never of a random number, the time or the attempt"
        } else if honoured {
            "one key, and yet it was done more than once: the ledger itself is at fault"
        } else {
            "the key was the same each time, and the other side ignores keys: look there first whether it was done (a step \
             that is `at_most_once` never does it twice, but perhaps not at all)"
        }
    }
}

impl Ledger {
    /// Returns what was done more than once: by its content, whatever the keys.
    pub fn duplicates(&self) -> Vec<Duplicate> {
        let mut by_entry: BTreeMap<String, Vec<LedgerCall>> = BTreeMap::new();
        for call in self.calls().into_iter().filter(LedgerCall::acted) {
            by_entry.entry(call.entry.clone()).or_default().push(call);
        }
        let several = by_entry.into_iter().filter(|(_, calls)| calls.len() > 1);
        several
            .map(|(entry, calls)| Duplicate { entry, calls })
            .collect()
    }

    /// Returns the calls whose key was used for another entry before.
    pub fn conflicts(&self) -> Vec<LedgerCall> {
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        let calls = self.calls().into_iter();
        calls
            .filter(|call| {
                let Some(key) = &call.key else { return false };
                let entry = &call.entry;
                first.entry(key.clone()).or_insert_with(|| entry.clone()) != entry
            })
            .collect()
    }

    /// Fails the test if something was done more than once, or a key was used for two things.
    ///
    /// # Panics
    ///
    /// With what was done more than once: when, by which step, under which keys.
    #[track_caller]
    pub fn assert_each_once(&self) {
        let (duplicates, conflicts) = (self.duplicates(), self.conflicts());
        if duplicates.is_empty() && conflicts.is_empty() {
            return;
        }
        let mut text = String::new();
        if !duplicates.is_empty() {
            text.push_str("The ledger was made to do something more than once\n");
        }
        for duplicate in &duplicates {
            let advice = duplicate.advice(self.keys == Keys::Honoured);
            let _ = writeln!(text, "\n  {duplicate}\n    {advice}");
        }
        if !duplicates.is_empty() {
            text.push('\n');
        }
        text.push_str(&tell_conflicts(self, &conflicts));
        panic!("{}", text.trim_end());
    }

    /// Fails the test unless exactly these entries were made, in any order. An entry that is named twice is to be
    /// made twice.
    ///
    /// # Panics
    ///
    /// With what is missing, what is too much, and every call.
    #[track_caller]
    pub fn assert_entries<T: Serialize>(&self, expected: impl IntoIterator<Item = T>) {
        let expected: Vec<_> = expected.into_iter().map(|entry| show(&entry)).collect();
        let difference = Difference::between(&expected, &self.entries());
        if !difference.is_empty() {
            panic!("The ledger's entries are not those that were expected\n{difference}\n{self}");
        }
    }
}

/// Tells of keys that were used for two things; nothing if there are none.
pub(in super::super) fn tell_conflicts(ledger: &Ledger, conflicts: &[LedgerCall]) -> String {
    let mut keys: Vec<_> = conflicts.iter().map(|call| &call.key).collect();
    keys.sort();
    keys.dedup();
    let mut text = String::new();
    for key in keys {
        let shown = key.as_deref().unwrap_or_default();
        let _ = write!(
            text,
            "The ledger was given one key for two things\n\n  {shown}"
        );
        for call in ledger.calls().iter().filter(|call| call.key == *key) {
            let told = call.circumstances();
            let _ = write!(
                text,
                "\n    call {} for {}, {told}",
                call.number, call.entry
            );
        }
        text.push_str(
            "\n    a key is for one effect: make the effect of the step's input alone, and derive the key of a second effect with \
             `step_id.for_effect(\"…\")`\n\n",
        );
    }
    text
}

/// How two lists of entries differ, whatever their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Difference {
    /// Entries, how often they were expected, and how often they are there.
    entries: Vec<(String, usize, usize)>,
}

impl Difference {
    pub(in super::super) fn between(expected: &[String], found: &[String]) -> Self {
        let mut counts: BTreeMap<&String, (usize, usize)> = BTreeMap::new();
        expected
            .iter()
            .for_each(|entry| counts.entry(entry).or_default().0 += 1);
        found
            .iter()
            .for_each(|entry| counts.entry(entry).or_default().1 += 1);
        let differ = counts
            .into_iter()
            .filter(|(_, (expected, found))| expected != found);
        let entries = differ.map(|(entry, (expected, found))| (entry.clone(), expected, found));
        Self {
            entries: entries.collect(),
        }
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries that are there more often than expected.
    pub(in super::super) fn too_many(&self) -> impl Iterator<Item = &str> {
        let more = self
            .entries
            .iter()
            .filter(|(_, expected, found)| found > expected);
        more.map(|(entry, ..)| entry.as_str())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (entry, expected, found) in &self.entries {
            let expected = Count(*expected, "time");
            match found {
                0 => writeln!(f, "  missing: {entry} (expected {expected})")?,
                found => writeln!(
                    f,
                    "  {entry}: {}, expected {expected}",
                    Count(*found, "time")
                )?,
            }
        }
        Ok(())
    }
}
