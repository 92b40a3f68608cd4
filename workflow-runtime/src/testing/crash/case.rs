//! One case: a run that is lived through crashes, each life of the engine on what the one before left on the disk.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

use bytes::Bytes;

use super::Crash;
use super::story::{CrashFailure, Trouble};
use crate::call::Workflow;
use crate::clock::Clock;
use crate::ids::RunId;
use crate::journal::{Event, Journal};
use crate::store::memory::{FaultPlan, MemoryStore, Surviving, Written};
use crate::store::{RunQuery, Store};
use crate::testing::invariants::{Invariant, Violation};
use crate::testing::ledger::Difference;
use crate::testing::scenario::{Delivery, How, Lived, Scenario};
use crate::testing::{Ledger, LedgerCall};

/// The run as it goes when nothing goes wrong.
pub(super) struct Undisturbed<W: Workflow> {
    pub(super) lived: Lived<W>,
    pub(super) ledger: Ledger,
    pub(super) written: Vec<Written>,
}

impl<W: Workflow> Undisturbed<W> {
    /// Lives it, and checks that it is fit to be compared with.
    pub(super) async fn live(scenario: &Scenario<W>) -> Result<Self, CrashFailure>
    where
        W::Ok: PartialEq + Debug,
        W::Error: Debug,
    {
        let case = Case::live(scenario, &[]).await;
        let mut troubles = Vec::new();
        match &case.lived.how {
            How::Ended(_) => {}
            how @ (How::Refused(_) | How::Hung) => {
                troubles.push(Trouble::Result {
                    expected: None,
                    found: how.tell(scenario.limit),
                });
            }
        }
        troubles.extend(case.lived.driving.clone().map(Trouble::Driving));
        troubles.extend(
            case.lived
                .violations
                .iter()
                .cloned()
                .map(Trouble::Violation),
        );
        troubles.extend(Trouble::conflicts(&case.world.0));
        if !troubles.is_empty() {
            return Err(case.fail(troubles));
        }
        Ok(Self {
            written: case.store.written(),
            lived: case.lived,
            ledger: case.world.0,
        })
    }

    pub(super) fn writes(&self) -> u64 {
        self.written.len() as u64
    }
}

/// The frames of a run, by the number of their record.
type Frames = BTreeMap<u64, Bytes>;

/// What was there when the process died.
struct Survived {
    frames: HashMap<RunId, Frames>,
    /// How many calls the ledger had seen.
    calls: usize,
}

/// A case that was lived.
pub(super) struct Case<W: Workflow> {
    pub(super) lived: Lived<W>,
    world: (Ledger, Clock),
    /// The store of the last life.
    store: MemoryStore,
    /// The crashes that were planned, and the writes that they struck.
    planned: Vec<Crash>,
    struck: Vec<Written>,
}

impl<W: Workflow> Case<W> {
    pub(super) async fn live(scenario: &Scenario<W>, crashes: &[Crash]) -> Self
    where
        W::Error: Debug,
    {
        let world = scenario.world().await;
        let mut store = MemoryStore::new();
        let (mut struck, mut survived) = (Vec::new(), Vec::new());
        let mut planned = crashes.iter();
        for life in 0.. {
            store.watch();
            store.set_faults(planned.next().map_or_else(FaultPlan::none, |crash| {
                FaultPlan::at(crash.write, crash.fault())
            }));
            let living = scenario.live(&store, &world, life, Delivery::Once);
            let lived = tokio::select! {
                biased;
                () = store.crashed() => None,
                lived = living => Some(lived),
            };
            let Some(mut lived) = lived else {
                struck.extend(store.written().pop());
                store = store.reopen(Surviving::Synced);
                survived.push(Survived {
                    frames: all_frames(&store).await,
                    calls: world.0.calls().len(),
                });
                continue;
            };
            for before in &survived {
                lived.violations.extend(before.changed(&store).await);
                lived
                    .violations
                    .extend(before.run_again(&lived.journals, &world.0.calls()));
            }
            return Self {
                lived,
                world,
                store,
                planned: crashes.to_vec(),
                struck,
            };
        }
        unreachable!("a life without a planned crash comes to an end")
    }

    /// How many of the planned crashes happened.
    pub(super) fn struck(&self) -> usize {
        self.struck.len()
    }

    /// How many writes the last life made.
    pub(super) fn writes(&self) -> u64 {
        self.store.written().len() as u64
    }

    /// Says what came out differently, if anything did.
    pub(super) fn failure(
        &self,
        scenario: &Scenario<W>,
        undisturbed: &Undisturbed<W>,
    ) -> Option<CrashFailure>
    where
        W::Ok: PartialEq + Debug,
    {
        let ledger = &self.world.0;
        let mut troubles = Vec::new();
        let difference = Difference::between(&undisturbed.ledger.entries(), &ledger.entries());
        if !difference.is_empty() {
            troubles.push(Trouble::ledger(ledger, &difference));
        }
        troubles.extend(Trouble::conflicts(ledger));
        if !scenario.same_result(&undisturbed.lived.how, &self.lived.how) {
            troubles.push(Trouble::Result {
                expected: Some(undisturbed.lived.how.tell(scenario.limit)),
                found: self.lived.how.tell(scenario.limit),
            });
            // Where the run has not come to its end, the reason may be here.
            troubles.extend(self.lived.driving.clone().map(Trouble::Driving));
        }
        let violations = self.lived.violations.iter().cloned();
        troubles.extend(violations.map(Trouble::Violation));
        (!troubles.is_empty()).then(|| self.fail(troubles))
    }

    fn fail(&self, troubles: Vec<Trouble>) -> CrashFailure {
        CrashFailure {
            workflow: W::DEFINITION.name,
            crashes: self.planned.clone(),
            struck: self.struck.clone(),
            run: self.lived.run,
            troubles,
            timelines: self.lived.timelines(),
        }
    }
}

impl Survived {
    /// Finds records that were there before the crash and are not, or not as they were.
    async fn changed(&self, store: &MemoryStore) -> Vec<Violation> {
        let now = all_frames(store).await;
        let mut violations = Vec::new();
        for (run, before) in &self.frames {
            let nothing = Frames::new();
            let after = now.get(run).unwrap_or(&nothing);
            // What a run forgets when it begins anew lies between its first two records and the next one.
            let kept_from = after.keys().copied().find(|seq| *seq >= 2);
            let is_forgotten = |seq: u64| seq >= 2 && kept_from.is_some_and(|kept| seq < kept);
            let lost = before
                .iter()
                .find(|(seq, frame)| after.get(seq) != Some(frame) && !is_forgotten(**seq));
            if let Some((seq, _)) = lost {
                let problem = format!(
                    "record {seq} was on the disk at the crash, and is gone or another one now"
                );
                violations.push(Violation::new(*run, Invariant::AppendOnly, problem));
            }
        }
        violations
    }

    /// Finds steps whose outcome was on the disk at the crash and that asked the ledger for something after it.
    fn run_again(&self, journals: &[Journal], calls: &[LedgerCall]) -> Vec<Violation> {
        let mut violations = Vec::new();
        for call in calls.iter().skip(self.calls) {
            let Some(step) = &call.step else { continue };
            let Some(before) = self.frames.get(&step.run_id) else {
                continue;
            };
            let journal = journals.iter().find(|it| it.header().run == step.run_id);
            let records = journal.map_or(&[][..], Journal::records);
            let known = records.iter().find(|record| {
                before.contains_key(&record.seq)
                    && matches!(&record.event, Event::StepCompleted(done) if done.step == step.step_id)
            });
            let stale = records.iter().any(|record| match &record.event {
                Event::StaleOutcomeDiscarded(stale) => stale.step == step.step_id,
                Event::RunReopened(_) => true,
                _ => false,
            });
            if let (Some(known), false) = (known, stale) {
                let problem = format!(
                    "`{}` ({}) has its outcome in record {}, which survived the crash, and ran again: {call}",
                    step.step_name, step.step_id, known.seq
                );
                violations.push(Violation::new(step.run_id, Invariant::NotRunAgain, problem));
            }
        }
        violations
    }
}

/// Reads the frames of all runs of a store.
async fn all_frames(store: &MemoryStore) -> HashMap<RunId, Frames> {
    let query = RunQuery {
        limit: usize::MAX,
        ..RunQuery::default()
    };
    let mut all = HashMap::new();
    for header in store.list(query).await.expect("reads") {
        let kept = store.journal(header.run).await.expect("reads");
        let behind = kept.kept_from.max(2)..;
        all.insert(header.run, (0..2).chain(behind).zip(kept.frames).collect());
    }
    all
}

#[cfg(test)]
mod tests;
