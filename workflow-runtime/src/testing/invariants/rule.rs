//! The rules by name and number, and what is found against one.
//!
//! Owns the list. The numbers are those of the book's chapter on reliability; no rule is judged here.

use std::fmt;

use crate::ids::RunId;

/// A rule that holds whatever goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Invariant {
    /// What was acknowledged (a start, a signal, an outcome, an end) is there after any crash.
    Acknowledged,
    /// The chain verifies; a journal begins with its start, and one that has ended ends with its end.
    Chain,
    /// Records are numbered from 0 without gaps, and none is dated before the one before it.
    Order,
    /// A record that was there before a crash is there after it, unchanged.
    AppendOnly,
    /// At most one outcome is in force per step id.
    OneOutcome,
    /// A step that completed had its effect, under its id, once.
    OneEffect,
    /// An id belongs to one call: it always has the same name, and always does the same.
    OneCallPerId,
    /// A step whose outcome is on record does not run again.
    NotRunAgain,
    /// The code asks for the same calls in every replay.
    SameReplay,
    /// A key names one run, however often it is started.
    OneRunPerKey,
    /// Another input under a key is refused, and the refusal names the run that has the key.
    Conflict,
    /// A key lives at least as long as was promised, and then has exactly one new run.
    KeyLifetime,
    /// A timer fires once, after it was set and not before its deadline.
    Timers,
    /// A signal with a key is received once; signals that were acknowledged are received in that order.
    Signals,
    /// A child ends once, after it was started.
    Children,
    /// A write under a stale epoch changes nothing.
    Fencing,
    /// A run that has not ended is driven, queued, waits for something, or is parked with a reason.
    NoOrphan,
    /// A run that cannot go on does not stop the others.
    Poison,
    /// A run ends once, unless it was reopened on record; nothing else follows its end.
    EndsOnce,
    /// Attempts at a step are numbered upwards, end with its outcome, and stay within what is allowed.
    Attempts,
    /// Damage is found and named.
    Corruption,
    /// After an error of the disk nothing is acknowledged until the store was opened again.
    FailStop,
    /// Only runs that have ended are removed, not before their time, and whole.
    Retention,
    /// Nothing of one namespace is seen from another.
    Namespaces,
}

impl Invariant {
    /// Returns the number that it has in the book's chapter on reliability, from 1 to 21.
    pub fn number(self) -> u8 {
        match self {
            Self::Acknowledged => 1,
            Self::Chain | Self::Order | Self::AppendOnly => 2,
            Self::OneOutcome => 3,
            Self::OneEffect => 4,
            Self::OneCallPerId => 5,
            Self::NotRunAgain => 6,
            Self::SameReplay => 7,
            Self::OneRunPerKey => 8,
            Self::Conflict => 9,
            Self::KeyLifetime => 10,
            Self::Timers => 11,
            Self::Signals | Self::Children => 12,
            Self::Fencing => 13,
            Self::NoOrphan => 14,
            Self::Poison => 15,
            Self::EndsOnce => 16,
            Self::Attempts => 17,
            Self::Corruption => 18,
            Self::FailStop => 19,
            Self::Retention => 20,
            Self::Namespaces => 21,
        }
    }
}

/// Something that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The run that it is about.
    pub run: RunId,
    /// The rule.
    pub invariant: Invariant,
    /// What is wrong, with the numbers of the records.
    pub problem: String,
}

impl Violation {
    pub(in crate::testing) fn new(run: RunId, invariant: Invariant, problem: String) -> Self {
        Self {
            run,
            invariant,
            problem,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({:?})", self.run, self.problem, self.invariant)
    }
}
