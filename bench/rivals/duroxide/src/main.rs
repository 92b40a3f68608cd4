//! `duroxide` in the comparison.
//!
//! Mode: `sqlite`, a file as its own provider opens it, with 8 + 8 dispatchers that poll every millisecond. By its defaults (2 and
//! 2, every 100 ms) a chain does some 9 steps a second, which would measure the pause only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use contest::{Failure, Place, Removal, System};
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{InstanceFilter, Provider};
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{
    ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus,
};

/// A day.
const DAY: Duration = Duration::from_secs(86_400);

/// Longer than any limit of the runner.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Dispatchers of each kind.
const DISPATCHERS: usize = 8;

struct Duroxide {
    client: Client,
    /// Ids are not optional here.
    next: AtomicU64,
    _runtime: Arc<Runtime>,
}

impl Duroxide {
    fn new_id(&self) -> String {
        format!("run-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}

fn activities() -> ActivityRegistry {
    let one = |_: ActivityContext, x: String| async move {
        let x = x.parse().map_err(|error| format!("{x:?}: {error}"))?;
        Ok(contest::work(x).await.to_string())
    };
    ActivityRegistry::builder().register("one", one).build()
}

fn orchestrations() -> OrchestrationRegistry {
    let chain = |ctx: OrchestrationContext, steps: String| async move {
        let steps: u64 = steps
            .parse()
            .map_err(|error| format!("{steps:?}: {error}"))?;
        let mut x = String::from("0");
        for _ in 0..steps {
            x = ctx.schedule_activity("one", x).await?;
        }
        Ok::<_, String>(x)
    };
    let sleeper = |ctx: OrchestrationContext, _: String| async move {
        contest::asleep();
        ctx.schedule_timer(DAY).await;
        Ok::<_, String>(String::new())
    };
    OrchestrationRegistry::builder()
        .register("chain", chain)
        .register("sleeper", sleeper)
        .build()
}

impl System for Duroxide {
    async fn open(place: &Place) -> Result<Self, Failure> {
        if place.mode != "sqlite" {
            return Err(format!("no mode {:?}: sqlite", place.mode).into());
        }
        let file = place.dir.join("duroxide.db");
        // Its provider does not make the file.
        if !file.exists() {
            std::fs::File::create(&file)?;
        }
        let url = format!("sqlite:{}", file.display());
        let store: Arc<dyn Provider> = Arc::new(SqliteProvider::new(&url, None).await?);
        let options = RuntimeOptions {
            dispatcher_min_poll_interval: Duration::from_millis(1),
            orchestration_concurrency: DISPATCHERS,
            worker_concurrency: DISPATCHERS,
            ..RuntimeOptions::default()
        };
        let runtime =
            Runtime::start_with_options(store.clone(), activities(), orchestrations(), options);
        Ok(Self {
            _runtime: runtime.await,
            client: Client::new(store),
            next: AtomicU64::new(0),
        })
    }

    async fn chain(&self, key: Option<String>, steps: u64) -> Result<u64, Failure> {
        let id = key.unwrap_or_else(|| self.new_id());
        let steps = steps.to_string();
        self.client.start_orchestration(&id, "chain", steps).await?;
        match self.client.wait_for_orchestration(&id, PATIENCE).await? {
            OrchestrationStatus::Completed { output, .. } => Ok(output.parse()?),
            other => Err(format!("{other:?}").into()),
        }
    }

    async fn fall_asleep(&self) -> Result<(), Failure> {
        let id = self.new_id();
        Ok(self.client.start_orchestration(&id, "sleeper", "").await?)
    }

    async fn remove_ended(&self) -> Result<Removal, Failure> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let filter = InstanceFilter {
            completed_before: Some(u64::try_from(now.as_millis())?),
            ..InstanceFilter::default()
        };
        loop {
            let removed = self.client.delete_instance_bulk(filter.clone()).await?;
            if removed.instances_deleted == 0 {
                return Ok(Removal::Done);
            }
        }
    }
}

fn main() {
    contest::main::<Duroxide>()
}
