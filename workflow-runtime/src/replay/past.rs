//! How far a run's code got before: which calls the journal knows, which patches it took.
//!
//! Owns the question "does recorded history go on behind this place of the code?", which is what a
//! patch is decided by, and the answer to it for every later replay. It never delivers anything.

use std::collections::BTreeMap;
use std::hint::cold_path;

use super::made::MadeCalls;
use super::unmade::Unmade;
use crate::digest::InputDigest;
use crate::id_map::IdSet;
use crate::ids::{RunId, StepId};

/// What the journal knows of the way that the code took.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// Calls that the journal knows and that this replay has not made yet.
    unmade: Unmade,
    /// Outcomes may be delivered in another order than that of the journal.
    tolerant: bool,
    /// The newest record that was delivered.
    passed: Option<u64>,
    /// Patches that were decided: by a marker in the journal, or when the code asked.
    patches: BTreeMap<Box<str>, bool>,
    /// Runs that the journal's beginning was copied from, the oldest first.
    forks: Vec<Fork>,
    /// Places of the code that have pushed their message.
    pushed: IdSet<StepId>,
    /// The calls that the code makes, if somebody wants to know.
    noted: Option<Box<MadeCalls>>,
}

/// A run that the beginning of a journal was copied from.
#[derive(Debug)]
pub(crate) struct Fork {
    /// The run.
    pub(crate) origin: RunId,
    /// Its calls that the copied records know: they keep their ids.
    pub(crate) shared: IdSet<StepId>,
    /// The last copied outcome: until it was delivered, the code believes to be the origin.
    pub(crate) until: Option<u64>,
}

/// What a patch comes out as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patch {
    /// The run takes the new way, and its journal says so.
    Taken,
    /// The run takes the new way from now on: that has to go into its journal.
    New,
    /// The run went past this place before there was a patch.
    Untaken,
}

impl Past {
    /// Outcomes may be delivered in another order than that of the journal.
    pub(crate) fn tolerate(&mut self) {
        self.tolerant = true;
    }

    /// A record says that a call was made.
    pub(super) fn add(&mut self, call: StepId, seq: u64, has_outcome: bool) {
        self.unmade.add(call, seq, has_outcome);
    }

    /// Notes down the calls that the code makes.
    pub(crate) fn note_calls(&mut self) {
        self.noted = Some(Box::default());
    }

    /// The calls that were noted down.
    pub(crate) fn take_noted(&mut self) -> MadeCalls {
        self.noted.take().map_or_else(MadeCalls::default, |it| *it)
    }

    /// A call is to be made as if it had never been; in a fork, as its own.
    pub(super) fn forget(&mut self, call: StepId) {
        self.unmade.forget(call);
        for fork in &mut self.forks {
            fork.shared.remove(&call);
        }
    }

    /// The outcome of a call no longer counts; that it was made does.
    pub(super) fn void_outcome(&mut self, call: StepId) {
        self.unmade.void(call);
    }

    /// Says whether the call is one of a run that this one was forked from.
    pub(super) fn is_copied(&self, call: StepId) -> bool {
        self.forks.iter().any(|fork| fork.shared.contains(&call))
    }

    /// All records until now were copied from another run; of its calls only `shared` are known.
    pub(super) fn fork(&mut self, origin: RunId, shared: IdSet<StepId>, until: Option<u64>) {
        self.unmade.retain(&shared);
        self.forks.push(Fork {
            origin,
            shared,
            until,
        });
    }

    /// Says whether nothing that is asked of it depends on it: the code has come to all that is known.
    pub(crate) fn is_blank(&self) -> bool {
        self.unmade.is_empty()
            && self.patches.is_empty()
            && self.forks.is_empty()
            && self.pushed.is_empty()
            && self.noted.is_none()
    }

    /// Takes out the runs that the journal's beginning was copied from.
    pub(crate) fn take_forks(&mut self) -> Vec<Fork> {
        std::mem::take(&mut self.forks)
    }

    /// The newest record that was delivered.
    pub(crate) fn passed(&self) -> Option<u64> {
        self.passed
    }

    /// The workflow begins anew: no call of an earlier pass is made again.
    pub(crate) fn begin_anew(&mut self) {
        self.unmade = Unmade::default();
        self.pushed = IdSet::default();
        self.forks.clear();
    }

    /// The patches that were decided.
    pub(crate) fn patches(&self) -> impl Iterator<Item = (&str, bool)> {
        let patches = self.patches.iter();
        patches.map(|(name, taken)| (&**name, *taken))
    }

    /// A checkpoint says how a patch was decided.
    pub(super) fn decide_patch(&mut self, name: Box<str>, taken: bool) {
        self.patches.insert(name, taken);
    }

    /// A marker says that a patch was taken.
    pub(super) fn add_patch(&mut self, name: Box<str>) {
        self.patches.insert(name, true);
    }

    /// A record says that a place of the code has pushed its message.
    pub(super) fn add_pushed(&mut self, call: StepId) {
        self.pushed.insert(call);
    }

    /// The places that have pushed their message.
    pub(super) fn pushed(&self) -> impl Iterator<Item = StepId> {
        self.pushed.iter().copied()
    }

    /// The code comes to a place that pushes a message. Says whether the journal has that already.
    pub(crate) fn push(&mut self, call: StepId) -> bool {
        self.note(call, None);
        self.pushed.remove(&call)
    }

    /// The code makes a call. Says whether the journal has an outcome for it.
    pub(crate) fn make(&mut self, call: StepId, input: Option<&InputDigest>) -> bool {
        self.note(call, input);
        self.unmade.remove(call)
    }

    fn note(&mut self, call: StepId, input: Option<&InputDigest>) {
        if let Some(noted) = &mut self.noted {
            cold_path();
            noted.add(call, input.copied(), self.passed);
        }
    }

    /// A record was delivered, or passed over because nobody wants it.
    pub(crate) fn pass(&mut self, seq: u64) {
        self.passed = self.passed.max(Some(seq));
    }

    /// An outcome was delivered that is newer than all of these records.
    pub(crate) fn pass_all(&mut self) {
        self.pass(u64::MAX);
        if !self.tolerant && !self.unmade.is_empty() {
            self.unmade = Unmade::default();
        }
    }

    /// Decides a patch, once for all: true unless recorded history goes on behind this place.
    ///
    /// It does if a record that is newer than the last delivered one is of a call that the code has
    /// not made by now. Outcomes of calls that were made before do not count: they would be there
    /// as well if the code had come here for the first time when the process died. So a marker that
    /// was lost in a crash, and everything behind it with it, comes out the same again. In tolerant
    /// replay the order of delivery says nothing, so any record of a call that was not made counts.
    pub(crate) fn patch(&mut self, name: &str) -> Patch {
        if let Some(taken) = self.patches.get(name) {
            return if *taken { Patch::Taken } else { Patch::Untaken };
        }
        let newest = self.unmade.newest();
        let goes_on = newest.is_some_and(|newest| self.tolerant || Some(newest) > self.passed);
        self.patches.insert(name.into(), !goes_on);
        if goes_on { Patch::Untaken } else { Patch::New }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> StepId {
        StepId::from_bytes([n; 16])
    }

    fn knowing(call: u8, seq: u64) -> Past {
        let mut past = Past::default();
        past.add(id(call), seq, true);
        past
    }

    #[test]
    fn a_patch_is_taken_unless_a_call_behind_the_last_delivery_was_not_made() {
        assert_eq!(Past::default().patch("way"), Patch::New);
        assert_eq!(knowing(1, 5).patch("way"), Patch::Untaken);
        let mut before = knowing(1, 5);
        before.pass(4);
        assert_eq!(before.patch("way"), Patch::Untaken);
        let mut past = knowing(1, 5);
        past.pass(5);
        past.pass(2);
        assert_eq!(past.passed(), Some(5), "the newest counts");
        assert_eq!(past.patch("way"), Patch::New);
        let mut made = knowing(1, 5);
        assert!(made.make(id(1), None), "it has an outcome");
        assert!(!made.make(id(1), None), "once");
        assert_eq!(made.patch("way"), Patch::New);
    }

    #[test]
    fn a_patch_stays_as_it_was_decided() {
        let mut past = knowing(1, 5);
        past.add_patch("marked".into());
        past.decide_patch("carried".into(), false);
        assert_eq!(past.patch("marked"), Patch::Taken);
        assert_eq!(past.patch("new"), Patch::Untaken);
        past.make(id(1), None);
        assert_eq!(past.patch("new"), Patch::Untaken);
        assert_eq!(past.patch("other"), Patch::New);
        assert_eq!(past.patch("other"), Patch::Taken);
        assert_eq!(past.patch("carried"), Patch::Untaken);
        let all: Vec<_> = past.patches().collect();
        let expected = [
            ("carried", false),
            ("marked", true),
            ("new", false),
            ("other", true),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn when_all_was_passed_no_call_is_expected_any_more_but_in_tolerant_replay() {
        let mut past = knowing(1, 5);
        past.pass_all();
        assert!(past.is_blank());
        assert!(!past.make(id(1), None));
        let mut tolerant = knowing(1, 5);
        tolerant.tolerate();
        tolerant.pass_all();
        assert_eq!(
            tolerant.patch("way"),
            Patch::Untaken,
            "the order says nothing"
        );
        assert!(tolerant.make(id(1), None));
    }

    #[test]
    fn a_new_pass_knows_the_patches_of_the_one_before_and_nothing_else() {
        let mut past = knowing(1, 5);
        past.add_pushed(id(2));
        past.decide_patch("carried".into(), false);
        past.fork(
            RunId::from_bytes([9; 16]),
            IdSet::from_iter([id(1)]),
            Some(5),
        );
        past.begin_anew();
        assert!(past.take_forks().is_empty());
        assert!(!past.push(id(2)));
        assert!(!past.make(id(1), None));
        assert_eq!(past.patch("new"), Patch::New);
        assert_eq!(past.patch("carried"), Patch::Untaken);
    }

    #[test]
    fn whatever_is_known_is_remembered_until_the_code_has_come_to_it() {
        assert!(Past::default().is_blank());
        let mut called = knowing(1, 5);
        assert!(!called.is_blank());
        called.make(id(1), None);
        assert!(called.is_blank());
        let mut pushed = Past::default();
        pushed.add_pushed(id(1));
        assert!(!pushed.is_blank());
        assert!(pushed.push(id(1)) && pushed.is_blank());
        let mut forked = Past::default();
        forked.fork(RunId::from_bytes([9; 16]), IdSet::default(), None);
        assert!(!forked.is_blank());
        assert_eq!(forked.take_forks().len(), 1);
        let mut patched = Past::default();
        patched.add_patch("way".into());
        assert!(!patched.is_blank());
    }
}
