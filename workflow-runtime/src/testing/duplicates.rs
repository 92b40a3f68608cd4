//! Everything delivered several times: starts, and whatever else reaches a run from outside.
//!
//! Owns the ways in which deliveries repeat, and the comparison with the run that got each of them once.

use std::fmt::{self, Debug};
use std::time::{Duration, Instant};

use super::Ledger;
use super::crash::Trouble;
use super::ledger::{Count, Difference};
use super::scenario::{Delivery, How, Lived, Scenario, scenario_methods};
use crate::call::{Workflow, WorkflowCall};
use crate::store::memory::MemoryStore;

/// The ways in which deliveries repeat, and how they are told.
const WAYS: [(Delivery, &str); 3] = [
    (Delivery::AtOnce, "three times at once"),
    (Delivery::InTurn, "three times in turn"),
    (Delivery::AfterTheEnd, "twice more after the run had ended"),
];

/// Delivers every start, signal and event three times, and checks that it makes no difference.
///
/// The run is first lived with each of them once, then three times at once, three times in turn, and once with two more
/// after its end. The start is repeated under the run's key; what [`drive`](DeliverDuplicates::drive) does is repeated as
/// a whole, so every signal and event in it is. The workflow must return the same, the [`Ledger`] must have
/// the same entries, and every start must give the same run.
///
/// ```
/// use workflow_runtime::testing::deliver_duplicates;
/// use workflow_runtime::{Result, wait_for, workflow};
///
/// #[workflow]
/// async fn order() -> Result<(u64, u64)> {
///     let deposit = wait_for("payment").await?;
///     let rest = wait_for("payment").await?;
///     Ok((deposit, rest))
/// }
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() {
///     deliver_duplicates(order)
///         .drive(async |_, run| {
///             run.signal("payment", &100_u64).key("payment-1").await?; // without the key it would be taken twice
///             run.signal("payment", &400_u64).key("payment-2").await?;
///             Ok(())
///         })
///         .run()
///         .await;
/// }
/// ```
pub fn deliver_duplicates<W: Workflow>(
    call: impl Fn() -> WorkflowCall<W> + 'static,
) -> DeliverDuplicates<W> {
    DeliverDuplicates {
        scenario: Scenario::new(call),
    }
}

/// A check that is about to be made; see [`deliver_duplicates`].
#[must_use = "nothing is checked until `run` is awaited"]
pub struct DeliverDuplicates<W: Workflow> {
    scenario: Scenario<W>,
}

/// What [`deliver_duplicates`] tried.
#[derive(Debug, Clone)]
pub struct DuplicatesReport {
    workflow: &'static str,
    entries: usize,
    took: Duration,
}

/// A way of repeating deliveries that made a difference. Printing it tells the story.
#[derive(Debug, Clone)]
pub struct DuplicatesFailure {
    workflow: &'static str,
    /// `None`: it went wrong without any repetition.
    way: Option<&'static str>,
    troubles: Vec<Trouble>,
    timelines: String,
}

impl<W: Workflow> DeliverDuplicates<W> {
    scenario_methods!();

    /// Makes the check.
    ///
    /// # Panics
    ///
    /// With the story of the first way that made a difference; see [`DuplicatesFailure`].
    pub async fn run(self) -> DuplicatesReport
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
    /// The story of the first way that made a difference.
    ///
    /// # Panics
    ///
    /// If the engine cannot be opened, or the runtime has more than one thread.
    pub async fn try_run(self) -> Result<DuplicatesReport, DuplicatesFailure>
    where
        W::Ok: PartialEq + Debug,
        W::Error: Debug,
    {
        let began = Instant::now();
        let (once, ledger) = self.live(Delivery::Once).await;
        let mut troubles = Vec::new();
        if !matches!(once.how, How::Ended(_)) {
            troubles.push(Trouble::Result {
                expected: None,
                found: once.how.tell(self.scenario.limit),
            });
        }
        troubles.extend(once.driving.clone().map(Trouble::Driving));
        troubles.extend(once.violations.iter().cloned().map(Trouble::Violation));
        troubles.extend(Trouble::conflicts(&ledger));
        fail_with(None, &once, troubles)?;
        for (delivery, way) in WAYS {
            let (again, found) = self.live(delivery).await;
            let troubles = self.compare((&once, &ledger), (&again, &found));
            fail_with(Some(way), &again, troubles)?;
        }
        Ok(DuplicatesReport {
            workflow: W::DEFINITION.name,
            entries: ledger.entries().len(),
            took: began.elapsed(),
        })
    }

    async fn live(&self, delivery: Delivery) -> (Lived<W>, Ledger)
    where
        W::Error: Debug,
    {
        let world = self.scenario.world().await;
        let store = MemoryStore::new();
        let lived = self.scenario.live(&store, &world, 0, delivery).await;
        (lived, world.0)
    }

    fn compare(
        &self,
        (once, expected): (&Lived<W>, &Ledger),
        (again, found): (&Lived<W>, &Ledger),
    ) -> Vec<Trouble>
    where
        W::Ok: PartialEq + Debug,
    {
        let mut troubles = Vec::new();
        let difference = Difference::between(&expected.entries(), &found.entries());
        if !difference.is_empty() {
            troubles.push(Trouble::ledger(found, &difference));
        }
        troubles.extend(Trouble::conflicts(found));
        if !self.scenario.same_result(&once.how, &again.how) {
            troubles.push(Trouble::Result {
                expected: Some(once.how.tell(self.scenario.limit)),
                found: again.how.tell(self.scenario.limit),
            });
            troubles.extend(again.driving.clone().map(Trouble::Driving));
        }
        troubles.extend(again.violations.iter().cloned().map(Trouble::Violation));
        troubles
    }
}

fn fail_with<W: Workflow>(
    way: Option<&'static str>,
    lived: &Lived<W>,
    troubles: Vec<Trouble>,
) -> Result<(), DuplicatesFailure> {
    if troubles.is_empty() {
        return Ok(());
    }
    Err(DuplicatesFailure {
        workflow: W::DEFINITION.name,
        way,
        troubles,
        timelines: lived.timelines(),
    })
}

impl fmt::Display for DuplicatesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}`: everything delivered three times in {} ways: the same result and the same {} every time, in {:.3} s",
            self.workflow,
            WAYS.len(),
            Count(self.entries, "entry"),
            self.took.as_secs_f64()
        )
    }
}

impl fmt::Display for DuplicatesFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workflow = self.workflow;
        match self.way {
            None => write!(
                f,
                "`{workflow}` cannot be checked: it goes wrong without any duplicate"
            )?,
            Some(way) => write!(
                f,
                "`{workflow}` comes out differently when everything is delivered {way}"
            )?,
        }
        f.write_str("\n\n")?;
        for trouble in &self.troubles {
            writeln!(f, "{trouble}\n")?;
        }
        if self.way.is_some() {
            writeln!(
                f,
                "A signal is taken once if it is sent under a key: `run.signal(..).key(..)`; an event if it comes through an inbox.\n"
            )?;
        }
        write!(f, "The journal in the end:\n\n")?;
        for line in self.timelines.lines() {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for DuplicatesFailure {}
