//! One call of a ledger, and how it is told.

use std::fmt;

use crate::clock::Timestamp;
use crate::context::StepMetadata;

/// One call of a [`Ledger`](super::Ledger).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LedgerCall {
    /// Its place among all calls, from 1.
    pub number: usize,
    /// The key that it was made under.
    pub key: Option<String>,
    /// What was asked for.
    pub entry: String,
    /// When, by the clock of the engine whose step asked. `None` if no step did.
    pub at: Option<Timestamp>,
    /// The step that asked, and which attempt at it.
    pub step: Option<StepMetadata>,
    /// What became of it.
    pub answer: Answer,
    /// The number of the entry that was made or found.
    pub receipt: Option<u64>,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// It was done.
    Done,
    /// It had been done under this key; the first answer was given again.
    Known,
    /// The key had been used for another entry; nothing was done.
    Refused,
    /// Nothing was done, and the caller got an error.
    Failed,
    /// It was done, and the caller got an error.
    DoneAnswerLost,
    /// It had been done under this key, and the caller got an error.
    KnownAnswerLost,
}

impl LedgerCall {
    /// Says whether the call had an effect.
    pub fn acted(&self) -> bool {
        matches!(self.answer, Answer::Done | Answer::DoneAnswerLost)
    }

    /// Tells by whom it was made, under which key and when.
    pub(super) fn circumstances(&self) -> impl fmt::Display {
        Circumstances(self)
    }
}

impl fmt::Display for LedgerCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}. {}, {}",
            self.number,
            self.entry,
            Circumstances(self)
        )
    }
}

struct Circumstances<C>(C);

impl fmt::Display for Circumstances<&LedgerCall> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.0;
        match &call.key {
            Some(key) => write!(f, "under {key}")?,
            None => write!(f, "without a key")?,
        }
        match &call.step {
            Some(step) => write!(f, ", by `{}` attempt {}", step.step_name, step.attempt)?,
            None => write!(f, ", by no step")?,
        }
        if let Some(at) = call.at {
            write!(f, ", at {at}")?;
        }
        f.write_str(match call.answer {
            Answer::Done => "",
            Answer::Known => ": known, not done again",
            Answer::Refused => ": refused, the key was used for something else",
            Answer::Failed => ": failed, nothing done",
            Answer::DoneAnswerLost => ": done, the answer was lost",
            Answer::KnownAnswerLost => ": known, not done again, the answer was lost",
        })
    }
}
