//! Calls that the journal knows and that a replay has not made yet.
//!
//! Owns how they are found. Nearly always the code makes its calls in the order in which they were
//! recorded, or nearly so; then a list is enough, and a journal of 100,000 steps needs no table of
//! them. The table is made when the first call is not found near the front of the list.

use std::collections::VecDeque;

use crate::id_map::{IdMap, IdSet};
use crate::ids::StepId;

/// How far from its front the list is looked through: more than most runs do at a time.
const NEAR: usize = 16;

/// Calls that the journal knows and that were not made yet.
#[derive(Debug, Default)]
pub(super) struct Unmade {
    /// Calls with an outcome and no record before it, in the order of the journal.
    listed: VecDeque<(StepId, u64)>,
    /// All others. No call is in both: its outcome is a call's last record.
    table: IdMap<StepId, Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// The newest record of the call.
    seq: u64,
    has_outcome: bool,
}

impl Unmade {
    /// A record says that a call was made. Records come in their order.
    pub(super) fn add(&mut self, call: StepId, seq: u64, has_outcome: bool) {
        if has_outcome && !self.table.contains_key(&call) {
            self.listed.push_back((call, seq));
            return;
        }
        let known = self.table.entry(call);
        let known = known.or_insert(Known { seq, has_outcome });
        known.seq = seq;
        known.has_outcome |= has_outcome;
    }

    /// The call is made. Says whether the journal has an outcome for it.
    pub(super) fn remove(&mut self, call: StepId) -> bool {
        let near = self.listed.iter().take(NEAR);
        if let Some(at) = near.into_iter().position(|(listed, _)| *listed == call) {
            self.listed.remove(at);
            return true;
        }
        if self.listed.len() > NEAR && !self.table.contains_key(&call) {
            self.tabulate();
        }
        let known = self.table.remove(&call);
        known.is_some_and(|known| known.has_outcome)
    }

    /// The call counts no more, whatever the journal says of it.
    pub(super) fn forget(&mut self, call: StepId) {
        self.tabulate();
        self.table.remove(&call);
    }

    /// The call's outcome counts no more; that it was made does.
    pub(super) fn void(&mut self, call: StepId) {
        self.tabulate();
        if let Some(known) = self.table.get_mut(&call) {
            known.has_outcome = false;
        }
    }

    /// Only these calls count.
    pub(super) fn retain(&mut self, calls: &IdSet<StepId>) {
        self.listed.retain(|(call, _)| calls.contains(call));
        self.table.retain(|call, _| calls.contains(call));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.table.is_empty()
    }

    /// The newest record of any of them.
    pub(super) fn newest(&self) -> Option<u64> {
        let listed = self.listed.back().map(|(_, seq)| *seq);
        let tabled = self.table.values().map(|known| known.seq).max();
        listed.max(tabled)
    }

    /// Moves the list into the table.
    fn tabulate(&mut self) {
        self.table.reserve(self.listed.len());
        for (call, seq) in std::mem::take(&mut self.listed) {
            let has_outcome = true;
            self.table.insert(call, Known { seq, has_outcome });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(n: u64) -> StepId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        bytes[8..].copy_from_slice(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        StepId::from_bytes(bytes)
    }

    /// What it has to be like, without a list.
    #[derive(Default)]
    struct Plain(std::collections::BTreeMap<StepId, (u64, bool)>);

    impl Plain {
        fn add(&mut self, call: StepId, seq: u64, has_outcome: bool) {
            let known = self.0.entry(call).or_insert((seq, has_outcome));
            *known = (seq, known.1 | has_outcome);
        }
    }

    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        }
    }

    #[test]
    fn calls_are_found_in_whatever_order_they_are_made() {
        for seed in 1..400 {
            let mut next = numbers(seed);
            let (mut unmade, mut plain) = (Unmade::default(), Plain::default());
            let (mut seq, calls) = (0, 5 + next(80));
            // Some have records before their outcome, some have none at all.
            for n in 0..calls {
                for _ in 0..next(3) {
                    let earlier = n.saturating_sub(next(1 + seed % 7));
                    let done = plain.0.get(&call(earlier)).is_some_and(|known| known.1);
                    if !done {
                        seq += 1;
                        unmade.add(call(earlier), seq, false);
                        plain.add(call(earlier), seq, false);
                    }
                }
                if next(5) > 0 {
                    seq += 1;
                    unmade.add(call(n), seq, true);
                    plain.add(call(n), seq, true);
                }
            }
            if seed % 11 == 0 {
                let kept = (0..calls).filter(|n| n % 3 > 0).map(call).collect();
                unmade.retain(&kept);
                plain.0.retain(|call, _| kept.contains(call));
            }
            let spread = 1 + next(40);
            for n in 0..calls + 3 {
                let made = call(match next(10) {
                    0 => n + next(spread),
                    _ => n,
                });
                if next(30) == 0 {
                    unmade.forget(made);
                    plain.0.remove(&made);
                }
                let newest = plain.0.values().map(|known| known.0).max();
                assert_eq!(unmade.newest(), newest, "seed {seed}");
                assert_eq!(unmade.is_empty(), plain.0.is_empty(), "seed {seed}");
                let expected = plain.0.remove(&made).is_some_and(|known| known.1);
                assert_eq!(unmade.remove(made), expected, "seed {seed}, call {n}");
            }
        }
    }

    #[test]
    fn calls_made_in_their_order_need_no_table() {
        let mut unmade = Unmade::default();
        (0..1_000).for_each(|n| unmade.add(call(n), n, true));
        for n in (0..990).step_by(2) {
            // As a `join!` of two would that finished the other way round.
            assert!(unmade.remove(call(n + 1)) && unmade.remove(call(n)));
        }
        assert_eq!(unmade.table.capacity(), 0);
        assert!(!unmade.remove(call(5_000)) && unmade.table.is_empty());
    }
}
