//! What is known of keys without asking the store: a repeated start is answered from here.
//!
//! Owns a bounded memory of which run a key names, and of runs that do not change: those that have ended, sleep
//! or are parked. It answers one question only (does this key name a run with this very input?), and only
//! for a store that nobody else can change. Everything else is decided by `keyed`, from the store.
//!
//! Who changes something says so here: a run that comes back into memory, a key that goes on to its next
//! generation, a sweep. What was read before that is not kept.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::keyed::Holding;
use crate::clock::Clock;
use crate::digest::Digest;
use crate::id_map::IdMap;
use crate::ids::RunId;
use crate::store::{RunHeader, RunState};

/// How many keys are remembered at least, and half of how many at most. An entry takes about 100 bytes.
const REMEMBERED: usize = 16 * 1024;

/// What is known of keys.
pub(super) struct KnownKeys {
    /// Nobody else changes the store.
    trusted: bool,
    clock: Clock,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Which run a key names, by the id of its first run.
    named: Recent<RunId>,
    /// Runs that stay as they are until somebody says otherwise.
    at_rest: Recent<AtRest>,
    /// Raised by every change: what was read before is not kept.
    changes: u64,
}

#[derive(Clone, Copy)]
struct AtRest {
    input_digest: Digest,
    holding: Holding,
}

/// What is known of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It names this run, and the run has this input.
    Same(RunId),
    /// It names this run, of which nothing more is known.
    Named(RunId),
    /// Nothing.
    Nothing,
}

/// The moment before something is read.
#[derive(Clone, Copy)]
pub(super) struct Before(u64);

impl KnownKeys {
    pub(super) fn new(trusted: bool, clock: Clock) -> Self {
        Self {
            trusted,
            clock,
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what is known of a key, by the id of its first run.
    pub(super) fn ask(&self, first: RunId, input_digest: Digest) -> Answer {
        if !self.trusted {
            return Answer::Nothing;
        }
        let known = self.known();
        let Some(run) = known.named.get(first) else {
            return Answer::Nothing;
        };
        let Some(at_rest) = known.at_rest.get(run) else {
            return Answer::Named(run);
        };
        drop(known);
        let held = match at_rest.holding {
            Holding::GoesOn | Holding::Until(None) => true,
            Holding::Until(Some(until)) => self.clock.now() < until,
        };
        match held && at_rest.input_digest == input_digest {
            true => Answer::Same(run),
            false => Answer::Nothing,
        }
    }

    /// To be asked before something is read that is to be remembered.
    pub(super) fn before_reading(&self) -> Before {
        Before(self.known().changes)
    }

    /// Remembers a run that holds its key, unless something has changed since.
    pub(super) fn remember(
        &self,
        before: Before,
        first: RunId,
        header: &RunHeader,
        holding: Holding,
    ) {
        if !self.trusted {
            return;
        }
        let mut known = self.known();
        if known.changes != before.0 {
            return;
        }
        known.named.insert(first, header.run);
        // One that is in memory may end at any time.
        if !matches!(header.state, RunState::Active) {
            let input_digest = header.input_digest;
            known.at_rest.insert(
                header.run,
                AtRest {
                    input_digest,
                    holding,
                },
            );
        }
    }

    /// A key names another run from now on.
    pub(super) fn moved_on(&self, first: RunId) {
        let mut known = self.known();
        known.changes += 1;
        known.named.remove(first);
    }

    /// A run comes into memory, or was changed without that.
    pub(super) fn run_goes_on(&self, run: RunId) {
        if self.trusted {
            let mut known = self.known();
            known.changes += 1;
            known.at_rest.remove(run);
        }
    }

    /// Keys may have lost their runs.
    pub(super) fn forget_all(&self) {
        let mut known = self.known();
        let changes = known.changes + 1;
        *known = Known {
            changes,
            ..Known::default()
        };
    }
}

/// The newest entries: when there are enough new ones, the older half goes.
struct Recent<V> {
    young: IdMap<RunId, V>,
    old: IdMap<RunId, V>,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self {
            young: IdMap::default(),
            old: IdMap::default(),
        }
    }
}

impl<V: Copy> Recent<V> {
    fn get(&self, id: RunId) -> Option<V> {
        self.young.get(&id).or_else(|| self.old.get(&id)).copied()
    }

    fn insert(&mut self, id: RunId, value: V) {
        if self.young.len() >= REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, value);
    }

    fn remove(&mut self, id: RunId) {
        self.young.remove(&id);
        self.old.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{Timestamp, wall_clock};
    use crate::store::{EndKind, RunEnd};

    fn run(n: u64) -> RunId {
        let mut bytes = [7; 16];
        bytes[8..].copy_from_slice(&n.to_le_bytes()); // where maps look, see `id_map`
        RunId::from_bytes(bytes)
    }

    const INPUT: Digest = Digest::from_bytes([1; 16]);

    fn header(n: u64, state: RunState) -> RunHeader {
        RunHeader {
            run: run(n),
            namespace: "n".into(),
            workflow: "w".into(),
            version: 1,
            key: Some("k".into()),
            input_digest: INPUT,
            created_at: Timestamp::default(),
            origin: None,
            state,
        }
    }

    fn ended() -> RunState {
        RunState::Ended(RunEnd {
            kind: EndKind::Completed,
            at: wall_clock(),
        })
    }

    fn remembering(n: u64, state: RunState, holding: Holding) -> KnownKeys {
        let keys = KnownKeys::new(true, Clock::default());
        let before = keys.before_reading();
        keys.remember(before, run(n), &header(n, state), holding);
        keys
    }

    #[test]
    fn a_run_at_rest_is_known_by_its_key_and_input_as_long_as_it_holds_the_key() {
        let later = Some(wall_clock().after(Duration::from_secs(3600)));
        let keys = remembering(1, ended(), Holding::Until(later));
        assert_eq!(keys.ask(run(1), INPUT), Answer::Same(run(1)));
        let other = Digest::from_bytes([2; 16]);
        assert_eq!(keys.ask(run(1), other), Answer::Nothing);
        assert_eq!(keys.ask(run(2), INPUT), Answer::Nothing);
        let over = remembering(1, ended(), Holding::Until(Some(wall_clock())));
        assert_eq!(over.ask(run(1), INPUT), Answer::Nothing);
        let sleeps = RunState::Asleep { wake_at: None };
        let asleep = remembering(1, sleeps, Holding::GoesOn);
        assert_eq!(asleep.ask(run(1), INPUT), Answer::Same(run(1)));
        let active = remembering(1, RunState::Active, Holding::GoesOn);
        assert_eq!(active.ask(run(1), INPUT), Answer::Named(run(1)));
    }

    #[cfg(feature = "testing")]
    #[tokio::test(start_paused = true)]
    async fn a_key_is_free_at_the_moment_until_which_it_was_held() {
        let clock = Clock::virtual_from(wall_clock());
        let until = clock.now().after(Duration::from_secs(60));
        let keys = KnownKeys::new(true, clock.clone());
        let before = keys.before_reading();
        let holding = Holding::Until(Some(until));
        keys.remember(before, run(1), &header(1, ended()), holding);
        clock.turn(59_999_999);
        assert_eq!(keys.ask(run(1), INPUT), Answer::Same(run(1)));
        clock.turn(1);
        assert_eq!(clock.now(), until);
        assert_eq!(keys.ask(run(1), INPUT), Answer::Nothing);
    }

    #[test]
    fn what_has_changed_is_not_known_any_more() {
        let rest = || remembering(1, ended(), Holding::Until(None));
        let keys = rest();
        keys.run_goes_on(run(1));
        assert_eq!(keys.ask(run(1), INPUT), Answer::Named(run(1)));
        let keys = rest();
        keys.moved_on(run(1));
        assert_eq!(keys.ask(run(1), INPUT), Answer::Nothing);
        let keys = rest();
        keys.forget_all();
        assert_eq!(keys.ask(run(1), INPUT), Answer::Nothing);
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept() {
        let changes: [fn(&KnownKeys); 3] = [
            |keys| keys.run_goes_on(run(9)),
            |keys| keys.moved_on(run(9)),
            KnownKeys::forget_all,
        ];
        for change in changes {
            let keys = KnownKeys::new(true, Clock::default());
            let before = keys.before_reading();
            change(&keys);
            keys.remember(before, run(1), &header(1, ended()), Holding::Until(None));
            assert_eq!(keys.ask(run(1), INPUT), Answer::Nothing);
        }
    }

    #[test]
    fn nothing_is_known_of_a_store_that_others_can_change() {
        let keys = KnownKeys::new(false, Clock::default());
        let before = keys.before_reading();
        keys.remember(before, run(1), &header(1, ended()), Holding::Until(None));
        assert_eq!(keys.ask(run(1), INPUT), Answer::Nothing);
    }

    #[test]
    fn the_memory_is_bounded_and_keeps_the_newest() {
        let mut recent = Recent::default();
        let most = 5 * REMEMBERED as u64 / 2;
        for n in 0..most {
            recent.insert(run(n), n);
            assert!(recent.young.len() + recent.old.len() <= 2 * REMEMBERED);
        }
        assert_eq!(recent.get(run(0)), None);
        let kept = most - REMEMBERED as u64;
        assert!((kept..most).all(|n| recent.get(run(n)) == Some(n)));
    }
}
