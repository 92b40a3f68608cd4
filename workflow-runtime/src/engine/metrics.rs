//! What an engine counts.
//!
//! Owns the counters, each a relaxed addition where the counted thing happens, and the form in which they are read.
//! Decides nothing by them, and counts nothing that would have to be looked up.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Engine;

/// Counters of one engine, since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    executed: Spread,
    replayed: AtomicU64,
    retried: AtomicU64,
    parked: AtomicU64,
}

impl Counters {
    /// An outcome of a live call became durable.
    pub(crate) fn executed(&self) {
        self.executed.add_one();
    }

    /// That many recorded outcomes were delivered.
    pub(crate) fn replayed(&self, outcomes: u64) {
        self.replayed.fetch_add(outcomes, Ordering::Relaxed);
    }

    /// An attempt failed and there will be another.
    pub(crate) fn retried(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    /// A run was parked.
    pub(crate) fn parked(&self) {
        self.parked.fetch_add(1, Ordering::Relaxed);
    }
}

/// A counter of what every step does. Threads count apart: one place would go to and fro between processors.
#[derive(Debug, Default)]
struct Spread([Place; PLACES]);

/// Places of a [`Spread`]: threads beyond that share.
const PLACES: usize = 16;

/// As far from the next one as processors fetch memory at once.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(AtomicU64);

impl Spread {
    fn add_one(&self) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % PLACES;
        }
        // While a thread ends it has no place of its own.
        let mine = MINE.try_with(|mine| *mine).unwrap_or_default();
        self.0[mine].0.fetch_add(1, Ordering::Relaxed);
    }

    fn sum(&self) -> u64 {
        let places = self.0.iter();
        places.map(|place| place.0.load(Ordering::Relaxed)).sum()
    }
}

/// What an engine counted since it was opened, and how it stands now; see [`Engine::metrics`].
///
/// Its `Display` is the text format that Prometheus reads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Whether the store failed; see [`Engine::health`].
    pub store_failed: bool,
    /// Runs in memory; see [`Engine::runs_in_memory`].
    pub runs_in_memory: u64,
    /// Those of them that are active: the others wait for something or for their turn.
    pub runs_active: u64,
    /// How often a run was parked.
    pub runs_parked: u64,
    /// Outcomes of steps, timers and children that became durable and were delivered.
    pub steps_executed: u64,
    /// Recorded outcomes that were delivered to runs that were resumed. A replay under way counts when it is through.
    pub steps_replayed: u64,
    /// Attempts that failed and were followed by another.
    pub retries: u64,
    /// Writes that the store acknowledged: starts, records of runs, signals.
    pub store_writes: u64,
    /// Groups of them that became durable together.
    pub store_commits: u64,
    /// Syncs that this took. A store in memory has none.
    pub store_syncs: u64,
    /// Bytes that the store wrote for them. A store in memory counts none.
    pub store_bytes: u64,
}

impl Engine {
    /// Returns what the engine counted since it was opened, and how it stands.
    ///
    /// ```
    /// # use workflow_runtime::{Engine, Result};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let engine = Engine::builder().open_in_memory().await?;
    /// let page = engine.metrics().to_string();
    /// assert!(page.contains("\nworkflow_store_failed 0\n"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn metrics(&self) -> Metrics {
        let shared = self.shared();
        let services = &shared.services;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (counters, store) = (&services.counters, shared.store.counts());
        let active = shared
            .max_active
            .saturating_sub(services.active.available_permits());
        Metrics {
            store_failed: shared.store_failure().is_some(),
            runs_in_memory: self.runs_in_memory() as u64,
            runs_active: active as u64,
            runs_parked: read(&counters.parked),
            steps_executed: counters.executed.sum(),
            steps_replayed: read(&counters.replayed),
            retries: read(&counters.retried),
            store_writes: store.writes,
            store_commits: store.commits,
            store_syncs: store.syncs,
            store_bytes: store.bytes,
        }
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut metric = |name: &str, kind: &str, help: &str, value: u64| {
            writeln!(f, "# HELP workflow_{name} {help}")?;
            writeln!(f, "# TYPE workflow_{name} {kind}")?;
            writeln!(f, "workflow_{name} {value}")
        };
        let failed = u64::from(self.store_failed);
        metric("store_failed", "gauge", "Whether the store failed.", failed)?;
        metric(
            "runs_in_memory",
            "gauge",
            "Runs in memory.",
            self.runs_in_memory,
        )?;
        metric(
            "runs_active",
            "gauge",
            "Runs that are active.",
            self.runs_active,
        )?;
        metric(
            "runs_parked_total",
            "counter",
            "Runs that were parked.",
            self.runs_parked,
        )?;
        metric(
            "steps_executed_total",
            "counter",
            "Outcomes that became durable.",
            self.steps_executed,
        )?;
        metric(
            "steps_replayed_total",
            "counter",
            "Recorded outcomes that were delivered.",
            self.steps_replayed,
        )?;
        metric(
            "retries_total",
            "counter",
            "Attempts that were followed by another.",
            self.retries,
        )?;
        metric(
            "store_writes_total",
            "counter",
            "Writes that were acknowledged.",
            self.store_writes,
        )?;
        metric(
            "store_commits_total",
            "counter",
            "Groups of writes.",
            self.store_commits,
        )?;
        metric(
            "store_syncs_total",
            "counter",
            "Syncs of the log.",
            self.store_syncs,
        )?;
        metric(
            "store_bytes_total",
            "counter",
            "Bytes written to the log.",
            self.store_bytes,
        )
    }
}
