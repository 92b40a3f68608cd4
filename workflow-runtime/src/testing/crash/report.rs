//! What is said when every crash came out well.

use std::fmt;
use std::time::Duration;

use super::case::Undisturbed;
use super::story::tell_write;
use crate::call::Workflow;
use crate::testing::ledger::Count;

/// What [`crash_everywhere`](super::crash_everywhere) tried. Printing it gives one line; with `{:#}` also the writes.
#[derive(Debug, Clone)]
pub struct CrashReport {
    workflow: &'static str,
    writes: Vec<String>,
    entries: usize,
    pub(super) cases: usize,
    pub(super) pairs: usize,
    pub(super) possible_pairs: usize,
    pub(super) missed: usize,
    pub(super) took: Duration,
}

impl CrashReport {
    pub(super) fn new<W: Workflow>(workflow: &'static str, undisturbed: &Undisturbed<W>) -> Self {
        let run = undisturbed.lived.run;
        let writes = undisturbed.written.iter();
        Self {
            workflow,
            writes: writes.map(|write| tell_write(write, run)).collect(),
            entries: undisturbed.ledger.entries().len(),
            cases: 0,
            pairs: 0,
            possible_pairs: 0,
            missed: 0,
            took: Duration::ZERO,
        }
    }

    /// Returns how many writes the undisturbed run made.
    pub fn writes(&self) -> usize {
        self.writes.len()
    }

    /// Returns how many times the run was lived through crashes, pairs included.
    pub fn cases(&self) -> usize {
        self.cases
    }

    /// Returns how many pairs of crashes were tried, and how many there are.
    pub fn pairs(&self) -> (usize, usize) {
        (self.pairs, self.possible_pairs)
    }

    /// Returns in how many cases the run ended before all planned crashes happened: it does not make the same writes every
    /// time. They were checked all the same.
    pub fn missed(&self) -> usize {
        self.missed
    }

    /// Returns how long it took, by the machine's clock.
    pub fn took(&self) -> Duration {
        self.took
    }
}

impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let single = Count(self.cases - self.pairs, "crash");
        write!(
            f,
            "`{}`: {}, {single}",
            self.workflow,
            Count(self.writes.len(), "write")
        )?;
        match (self.pairs, self.possible_pairs) {
            (0, _) => {}
            (pairs, possible) if pairs == possible => {
                write!(f, ", all {} of crashes", Count(pairs, "pair"))?;
            }
            (pairs, possible) => write!(f, ", {pairs} drawn of {possible} pairs of crashes")?,
        }
        let entries = Count(self.entries, "entry");
        write!(f, ": the same result and the same {entries} every time")?;
        if self.missed > 0 {
            let cases = Count(self.missed, "case");
            write!(
                f,
                "; in {cases} the run ended before its crash, as it does not write the same every time"
            )?;
        }
        write!(f, ", in {:.3} s", self.took.as_secs_f64())?;
        if f.alternate() {
            for (number, write) in self.writes.iter().enumerate() {
                write!(f, "\n  write {number:>2}: {write}")?;
            }
        }
        Ok(())
    }
}
