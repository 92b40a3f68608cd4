//! Deterministic simulation: engine, clock, store and scheduler under one seed.
//!
//! A seed makes a random workflow and a random fate: crashes before, after and in the middle of writes, failing disks,
//! orderly stops, clocks that are turned, starts and signals that come twice, cancellations. The run lives through all of it
//! in as many processes as it takes, each on a runtime of its own, and is compared with a model that knows no engine.
//!
//! Owns the course of one case. What it must hold to is in `check`.

mod check;
mod fate;
mod life;
mod program;
mod workflows;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;

use workflow_runtime::RunId;
use workflow_runtime::store::memory::MemoryStore;

use self::fate::{Fate, Stop};
use self::program::{Ending, Maker, Program};
use self::world::World;
use crate::chance::Chance;

/// What a case came to.
pub(crate) struct Verdict {
    /// The hash of everything that was written and done: the same seed has the same.
    pub(crate) trace: blake3::Hash,
    /// What does not hold, by the number of the invariant.
    pub(crate) violations: Vec<String>,
    /// How many processes it took.
    pub(crate) processes: usize,
}

/// One random workflow and what happens to it.
struct Case {
    seed: u64,
    program: Program,
    ending: Ending,
    /// It has to wait for its turn.
    queued: bool,
    world: Arc<World>,
}

/// What somebody was told, and may therefore rely on.
#[derive(Default)]
struct Acknowledged {
    run: Option<RunId>,
    /// Signals by run, name and number.
    signals: BTreeSet<(RunId, u64, u64)>,
    /// Somebody asked for a cancellation: it may have been heard even if nobody said so.
    cancel_asked: bool,
    cancel_heard: bool,
}

/// Runs the case of a seed.
pub(crate) fn case(seed: u64) -> Verdict {
    let mut chance = Chance::new(seed);
    let program = Maker::new(chance.fork()).program(4);
    let case = Case {
        seed,
        program,
        ending: match chance.below(6) {
            0 => Ending::Failure,
            1 => Ending::Abort,
            _ => Ending::Value,
        },
        queued: chance.once_in(5),
        world: Arc::default(),
    };
    let mut told = Acknowledged::default();
    let mut violations = Vec::new();
    let mut store = MemoryStore::new();
    let (mut began_at, mut processes) = (life::FIRST_MORNING, 0);
    loop {
        processes += 1;
        let fate = Fate::draw(&mut chance, processes);
        let surviving = fate.surviving;
        store.set_faults(fate.plan.clone());
        let lived = life::live(&case, fate, &store, began_at, &mut told);
        violations.extend(lived.violations);
        // A machine is off for a while, and its clock goes on.
        began_at = lived.ended_at + chance.below(1 << 20);
        let is_over = matches!(lived.stop, Stop::Over | Stop::Hung);
        let after = store.reopen(surviving);
        let reader = life::Reader::open(store.reopen(surviving));
        violations.extend(check::acknowledged(&reader, &told));
        if is_over || !violations.is_empty() {
            violations.extend(check::whole(&case, &reader, &told));
            let trace = check::trace(&case, &reader);
            return Verdict {
                trace,
                violations,
                processes,
            };
        }
        case.world.begin_process(reader.settled());
        store = after;
    }
}
