//! `durare` in the comparison.
//!
//! Modes: `sqlite` (its default: a file with `synchronous = NORMAL`, which does not sync a step), `sqlite-full` (the same file
//! with `synchronous = FULL`) and `postgres` (its default pool of 8; 32 when tuned).

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use contest::{Failure, Place, Removal, System};
use durare::{
    DurableContext, DurableEngine, PostgresProvider, SqliteProvider, StateProvider, WorkflowOptions,
};
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

/// A day.
const DAY: Duration = Duration::from_secs(86_400);

/// The connections of its own default pool on a file.
const FILE_CONNECTIONS: u32 = 5;

/// The connections of a tuned pool; PostgreSQL accepts 100.
const TUNED_CONNECTIONS: u32 = 32;

#[durare::workflow]
async fn chain(ctx: DurableContext, steps: u64) -> durare::Result<u64> {
    let mut x = 0;
    for _ in 0..steps {
        let step = ctx.step("one", move || async move {
            Ok::<u64, durare::Error>(contest::work(x).await)
        });
        x = step.await?;
    }
    Ok(x)
}

#[durare::workflow]
async fn sleeper(ctx: DurableContext, n: u64) -> durare::Result<u64> {
    contest::asleep();
    ctx.sleep(DAY).await?;
    Ok(n)
}

struct Durare(Arc<DurableEngine>);

async fn provider(place: &Place) -> Result<Arc<dyn StateProvider>, Failure> {
    let file = format!("sqlite://{}", place.dir.join("durare.db").display());
    Ok(match (place.mode.as_str(), place.tuned) {
        ("sqlite", _) => Arc::new(SqliteProvider::connect(&file).await?),
        ("sqlite-full", _) => {
            let options = SqliteConnectOptions::from_str(&file)?
                .create_if_missing(true)
                .foreign_keys(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full)
                .busy_timeout(Duration::from_secs(5));
            let pool = SqlitePoolOptions::new().max_connections(FILE_CONNECTIONS);
            Arc::new(SqliteProvider::from_pool(pool.connect_with(options).await?))
        }
        ("postgres", false) => {
            let url = format!("{}/postgres", place.url);
            Arc::new(PostgresProvider::connect_with_schema(&url, &place.name).await?)
        }
        ("postgres", true) => {
            let pool = PgPoolOptions::new().max_connections(TUNED_CONNECTIONS);
            let pool = pool.connect(&format!("{}/postgres", place.url)).await?;
            Arc::new(PostgresProvider::from_pool_with_schema(pool, &place.name)?)
        }
        (other, _) => {
            let modes = "sqlite, sqlite-full, postgres";
            return Err(format!("no mode {other:?}: {modes}").into());
        }
    })
}

impl System for Durare {
    async fn open(place: &Place) -> Result<Self, Failure> {
        let engine = DurableEngine::builder(provider(place).await?)
            .build()
            .await?;
        let engine = Arc::new(engine);
        if place.resuming {
            let recovering = engine.clone();
            // Its documented way to resume; in a task, because it may wait for what it resumes.
            tokio::spawn(async move {
                if let Err(error) = recovering.recover().await {
                    eprintln!("recovery failed: {error}");
                }
            });
        }
        Ok(Self(engine))
    }

    async fn chain(&self, key: Option<String>, steps: u64) -> Result<u64, Failure> {
        let run = match key {
            Some(key) => {
                let options = WorkflowOptions::with_id(key);
                self.0.start_with(Chain, steps, options).await?
            }
            None => {
                self.0
                    .start_with(Chain, steps, WorkflowOptions::default())
                    .await?
            }
        };
        Ok(run.await?)
    }

    async fn fall_asleep(&self) -> Result<(), Failure> {
        let options = WorkflowOptions::default();
        self.0.start_with(Sleeper, 0, options).await?;
        Ok(())
    }

    async fn remove_ended(&self) -> Result<Removal, Failure> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let cutoff = i64::try_from(now.as_millis())?;
        self.0.garbage_collect(Some(cutoff), None).await?;
        Ok(Removal::Done)
    }
}

fn main() {
    contest::main::<Durare>()
}
