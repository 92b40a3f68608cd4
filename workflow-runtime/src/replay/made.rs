//! The calls that a replay makes, noted down: two replays are compared by them.
//!
//! Owns the notes of one replay and what of them another one has to repeat. Nobody keeps such notes but a replay that
//! is only tried.

use super::{Verdict, judge_input};
use crate::digest::InputDigest;
use crate::id_map::IdMap;
use crate::ids::StepId;

/// The calls that a replay made: steps, timers, children, places that push a message.
#[derive(Debug, Default)]
pub(crate) struct MadeCalls(IdMap<StepId, MadeCall>);

/// A call as it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeCall {
    /// What it was given; none for timers and messages.
    digest: Option<InputDigest>,
    /// The newest record that had been delivered by then.
    pub(crate) after: Option<u64>,
}

impl MadeCalls {
    pub(super) fn add(&mut self, call: StepId, digest: Option<InputDigest>, after: Option<u64>) {
        self.0.insert(call, MadeCall { digest, after });
    }

    /// Only these calls have to be repeated.
    pub(crate) fn retain(&mut self, mut which: impl FnMut(StepId, &MadeCall) -> bool) {
        self.0.retain(|call, made| which(*call, made));
    }

    /// Says whether another replay made all of these calls, each with the same input.
    pub(crate) fn are_in(&self, other: &Self) -> bool {
        let mut calls = self.0.iter();
        calls.all(|(call, made)| match other.0.get(call) {
            Some(again) => made.is_repeated_by(again),
            None => false,
        })
    }
}

impl MadeCall {
    fn is_repeated_by(&self, again: &Self) -> bool {
        match (&self.digest, &again.digest) {
            (Some(before), Some(now)) => {
                let verdict = judge_input(before, now);
                matches!(verdict, Verdict::Deliver | Verdict::DeliverReordered)
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn id(n: u8) -> StepId {
        StepId::from_bytes([n; 16])
    }

    fn digest(strict: u8, unordered: u8) -> Option<InputDigest> {
        Some(InputDigest {
            strict: Digest::from_bytes([strict; 16]),
            unordered: Some(Digest::from_bytes([unordered; 16])),
        })
    }

    fn made(calls: &[(u8, Option<InputDigest>)]) -> MadeCalls {
        let mut made = MadeCalls::default();
        for (call, digest) in calls {
            made.add(id(*call), *digest, None);
        }
        made
    }

    #[test]
    fn calls_are_repeated_if_all_are_made_with_the_same_input_in_whatever_order() {
        let before = made(&[(1, digest(1, 1)), (2, None)]);
        assert!(before.are_in(&made(&[(2, None), (3, None), (1, digest(1, 1))])));
        assert!(
            before.are_in(&made(&[(1, digest(7, 1)), (2, None)])),
            "the same, in another order"
        );
        assert!(!before.are_in(&made(&[(1, digest(1, 1))])));
        assert!(!before.are_in(&made(&[(1, digest(7, 7)), (2, None)])));
        assert!(!before.are_in(&made(&[(1, None), (2, None)])));
        assert!(!before.are_in(&made(&[(1, digest(1, 1)), (2, digest(1, 1))])));
    }

    #[test]
    fn what_does_not_have_to_be_repeated_is_not_asked_for() {
        let mut before = made(&[(1, digest(1, 1)), (2, None)]);
        before.retain(|call, made| call == id(2) && made.after.is_none());
        assert!(before.are_in(&made(&[(2, None)])));
    }
}
