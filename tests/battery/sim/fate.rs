//! What goes wrong in one process.

use workflow_runtime::store::memory::{Fault, FaultPlan, Surviving};

use crate::chance::Chance;

/// More processes than this live without a fault, so that every case ends.
const UNLUCKY: usize = 3;

/// What happens to one process.
pub(super) struct Fate {
    pub(super) plan: FaultPlan,
    pub(super) surviving: Surviving,
    /// An orderly stop after so many rounds.
    pub(super) stops_after: Option<u64>,
    /// Somebody asks for the run to be cancelled in that round.
    pub(super) cancels_in: Option<u64>,
    /// The decisions of those who talk to it.
    pub(super) chance: Chance,
}

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// All runs have ended.
    Over,
    /// It died, or its disk failed, or it was stopped.
    Early,
    /// Nothing goes on any more, and a run has not ended.
    Hung,
}

impl Fate {
    pub(super) fn draw(chance: &mut Chance, process: usize) -> Self {
        let is_unlucky = process <= UNLUCKY && !chance.once_in(5);
        let plan = match is_unlucky {
            true => FaultPlan::at(chance.below(14), chance.one_of(&Fault::ALL)),
            false => FaultPlan::none(),
        };
        let surviving = match chance.below(3) {
            0 => Surviving::Synced,
            1 => Surviving::All,
            _ => Surviving::Random(chance.draw()),
        };
        let is_stopped = process <= UNLUCKY && chance.once_in(6);
        Self {
            plan,
            surviving,
            stops_after: is_stopped.then(|| chance.below(12)),
            cancels_in: chance.once_in(10).then(|| chance.below(10)),
            chance: chance.fork(),
        }
    }
}
