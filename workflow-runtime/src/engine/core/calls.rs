//! The calls of a run that wait for their outcomes.
//!
//! Owns where they are kept. Most runs wait for one thing at a time: that call lies in the run's own state,
//! which is at hand when it is asked for, and costs neither an allocation nor a table. Never looks into a call.

use super::Waiting;
use crate::id_map::IdMap;
use crate::ids::StepId;

/// Calls by their ids.
#[derive(Default)]
pub(super) struct Calls {
    one: Option<(StepId, Waiting)>,
    /// Those that were made while there was one. Boxed, because a table keeps room for more entries than it has.
    more: IdMap<StepId, Box<Waiting>>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.is_empty()
    }

    pub(super) fn contains_key(&self, id: &StepId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn get(&self, id: &StepId) -> Option<&Waiting> {
        match &self.one {
            Some((known, call)) if known == id => Some(call),
            _ => self.more.get(id).map(|call| &**call),
        }
    }

    pub(super) fn get_mut(&mut self, id: &StepId) -> Option<&mut Waiting> {
        match &mut self.one {
            Some((known, call)) if known == id => Some(call),
            _ => self.more.get_mut(id).map(|call| &mut **call),
        }
    }

    /// Adds a call, and returns the one that had its id.
    pub(super) fn insert(&mut self, id: StepId, call: Waiting) -> Option<Waiting> {
        if let Some(known) = self.get_mut(&id) {
            return Some(std::mem::replace(known, call));
        }
        if self.one.is_none() {
            self.one = Some((id, call));
        } else {
            self.more.insert(id, Box::new(call));
        }
        None
    }

    pub(super) fn remove(&mut self, id: &StepId) -> Option<Waiting> {
        match self.one.take_if(|(known, _)| known == id) {
            Some((_, call)) => Some(call),
            None => self.more.remove(id).map(|call| *call),
        }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Waiting> {
        let one = self.one.iter().map(|(_, call)| call);
        one.chain(self.more.values().map(|call| &**call))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Waiting> {
        let one = self.one.iter_mut().map(|(_, call)| call);
        one.chain(self.more.values_mut().map(|call| &mut **call))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::panic::Location;

    use super::super::caller::Caller;
    use super::*;
    use crate::ids::CallKind;
    use crate::replay::WaitingCall;

    fn id(n: u8) -> StepId {
        StepId::from_bytes([n; 16])
    }

    fn call(n: u8, name: &'static str) -> Waiting {
        let view = WaitingCall {
            id: id(n),
            kind: CallKind::Step,
            name,
            site: Location::caller(),
            digest: None,
            fresh_for: None,
        };
        Waiting::new(view, Caller::Workflow, false)
    }

    fn all(calls: &mut Calls) -> BTreeSet<StepId> {
        let found: BTreeSet<_> = calls.values().map(|call| call.view.id).collect();
        let again: BTreeSet<_> = calls.values_mut().map(|call| call.view.id).collect();
        assert_eq!(found, again);
        for n in 0..10 {
            let has = found.contains(&id(n));
            assert_eq!(calls.contains_key(&id(n)), has);
            assert_eq!(calls.get(&id(n)).is_some(), has);
            assert_eq!(calls.get_mut(&id(n)).is_some(), has);
        }
        assert_eq!(calls.is_empty(), found.is_empty());
        found
    }

    /// Every order of making and ending four calls, compared with a set.
    #[test]
    fn calls_are_found_until_they_are_removed_whichever_is_removed_first() {
        for seed in 0..1_000_u32 {
            let (mut calls, mut expected) = (Calls::default(), BTreeSet::new());
            let mut random = seed;
            for _ in 0..12 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let n = (random >> 24) as u8 % 4;
                if expected.insert(id(n)) {
                    assert!(calls.insert(id(n), call(n, "step")).is_none());
                } else {
                    expected.remove(&id(n));
                    let removed = calls.remove(&id(n)).expect("it is there");
                    assert_eq!(removed.view.id, id(n));
                    assert!(calls.remove(&id(n)).is_none());
                }
                assert_eq!(all(&mut calls), expected);
            }
        }
    }

    #[test]
    fn a_second_call_of_an_id_says_which_was_first() {
        for n in [1, 2] {
            let mut calls = Calls::default();
            calls.insert(id(1), call(1, "first"));
            calls.insert(id(2), call(2, "first"));
            let taken = calls.insert(id(n), call(n, "second"));
            assert_eq!(taken.expect("it was there").view.name, "first");
            assert_eq!(calls.get(&id(n)).expect("still").view.name, "second");
            assert_eq!(all(&mut calls).len(), 2);
        }
    }
}
