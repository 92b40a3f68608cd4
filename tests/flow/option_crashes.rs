//! A crash at every journal write of workflows that use the options of steps, together and alone: the
//! resumed run ends the same, and the outside world saw every effect once.

use std::sync::Arc;
use std::time::Duration;

use futures::join;
use workflow_runtime::store::Durability;
use workflow_runtime::store::memory::{Fault, FaultPlan, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Result, Workflow, WorkflowCall, sleep, step, workflow,
};
use workflow_tests::{Ledger, ids_of, survive};

/// Longer than what [`quote`] stays fresh for.
const DOWNTIME: Duration = Duration::from_millis(3);

#[step(at_most_once)]
async fn ship(#[resource] ledger: &Ledger) -> Result<usize> {
    ledger.act("ship");
    Ok(4)
}

/// Ships by hand what has not gone out.
#[step]
async fn make_sure(#[resource] ledger: &Ledger) -> Result<usize> {
    let has_gone_out = ledger.effects().iter().any(|effect| effect == "ship");
    if !has_gone_out {
        ledger.act("ship");
    }
    Ok(4)
}

#[step(intent)]
async fn charge(#[resource] ledger: &Ledger, cents: usize) -> Result<usize> {
    ledger.act("charge");
    Ok(cents)
}

#[step(effect = "read", fresh_for = "1ms")]
async fn quote(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(what.len())
}

#[step(durability = "buffered")]
async fn note(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(what.len())
}

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(what.len())
}

#[workflow(inline)]
async fn ship_for_sure() -> Result<usize> {
    match ship().await {
        Err(error) if error.is_interrupted() => make_sure().await,
        other => other,
    }
}

#[workflow]
async fn ships() -> Result<Vec<usize>> {
    Ok(vec![ship_for_sure().await?])
}

#[workflow]
async fn charges() -> Result<Vec<usize>> {
    Ok(vec![charge(7).await?])
}

#[workflow]
async fn quotes() -> Result<Vec<usize>> {
    Ok(vec![quote("quote").await?])
}

#[workflow]
async fn notes() -> Result<Vec<usize>> {
    Ok(vec![note("one").await?, note("two").await?])
}

#[workflow]
async fn all_together() -> Result<Vec<usize>> {
    let price = quote("quote").await?;
    let mut seen = vec![note("one").await?, charge(price).await?];
    let (shipped, told, again) = join!(
        async { ship_for_sure().await },
        async {
            note("two").await?;
            act("told").await
        },
        async { quote("again").await },
    );
    seen.extend([shipped?, told?, again?]);
    sleep(Duration::from_millis(1)).await;
    seen.push(note("three").await?);
    seen.push(act("last").await?);
    Ok(seen)
}

fn engine(ledger: &Arc<Ledger>, durability: Durability) -> EngineBuilder {
    std::thread::sleep(DOWNTIME);
    Engine::builder()
        .register::<ships>()
        .register::<charges>()
        .register::<quotes>()
        .register::<notes>()
        .register::<all_together>()
        .durability(durability)
        .resource_arc(ledger.clone())
}

/// What a workflow is to come to.
struct Story<W: Workflow> {
    call: fn() -> WorkflowCall<W>,
    result: &'static [usize],
    effects: &'static [&'static str],
    durability: Durability,
}

impl<W: Workflow<Ok = Vec<usize>, Error = workflow_runtime::Error>> Story<W> {
    /// Lives through the plans, and says how many writes the last process made.
    async fn comes_out(&self, plans: Vec<FaultPlan>) -> u64 {
        let shown = format!("{} {plans:?}", W::DEFINITION.name);
        let ledger = Ledger::shared();
        let builder = || engine(&ledger, self.durability);
        let (result, store) = survive(builder, self.call, plans).await;
        assert_eq!(result.expect(&shown), self.result, "{shown}");
        assert_eq!(ledger.effects(), self.effects, "{shown}");
        let writes = store.writes();
        let store = store.reopen(Surviving::Synced);
        let reader = builder().open_with(store).await.expect("opens");
        let verification = reader.verify().await.expect("verifies");
        assert!(verification.damaged.is_empty(), "{shown}: {verification:?}");
        let run = reader.runs().await.expect("lists").runs[0].run;
        let journal = reader.journal(run).await.expect("reads");
        for id in ids_of(&journal, "ship") {
            let attempts = ledger.attempts();
            let asked = attempts.iter().filter(|(step, _)| *step == id);
            assert!(asked.count() <= 1, "{shown}: shipped twice\n{journal}");
        }
        writes
    }

    async fn survives_a_crash_at_every_write(&self) {
        for write in 0..self.comes_out(Vec::new()).await {
            for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
                self.comes_out(vec![FaultPlan::at(write, fault)]).await;
            }
        }
    }

    async fn survives_two_crashes_at_any_writes(&self) {
        let writes = self.comes_out(Vec::new()).await;
        for first in 0..writes {
            for second in 0..writes + 2 - first {
                self.comes_out(vec![
                    FaultPlan::at(first, Fault::CrashAfter),
                    FaultPlan::at(second, Fault::CrashBefore),
                ])
                .await;
            }
        }
    }
}

const TOGETHER: Story<all_together> = Story {
    call: all_together,
    result: &[3, 5, 4, 4, 5, 5, 4],
    effects: &[
        "again", "charge", "last", "one", "quote", "ship", "three", "told", "two",
    ],
    durability: Durability::Synced,
};

#[tokio::test]
async fn all_options_together_survive_a_crash_at_every_write() {
    TOGETHER.survives_a_crash_at_every_write().await;
}

#[tokio::test]
async fn all_options_together_survive_two_crashes_at_any_writes() {
    TOGETHER.survives_two_crashes_at_any_writes().await;
}

#[tokio::test]
async fn all_options_together_survive_crashes_of_a_buffered_engine() {
    let story = Story {
        durability: Durability::Buffered,
        ..TOGETHER
    };
    story.survives_a_crash_at_every_write().await;
}

#[tokio::test]
async fn a_step_that_runs_at_most_once_survives_crashes_alone() {
    let story = Story {
        call: ships,
        result: &[4],
        effects: &["ship"],
        durability: Durability::Synced,
    };
    story.survives_a_crash_at_every_write().await;
    story.survives_two_crashes_at_any_writes().await;
}

#[tokio::test]
async fn a_step_with_an_intent_survives_crashes_alone() {
    let story = Story {
        call: charges,
        result: &[7],
        effects: &["charge"],
        durability: Durability::Synced,
    };
    story.survives_a_crash_at_every_write().await;
    story.survives_two_crashes_at_any_writes().await;
}

#[tokio::test]
async fn a_step_that_goes_stale_survives_crashes_alone() {
    let story = Story {
        call: quotes,
        result: &[5],
        effects: &["quote"],
        durability: Durability::Synced,
    };
    story.survives_a_crash_at_every_write().await;
    story.survives_two_crashes_at_any_writes().await;
}

#[tokio::test]
async fn buffered_steps_survive_crashes_alone() {
    let story = Story {
        call: notes,
        result: &[3, 3],
        effects: &["one", "two"],
        durability: Durability::Synced,
    };
    story.survives_a_crash_at_every_write().await;
    story.survives_two_crashes_at_any_writes().await;
}
