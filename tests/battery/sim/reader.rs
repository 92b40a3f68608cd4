//! A process that looks, and changes nothing that anybody else sees.
//!
//! Owns the reading of a copy of the store: journals, bytes, what the checker says.

use std::future::IntoFuture as _;
use std::time::{Duration, SystemTime};

use tokio::runtime::Runtime;
use workflow_runtime::journal::Journal;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::store::{RunHeader, Store as _};
use workflow_runtime::testing::{TestEngine, Witness};
use workflow_runtime::{EngineError, RunId};

use super::beyond::BEAT;
use super::check::numbered;
use super::life::runtime;

/// A process that looks and does nothing: its engine knows no workflow.
pub(super) struct Reader {
    pub(super) runtime: Runtime,
    engine: TestEngine,
    store: MemoryStore,
}

impl Reader {
    pub(super) fn open(store: MemoryStore, namespace: &str, now: u64) -> Self {
        let runtime = runtime();
        let builder = TestEngine::builder()
            .configure(|engine| engine.namespace(namespace))
            .starts_at(SystemTime::UNIX_EPOCH + Duration::from_secs(now))
            .store(store.clone());
        let opened = runtime.block_on(builder.open());
        Self {
            engine: opened.expect("a store in memory opens"),
            runtime,
            store,
        }
    }

    /// Has a witness look.
    pub(super) fn check(&self, witness: &mut Witness) -> Vec<String> {
        numbered(self.runtime.block_on(witness.check(&self.engine)))
    }

    /// The headers of all runs.
    pub(super) fn headers(&self) -> Vec<RunHeader> {
        let page = self
            .runtime
            .block_on(self.engine.runs().limit(10_000).into_future());
        page.expect("lists").runs
    }

    /// The journal of a run.
    pub(super) fn journal(&self, run: RunId) -> Result<Journal, EngineError> {
        self.runtime.block_on(self.engine.journal(run))
    }

    /// How many ticks of the schedule found the run before them.
    pub(super) fn skipped_ticks(&self) -> Result<u64, EngineError> {
        let schedule = self.engine.schedule_handle(BEAT);
        let described = self.runtime.block_on(schedule.describe())?;
        Ok(described.skipped)
    }

    /// All runs with their journals, by id.
    pub(super) fn journals(&self) -> Vec<(RunId, Result<Journal, EngineError>)> {
        self.runtime.block_on(async {
            let page = self.engine.runs().limit(10_000).await.expect("lists");
            let mut runs: Vec<RunId> = page.runs.iter().map(|header| header.run).collect();
            runs.sort();
            let mut journals = Vec::new();
            for run in runs {
                journals.push((run, self.engine.journal(run).await));
            }
            journals
        })
    }

    /// The bytes of a run.
    pub(super) fn frames(&self, run: RunId) -> Vec<bytes::Bytes> {
        let journal = self.store.journal(run);
        self.runtime.block_on(journal).expect("reads").frames
    }
}
