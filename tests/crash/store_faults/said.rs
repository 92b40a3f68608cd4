//! What children said on their standard output: what they were told by their stores.
//!
//! Owns the reading of these lines. A line that a child did not finish was not said.

use std::collections::{BTreeMap, BTreeSet};

use super::story::Told;
use super::work::Expected;

/// What must be there, and what must not.
#[derive(Debug, Clone, Default)]
pub(super) struct Said {
    /// The most that was said of each run.
    pub(super) acknowledged: Vec<Expected>,
    /// How far each story got.
    pub(super) told: Vec<Told>,
    /// Runs whose deletion was acknowledged.
    pub(super) gone: BTreeSet<u64>,
}

impl Said {
    /// Reads what was said.
    pub(super) fn of(output: &str) -> Self {
        let mut frames: BTreeMap<u64, Expected> = BTreeMap::new();
        let mut told: BTreeMap<u64, Told> = BTreeMap::new();
        let mut gone = BTreeSet::new();
        for line in output.split_inclusive('\n') {
            let Some(line) = line.strip_suffix('\n') else {
                continue;
            };
            let Some((word, rest)) = line.trim().split_once(' ') else {
                continue;
            };
            let numbers: Vec<u64> = rest.split(' ').filter_map(|n| n.parse().ok()).collect();
            let len = |len: u64| usize::try_from(len).expect("a length");
            match (word, &numbers[..]) {
                ("ack", [n, count, bytes]) => {
                    let (n, len) = (*n, len(*bytes));
                    let entry = frames.entry(n).or_insert(Expected { n, frames: 0, len });
                    entry.frames = entry.frames.max(*count);
                }
                ("ack-story", [n, step, bytes]) => {
                    let (n, step, len) = (*n, *step, len(*bytes));
                    let entry = told.entry(n).or_insert(Told { n, step, len });
                    entry.step = entry.step.max(step);
                }
                // It is being deleted: nobody knows whether it is there.
                ("going", [n]) => drop(frames.remove(n)),
                ("gone", [n]) => drop(gone.insert(*n)),
                ("ack" | "ack-story" | "going" | "gone", _) => panic!("the child said `{line}`"),
                _ => {}
            }
        }
        Self {
            acknowledged: frames.into_values().collect(),
            told: told.into_values().collect(),
            gone,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.acknowledged.is_empty() && self.told.is_empty() && self.gone.is_empty()
    }
}
