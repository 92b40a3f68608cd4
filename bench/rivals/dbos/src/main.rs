//! `dbos` in the comparison. Mode: `postgres`, with its default pool of 10 (50 when tuned).

use std::time::Duration;

use contest::{Failure, Place, Removal, System};
use dbos::sysdb::types::{WorkflowFilter, WorkflowStatus};
use dbos::{Children, Config, DBOS, EngineOnly, RunOptions, StartOptions, WorkflowRef};

/// A day.
const DAY: Duration = Duration::from_secs(86_400);

/// The connections of a tuned pool; PostgreSQL accepts 100.
const TUNED_CONNECTIONS: u32 = 50;

/// Runs that are listed and deleted at a time.
const PAGE: i64 = 1_000;

struct Dbos {
    dbos: DBOS,
    chain: WorkflowRef<u64, u64, EngineOnly>,
    sleeper: WorkflowRef<u64, u64, EngineOnly>,
}

impl System for Dbos {
    async fn open(place: &Place) -> Result<Self, Failure> {
        let mut config = Config::new("contest", format!("{}/{}", place.url, place.name));
        // A restart with the same version resumes.
        config.app_version = Some("1".into());
        if place.tuned {
            config.max_connections = TUNED_CONNECTIONS;
        }
        let dbos = DBOS::new(config);
        let chain = dbos.register_workflow("chain", |steps: u64| async move {
            let mut x = 0;
            for _ in 0..steps {
                let step = dbos::step("one", move || async move {
                    Ok::<u64, dbos::Error>(contest::work(x).await)
                });
                x = step.await?;
            }
            Ok::<u64, dbos::Error>(x)
        })?;
        let sleeper = dbos.register_workflow("sleeper", |n: u64| async move {
            contest::asleep();
            dbos::sleep::<EngineOnly>(DAY).await?;
            Ok::<u64, dbos::Error>(n)
        })?;
        dbos.launch().await?;
        Ok(Self {
            dbos,
            chain,
            sleeper,
        })
    }

    async fn chain(&self, key: Option<String>, steps: u64) -> Result<u64, Failure> {
        let options = RunOptions {
            workflow_id: key.as_deref(),
            ..RunOptions::default()
        };
        Ok(self.chain.run_with(steps, options).await?)
    }

    async fn fall_asleep(&self) -> Result<(), Failure> {
        self.sleeper.start_with(0, StartOptions::default()).await?;
        Ok(())
    }

    async fn remove_ended(&self) -> Result<Removal, Failure> {
        loop {
            let filter = WorkflowFilter {
                status: vec![WorkflowStatus::Success],
                limit: Some(PAGE),
                ..WorkflowFilter::default()
            };
            let ended = self.dbos.list_workflows(&filter).await?;
            if ended.is_empty() {
                return Ok(Removal::Done);
            }
            let ids: Vec<&str> = ended.iter().map(|run| run.workflow_id.as_str()).collect();
            self.dbos.delete_all(&ids, Children::Skip).await?;
        }
    }
}

fn main() {
    contest::main::<Dbos>()
}
