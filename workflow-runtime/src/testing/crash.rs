//! A crash at every write: the workflow is run once per write with a crash before it and one after it.
//!
//! Owns which crashes are tried. How one case is lived is in `case`, what is said of one that went wrong in `story`,
//! of all that went well in `report`.

mod case;
mod report;
mod story;

use std::fmt::{self, Debug};
use std::time::Instant;

use self::case::{Case, Undisturbed};
pub use self::report::CrashReport;
pub use self::story::CrashFailure;
pub(super) use self::story::Trouble;
use super::chaos::Draw;
use super::scenario::{Scenario, scenario_methods};
use crate::call::{Workflow, WorkflowCall};
use crate::store::memory::Fault;

/// So many pairs of crashes are all tried; of more, as many are drawn.
const ALL_PAIRS: usize = 2_000;

/// A crash of the process at a write. Writes are counted from 0 in every life of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Crash {
    write: u64,
    after: bool,
}

impl Crash {
    /// Dies before the write: nothing of it is on the disk, and what the step did outside has happened.
    pub fn before(write: u64) -> Self {
        Self {
            write,
            after: false,
        }
    }

    /// Dies after the write is durable, and before anybody is told.
    pub fn after(write: u64) -> Self {
        Self { write, after: true }
    }

    fn fault(self) -> Fault {
        match self.after {
            false => Fault::CrashBefore,
            true => Fault::CrashAfter,
        }
    }

    fn all(writes: u64) -> impl Iterator<Item = Self> {
        (0..writes).flat_map(|write| [Self::before(write), Self::after(write)])
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = if self.after { "after" } else { "before" };
        write!(f, "{when} write {}", self.write)
    }
}

/// Runs a workflow once per journal write with a crash exactly there, and checks that nothing is lost and nothing done
/// twice.
///
/// The run is first lived undisturbed, in memory and virtual time. Then it is lived again for every write that was
/// made: the process dies before that write, and in another case after it; a new engine is opened on what is on the disk
/// and goes on. Whatever happened, the workflow must return the same, the [`Ledger`](super::Ledger) must have the same
/// entries, and the journals must keep the [`Invariant`](super::Invariant)s. What is not synced does not survive the crash,
/// as in a power cut.
///
/// ```
/// use workflow_runtime::testing::{Ledger, crash_everywhere};
/// use workflow_runtime::{Result, get_step_metadata, step, workflow};
///
/// #[step(effect = "payment")]
/// async fn charge(#[resource] ledger: &Ledger, customer: &str, cents: u64) -> Result<u64> {
///     let key = get_step_metadata().step_id;
///     Ok(ledger.post(key, ("charge", customer, cents))?.receipt)
/// }
///
/// #[workflow]
/// async fn checkout(customer: String) -> Result<u64> {
///     charge(&customer, 500).await
/// }
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() {
///     let report = crash_everywhere(|| checkout("ada".into()))
///         .engine(|engine, ledger| engine.resource(ledger.clone()))
///         .two_crashes()
///         .run()
///         .await;
///     assert_eq!(report.writes(), 3); // the start, the outcome, the end
/// }
/// ```
pub fn crash_everywhere<W: Workflow>(
    call: impl Fn() -> WorkflowCall<W> + 'static,
) -> CrashEverywhere<W> {
    CrashEverywhere {
        scenario: Scenario::new(call),
        pairs: None,
        only: None,
    }
}

/// A check that is about to be made; see [`crash_everywhere`].
#[must_use = "nothing is checked until `run` is awaited"]
pub struct CrashEverywhere<W: Workflow> {
    scenario: Scenario<W>,
    /// The seed by which pairs are drawn; `None`: one crash is enough.
    pairs: Option<u64>,
    only: Option<Vec<Crash>>,
}

impl<W: Workflow> CrashEverywhere<W> {
    scenario_methods!();

    /// Tries two crashes as well: each of the single ones, and a second one in the life that follows. All pairs up to
    /// 2,000; of more, 2,000 are drawn.
    pub fn two_crashes(self) -> Self {
        self.two_crashes_drawn_by(0)
    }

    /// Tries two crashes as well, drawn by this seed where there are too many to try all.
    pub fn two_crashes_drawn_by(mut self, seed: u64) -> Self {
        self.pairs = Some(seed);
        self
    }

    /// Tries one case only: that of a failure, to be looked at more closely. The crashes are those of one life after
    /// the other.
    pub fn only(mut self, crashes: impl IntoIterator<Item = Crash>) -> Self {
        self.only = Some(crashes.into_iter().collect());
        self
    }

    /// Makes the check.
    ///
    /// # Panics
    ///
    /// With the story of the first case that came out differently; see [`CrashFailure`].
    pub async fn run(self) -> CrashReport
    where
        W::Ok: PartialEq + Debug,
        W::Error: Debug,
    {
        match self.try_run().await {
            Ok(report) => report,
            Err(failure) => panic!("{failure}"),
        }
    }

    /// Makes the check, and returns the failure instead of panicking.
    ///
    /// # Errors
    ///
    /// The story of the first case that came out differently.
    ///
    /// # Panics
    ///
    /// If the engine cannot be opened, or the runtime has more than one thread.
    pub async fn try_run(self) -> Result<CrashReport, CrashFailure>
    where
        W::Ok: PartialEq + Debug,
        W::Error: Debug,
    {
        let began = Instant::now();
        let undisturbed = Undisturbed::live(&self.scenario).await?;
        let mut report = CrashReport::new(W::DEFINITION.name, &undisturbed);
        match &self.only {
            Some(crashes) => drop(self.tried(crashes, &undisturbed, &mut report).await?),
            None => self.try_all(&undisturbed, &mut report).await?,
        }
        report.took = began.elapsed();
        Ok(report)
    }

    async fn try_all(
        &self,
        undisturbed: &Undisturbed<W>,
        report: &mut CrashReport,
    ) -> Result<(), CrashFailure>
    where
        W::Ok: PartialEq + Debug,
        W::Error: Debug,
    {
        let mut pairs = Vec::new();
        for first in Crash::all(undisturbed.writes()) {
            let writes = self.tried(&[first], undisturbed, report).await?;
            pairs.extend(Crash::all(writes).map(|second| [first, second]));
        }
        let Some(seed) = self.pairs else {
            return Ok(());
        };
        report.possible_pairs = pairs.len();
        for pair in draw(pairs, seed) {
            self.tried(&pair, undisturbed, report).await?;
            report.pairs += 1;
        }
        Ok(())
    }

    /// Tries one case, and returns how many writes its last life made.
    async fn tried(
        &self,
        crashes: &[Crash],
        undisturbed: &Undisturbed<W>,
        report: &mut CrashReport,
    ) -> Result<u64, CrashFailure>
    where
        W::Ok: PartialEq + Debug,
        W::Error: Debug,
    {
        let case = Case::live(&self.scenario, crashes).await;
        if let Some(failure) = case.failure(&self.scenario, undisturbed) {
            return Err(failure);
        }
        report.cases += 1;
        report.missed += usize::from(case.struck() < crashes.len());
        Ok(case.writes())
    }
}

/// Draws some of many pairs, each once; all if they are few. They stay in their order.
fn draw(pairs: Vec<[Crash; 2]>, seed: u64) -> Vec<[Crash; 2]> {
    if pairs.len() <= ALL_PAIRS {
        return pairs;
    }
    let mut drawn: Vec<_> = (0..pairs.len()).collect();
    for at in 0..ALL_PAIRS {
        let left = (drawn.len() - at) as u64;
        let other = Draw(seed).mix(at as u64).below(left);
        drawn.swap(at, at + usize::try_from(other).expect("an index"));
    }
    drawn.truncate(ALL_PAIRS);
    drawn.sort_unstable();
    drawn.into_iter().map(|at| pairs[at]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn many_pairs_are_drawn_by_the_seed_and_each_once() {
        let pairs = || -> Vec<_> {
            let first = Crash::all(40);
            first
                .flat_map(|first| Crash::all(40).map(move |second| [first, second]))
                .collect()
        };
        let drawn = draw(pairs(), 1);
        assert_eq!(drawn.len(), ALL_PAIRS);
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), ALL_PAIRS);
        assert_eq!(drawn, draw(pairs(), 1));
        assert_ne!(drawn, draw(pairs(), 2));
        let few: Vec<_> = pairs().into_iter().take(ALL_PAIRS).collect();
        assert_eq!(draw(few.clone(), 1), few);
    }
}
