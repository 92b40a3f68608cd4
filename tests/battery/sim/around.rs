//! What those outside do beside the run: guarded work, and short runs whose keys expire and which are swept.
//!
//! Owns what is asked for and what the answers must be. Never looks into the engine.

use std::time::Duration;

use workflow_runtime::idempotency::OnceError;
use workflow_runtime::store::Store as _;
use workflow_runtime::{Error, RunHandle};

use super::OWN;
use super::check::numbered;
use super::life::{KEEPS, Talk};
use super::workflows::brief;

/// Longer than any case takes.
const FOR_EVER: Duration = Duration::from_secs(36_500 * 86_400);

const MINUTE: Duration = Duration::from_secs(60);

/// How long the key of a short run names it; what `workflows` says.
const BRIEF_KEY: Duration = Duration::from_secs(60 * 60);

impl Talk<'_> {
    /// Does work under a guarded key, sometimes with another body: what was acknowledged once stands, and is not done again.
    pub(super) async fn guard(&mut self) {
        let (world, before) = (&self.case.world, self.case.world.times_guarded());
        let once = self.engine.once("guard").body(&1_u64).ttl(FOR_EVER);
        let done = once.run(|| async { Ok::<u64, Error>(world.guarded()) });
        match done.await {
            Ok(value) => {
                let first = *self.told.guarded.get_or_insert(value);
                if first != value {
                    let other = format!("3: a guarded key gave {first} and {value}");
                    self.violations.push(other);
                }
                if value < before && world.times_guarded() != before {
                    let again = "6: work under a guarded key was done again".to_owned();
                    self.violations.push(again);
                }
            }
            Err(_) if self.store.failure().is_some() => return,
            Err(error) => {
                let refused = format!("3: work under a guarded key was refused: {error}");
                self.violations.push(refused);
                return;
            }
        }
        let other = self.engine.once("guard").body(&2_u64).ttl(FOR_EVER);
        match other.run(|| async { Ok::<u64, Error>(u64::MAX) }).await {
            Err(OnceError::Conflict { .. }) => {}
            Err(_) if self.store.failure().is_some() => {}
            answer => {
                let answer = answer.map_err(|error| error.to_string());
                let wrong = format!("9: another body under a guarded key: {answer:?}");
                self.violations.push(wrong);
            }
        }
    }

    /// When all has ended: short runs whose keys expire, and which are removed. `false`: the disk has failed.
    pub(super) async fn coda(&mut self) -> bool {
        self.try_coda().await.is_some()
    }

    async fn try_coda(&mut self) -> Option<()> {
        // Without a key: only that it has not ended keeps it.
        let waiting = self.engine.start(brief(true)).await.ok()?;
        self.told.witness.started(OWN, waiting.id());
        self.told.witness.waits(waiting.id());
        let first = self.brief().await?;
        first.result().await.ok()?;
        self.look().await?;
        self.engine.advance(BRIEF_KEY - MINUTE).await;
        self.brief().await?;
        self.engine.advance(2 * MINUTE).await;
        let second = self.brief().await?;
        self.brief().await?.result().await.ok()?;
        second.result().await.ok()?;
        self.look().await?;
        self.engine.advance(KEEPS + BRIEF_KEY).await;
        self.engine.sweep().await.ok()?;
        self.look().await?;
        self.told.witness.may_end(waiting.id());
        let go = self.engine.signal(waiting.id(), "go", &1_u64).key("go");
        go.await.ok()?;
        waiting.result().await.ok()?;
        Some(())
    }

    /// Starts a short run.
    async fn brief(&mut self) -> Option<RunHandle<brief>> {
        let run = self.engine.start(brief(false)).key("brief").await.ok()?;
        let witness = &mut self.told.witness;
        witness.started_under("brief", OWN, run.id(), Some(BRIEF_KEY));
        Some(run)
    }

    /// Has the witness look at the engine that lives.
    async fn look(&mut self) -> Option<()> {
        self.told.hear(&self.case.world);
        let found = self.told.witness.check(self.engine).await.ok()?;
        self.violations.extend(numbered(Ok(found)));
        Some(())
    }
}
