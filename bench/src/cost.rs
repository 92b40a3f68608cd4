//! What a step costs in processor time, for comparing two builds on a machine that others use.
//!
//! Wall time says what the disk and the neighbours did; processor time says mostly what the code
//! did. The amount of work is fixed, so that instruction counts (callgrind) can be compared too.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use workflow_runtime::store::Durability;

use crate::engine;
use crate::report::{Figure, median};

/// Runs of 50 steps in one measurement: enough for processor time that comes in steps of 10 ms.
const PROCESSOR_RUNS: u64 = 2_048;

/// Processor time of all threads of this process, also of those that have ended; in steps of 10 ms.
pub fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks
        .map(|ticks| ticks.parse::<u64>().expect("a number"))
        .sum();
    Duration::from_millis(ticks * 10)
}

/// What a step took.
struct Cost {
    cpu_us: f64,
    wall_us: f64,
}

/// Drives `runs` runs of so many steps, `at_once` at a time: opening and closing the store are not counted.
fn measure(scratch: &Path, at_once: usize, runs: u64, steps: u64, durability: Durability) -> Cost {
    let dir = engine::fresh(scratch);
    let total = runs * steps;
    engine::runtime().block_on(async {
        let engine = engine::open(dir.path(), durability).await;
        let (began, cpu) = (Instant::now(), processor_time());
        let handed_out = AtomicU64::new(0);
        let more = move |_, _| handed_out.fetch_add(1, Ordering::Relaxed) < runs;
        engine::drive(&engine, at_once, steps, more).await;
        let (wall, cpu) = (began.elapsed(), processor_time() - cpu);
        engine.shutdown().await.expect("it stops");
        let per_step = |time: Duration| time.as_secs_f64() * 1e6 / total as f64;
        Cost {
            cpu_us: per_step(cpu),
            wall_us: per_step(wall),
        }
    })
}

/// Prints what a step of so many runs took.
pub fn steps(scratch: &Path, at_once: usize, runs: u64, steps: u64) {
    let cost = measure(scratch, at_once, runs, steps, Durability::Synced);
    println!(
        "{{\"workload\":\"cost-{at_once}\",\"steps\":{},\"cpu_us_per_step\":{:.3},\"wall_us_per_step\":{:.3}}}",
        runs * steps,
        cost.cpu_us,
        cost.wall_us
    );
}

/// Measures the processor time of a step, 64 runs at once. Says whether it is what was asked for.
///
/// It was asked for without the sync, whose work in the kernel is in the first figure; the second has none of it.
pub fn processor(scratch: &Path, repeats: usize) -> bool {
    let of = |durability| {
        let mut costs: Vec<f64> = (0..repeats)
            .map(|_| {
                let steps = engine::STEPS_PER_SHORT_RUN;
                measure(scratch, 64, PROCESSOR_RUNS, steps, durability).cpu_us
            })
            .collect();
        median(&mut costs)
    };
    Figure::engine(
        "processor-64",
        "cpu_us_per_buffered_step",
        of(Durability::Buffered),
    )
    .print();
    Figure::engine("processor-64", "cpu_us_per_step", of(Durability::Synced))
        .at_most(15.0)
        .print()
}

/// Replays a run of so many steps and prints what a step of it took.
pub fn replay(scratch: &Path, steps: u64) {
    let replay = engine::replay(scratch, steps);
    println!(
        "{{\"workload\":\"cost-replay\",\"steps\":{steps},\"cpu_us_per_step\":{:.3},\"wall_us_per_step\":{:.3},\"open_ms\":{:.1}}}",
        replay.cpu.as_secs_f64() * 1e6 / steps as f64,
        1e6 / replay.steps_per_second,
        replay.open_ms
    );
}
