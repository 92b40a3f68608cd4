//! What a repair says: which runs and notes are in the new store, how sure that is, and what is lost.
//!
//! Owns the words. Names runs by id and workflow, notes by kind: keys and payloads may be secrets.

use std::collections::BTreeMap;
use std::fmt;

use crate::ids::RunId;
use crate::store::StateKind;
use crate::store::sled::salvage::Found;

/// How much of a run is in the new store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// All of it, certainly. It goes on where it was.
    Whole,
    /// Whole as far as can be seen: its records follow each other, but later ones may be lost. It is parked, unless it has ended.
    AsFarAsSeen,
    /// Its first records; later ones are lost. It is parked, unless it had ended: then its result may be lost.
    Cut,
}

/// A run in the new store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedRun {
    /// The run.
    pub run: RunId,
    /// Its workflow.
    pub workflow: Box<str>,
    /// The number behind its last record that was saved.
    pub records: u64,
    /// In which state it was in the damaged store.
    pub was: StateKind,
    /// How much of it there is.
    pub fate: Fate,
    /// What is missing or may be, if it is not whole.
    pub why: Option<String>,
    /// Whether its chain could not be checked: it is sealed with an audit key that was not given.
    pub unchecked: bool,
}

/// A run that could not be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRun {
    /// The run.
    pub run: RunId,
    /// Why.
    pub why: String,
}

/// Notes beside the journals: keys, queues, schedules, inbox and outbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedNotes {
    /// How many of each kind are in the new store.
    pub saved: BTreeMap<&'static str, u64>,
    /// How many of these may be older than they were, or may have been removed.
    pub doubtful: BTreeMap<&'static str, u64>,
    /// Whether others may be missing altogether.
    pub may_be_missing: bool,
}

/// What a repair did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Repaired {
    /// The runs in the new store.
    pub runs: Vec<SalvagedRun>,
    /// Runs of which too little is left.
    pub lost: Vec<LostRun>,
    /// How many more ended or sleeping runs the damaged store counts, of which nothing is left.
    pub nameless: u64,
    /// The notes.
    pub notes: SalvagedNotes,
    /// What could not be read, by place.
    pub damage: Vec<String>,
    /// How many single flipped bits were found by checksums and put right.
    pub mended: u64,
}

impl Repaired {
    /// Says whether everything is in the new store, certainly.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty()
            && self.nameless == 0
            && self.notes.doubtful.is_empty()
            && !self.notes.may_be_missing
            && self.count(Fate::Whole) == self.runs.len()
    }

    /// Counts the runs of one fate.
    pub fn count(&self, fate: Fate) -> usize {
        self.runs.iter().filter(|run| run.fate == fate).count()
    }
}

/// Names a kind of note, from the space of its key.
fn kind(space: Option<u8>) -> &'static str {
    match space {
        Some(0x00) => "values, signal keys and promises of runs",
        Some(0x01) => "tokens of hooks",
        Some(0x02) => "marks of dangerous runs",
        Some(0x03) => "pauses",
        Some(0x40) => "schedules",
        Some(0x50..=0x55) => "queue entries",
        Some(0x60 | 0x68) => "generations of keys",
        Some(0x61) => "runs that replace others",
        Some(0x70..=0x72) => "guarded keys and inbox events",
        Some(0x80..=0x82) => "outbox messages",
        _ => "others",
    }
}

pub(super) fn notes(found: &Found) -> SalvagedNotes {
    let count = |keys: &mut dyn Iterator<Item = Option<u8>>| {
        let mut counted = BTreeMap::new();
        for space in keys {
            *counted.entry(kind(space)).or_insert(0) += 1;
        }
        counted
    };
    let saved = found.notes.keys();
    let doubtful = found.doubtful_notes.iter();
    let doubtful = doubtful.filter(|key| found.notes.contains_key(*key));
    SalvagedNotes {
        saved: count(&mut saved.map(|key| key.as_bytes().first().copied())),
        doubtful: count(&mut doubtful.map(|key| key.as_bytes().first().copied())),
        may_be_missing: found.notes_may_be_missing,
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "whole",
            Self::AsFarAsSeen => "whole as far as can be seen",
            Self::Cut => "cut",
        })
    }
}

impl fmt::Display for SalvagedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.was {
            StateKind::Active => "unfinished".to_owned(),
            StateKind::Parked => "parked".to_owned(),
            StateKind::Ended(kind) => kind.to_string(),
        };
        let Self {
            run,
            workflow,
            records,
            fate,
            ..
        } = self;
        write!(f, "{run} ({workflow}, {state}, {records} records): {fate}")?;
        if let Some(why) = &self.why {
            write!(f, ": {why}")?;
        }
        match self.unchecked {
            true => f.write_str(" (its chain was not checked: the audit key was not given)"),
            false => Ok(()),
        }
    }
}

impl fmt::Display for Repaired {
    /// Lists everything that is not certainly whole, and counts the rest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} runs whole, {} whole as far as can be seen, {} cut, {} lost",
            self.count(Fate::Whole),
            self.count(Fate::AsFarAsSeen),
            self.count(Fate::Cut),
            self.lost.len() as u64 + self.nameless
        )?;
        for run in self.runs.iter().filter(|run| run.fate != Fate::Whole) {
            writeln!(f, "  {run}")?;
        }
        for LostRun { run, why } in &self.lost {
            writeln!(f, "  {run}: lost: {why}")?;
        }
        if self.nameless > 0 {
            writeln!(
                f,
                "  {} ended or sleeping runs without a trace",
                self.nameless
            )?;
        }
        let unchecked = self.runs.iter().filter(|run| run.unchecked).count();
        if unchecked > 0 {
            writeln!(
                f,
                "{unchecked} journals were not checked: the audit key was not given"
            )?;
        }
        for (kind, count) in &self.notes.saved {
            let doubtful = self.notes.doubtful.get(kind).copied().unwrap_or(0);
            writeln!(f, "{count} {kind}, {doubtful} of them perhaps out of date")?;
        }
        if self.notes.may_be_missing {
            writeln!(
                f,
                "keys, signals, queue entries, schedules, events or messages may be missing: before a start is repeated, look whether \
                 its run is among the lost ones"
            )?;
        }
        if self.mended > 0 {
            writeln!(f, "{} flipped bits were put right", self.mended)?;
        }
        for damage in &self.damage {
            writeln!(f, "damaged: {damage}")?;
        }
        Ok(())
    }
}
