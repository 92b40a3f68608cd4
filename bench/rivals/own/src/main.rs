//! This engine in the comparison. Modes: `synced` (the default of the product) and `buffered`.

use std::time::Duration;

use contest::{Failure, Place, Removal, System};
use workflow_runtime::store::Durability;
use workflow_runtime::{Engine, Retention, sleep, step, workflow};

/// A day.
const DAY: Duration = Duration::from_secs(86_400);

#[step]
async fn one(x: u64) -> u64 {
    contest::work(x).await
}

#[workflow]
async fn chain(steps: u64) -> u64 {
    let mut x = 0;
    for _ in 0..steps {
        x = one(x).await;
    }
    x
}

/// What only counts is no effect that a replay could repeat wrongly.
#[workflow]
async fn sleeper() {
    contest::asleep();
    sleep(DAY).await;
}

struct Own(Engine);

impl System for Own {
    async fn open(place: &Place) -> Result<Self, Failure> {
        let durability = match place.mode.as_str() {
            "synced" => Durability::Synced,
            "buffered" => Durability::Buffered,
            other => return Err(format!("no mode {other:?}: synced, buffered").into()),
        };
        let mut builder = Engine::builder()
            .register::<chain>()
            .register::<sleeper>()
            .durability(durability);
        if place.removal {
            builder = builder.retention(Retention::of(Duration::ZERO));
        }
        Ok(Self(builder.open(place.dir.join("store")).await?))
    }

    async fn chain(&self, key: Option<String>, steps: u64) -> Result<u64, Failure> {
        let mut start = self.0.start(chain(steps));
        if let Some(key) = key {
            start = start.key(key);
        }
        Ok(start.await?.result().await?)
    }

    async fn fall_asleep(&self) -> Result<(), Failure> {
        self.0.start(sleeper()).await?;
        Ok(())
    }

    async fn remove_ended(&self) -> Result<Removal, Failure> {
        self.0.sweep().await?;
        Ok(Removal::Done)
    }
}

fn main() {
    contest::main::<Own>()
}
