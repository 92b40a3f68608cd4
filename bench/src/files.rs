//! Journals as files: how long it takes to read one of 10,000 steps and to replay it.

use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use workflow_runtime::testing::{Replayer, Stopped};
use workflow_runtime::{Engine, step, workflow};

use crate::engine::runtime;
use crate::report::{Figure, median};

/// Steps of the journal.
const STEPS: u64 = 10_000;

/// Milliseconds that reading and replaying it may take.
const AT_MOST: f64 = 100.0;

#[derive(Clone, Serialize, Deserialize)]
struct Receipt {
    id: String,
    customer: String,
    cents: u64,
}

#[step]
async fn charge(customer: &str, cents: u64) -> Receipt {
    Receipt {
        id: format!("charge-{cents}"),
        customer: customer.to_owned(),
        cents,
    }
}

#[workflow]
async fn many(customer: String, steps: u64) -> u64 {
    let mut sum = 0;
    for cents in 0..steps {
        sum += charge(&customer, cents).await.cents;
    }
    sum
}

/// Records a run, writes it in both forms, and measures what a test does with the files.
pub fn replay(scratch: &Path, repeats: usize) -> bool {
    let forms = [
        ("replay-file-json", scratch.join("many.journal.json")),
        ("replay-file-binary", scratch.join("many.journal")),
    ];
    runtime().block_on(async {
        let engine = Engine::builder().register::<many>().open_in_memory().await;
        let engine = engine.expect("it opens");
        let run = engine.start(many("Ada".into(), STEPS)).await;
        let run = run.expect("it starts");
        run.result().await.expect("it ends");
        let file = engine.export(run.id()).await.expect("it is exported");
        for (_, path) in &forms {
            file.write(path).expect("it is written");
        }
    });
    let replayer = Replayer::new().register::<many>();
    let mut all_met = true;
    for (workload, path) in &forms {
        let bytes = std::fs::metadata(path).expect("it is there").len();
        eprintln!("{workload}: {bytes} bytes");
        let mut took: Vec<f64> = (0..repeats)
            .map(|_| {
                let began = Instant::now();
                let replayed = replayer.file(path).expect("it fits");
                let took = began.elapsed().as_secs_f64() * 1e3;
                assert_eq!(replayed.steps as u64, STEPS);
                assert_eq!(replayed.stopped, Stopped::Ended);
                took
            })
            .collect();
        eprintln!("{workload}: {took:.1?} ms");
        let took = median(&mut took);
        all_met &= Figure::engine(workload, "ms", took)
            .at_most(AT_MOST)
            .print();
        Figure::engine(workload, "steps_per_s", STEPS as f64 / took * 1e3).print();
    }
    all_met
}
