//! The outside world: a file that every process appends to, one line per effect.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use workflow_runtime::StepId;

/// Ends a line that was written whole.
const WHOLE: &str = "whole";

/// Where effects go.
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn open(dir: &Path, name: &str) -> io::Result<Self> {
        let file = File::options()
            .append(true)
            .create(true)
            .open(path(dir, name))?;
        Ok(Self(file))
    }

    /// Has an effect: from here on it has happened, whatever becomes of the process.
    pub(crate) fn write(&self, step: StepId, number: u64, what: &str, value: u64) {
        // A kill can tear even one write, at the border of two pages. Beginning with a line
        // break keeps the torn piece apart from what the next process writes.
        let line = format!("\n{step} {number} {what} {value} {WHOLE}\n");
        (&self.0)
            .write_all(line.as_bytes())
            .expect("the ledger's disk works");
    }
}

fn path(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}

/// One effect as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) number: u64,
    pub(crate) what: String,
    /// What was written under the step's id, once for every execution of its body.
    pub(crate) values: Vec<u64>,
}

/// Reads the ledger by step id, as a service that honours keys does.
pub(crate) fn read(dir: &Path, name: &str) -> BTreeMap<StepId, Effect> {
    let text = fs::read_to_string(path(dir, name)).expect("there is a ledger");
    let mut effects = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [step, number, what, value, WHOLE] = words[..] else {
            continue;
        };
        let step: StepId = step.parse().expect("a step id");
        let number: u64 = number.parse().expect("a number");
        let value: u64 = value.parse().expect("a value");
        let effect = effects.entry(step).or_insert_with(|| Effect {
            number,
            what: what.to_owned(),
            values: Vec::new(),
        });
        assert_eq!(
            (effect.number, effect.what.as_str()),
            (number, what),
            "{step} names two steps"
        );
        effect.values.push(value);
    }
    effects
}
