//! What a run has to do with others: signals it was sent, what it publishes, what leaves it.
//!
//! Owns the queues of received signals and the changes that leave with the run's next append;
//! `children` owns the children. Most runs have none of it, so it is apart and made when first needed.
//! It never decides when a letter is delivered: the driver does.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::Location;
use std::task::Waker;

use bytes::Bytes;

use super::children::Child;
use super::undo::UndoLog;
#[cfg(feature = "testing")]
use super::waits::{Awaited, Wait};
use super::{Phase, RunCore, State};
use crate::clock::Timestamp;
use crate::engine::notes;
use crate::engine::signal::wake_by_engine;
use crate::id_map::IdMap;
use crate::ids::{RunId, StepId};
use crate::journal::{Checkpoint, Event};
use crate::payload::{PayloadError, Payloads};
use crate::store::{Changes, Letter, NewRun, NoteChange};

/// Says whether a payload is of the type that a wait asks for.
pub(crate) type SignalCheck = fn(&Payloads, &[u8]) -> Result<(), PayloadError>;

/// See the module.
#[derive(Default)]
pub(super) struct Outside {
    signals: HashMap<Box<str>, Signals>,
    next_ticket: u64,
    /// Letters that were read from the mailbox and not delivered yet.
    letters: usize,
    pub(super) children: IdMap<StepId, Child>,
    /// Children that the code called while its history was not used up, and that the history does
    /// not know: they are created when the run goes live.
    pub(super) held_children: Vec<(Event, NewRun)>,
    /// What was published while the history was not used up.
    held_notes: Vec<NoteChange>,
    /// Tokens of hooks that the run holds.
    tokens: HashSet<Box<str>>,
    pub(super) changes: Changes,
    pub(super) undo: Option<Box<UndoLog>>,
    /// The first run of the line that this one continues, and how many came before it.
    pub(super) line: Option<(RunId, u64)>,
}

/// The signals of one name.
#[derive(Default)]
struct Signals {
    received: VecDeque<Bytes>,
    waiters: Vec<Waiter>,
}

struct Waiter {
    ticket: u64,
    site: &'static Location<'static>,
    waker: Waker,
    check: SignalCheck,
}

impl Outside {
    /// Takes what is to leave with the run's next append.
    pub(super) fn take_changes(&mut self) -> Option<Box<Changes>> {
        let any = !self.changes.is_empty();
        any.then(|| Box::new(std::mem::take(&mut self.changes)))
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty() || !self.held_children.is_empty()
    }

    pub(super) fn waits_for_something(&self) -> bool {
        let signal = self.signals.values().any(|one| !one.waiters.is_empty());
        signal || self.awaits_a_child()
    }
}

impl Outside {
    /// The signals that the code waits for.
    #[cfg(feature = "testing")]
    pub(super) fn awaited_signals(&self) -> impl Iterator<Item = Wait> {
        let named = self.signals.iter();
        named.flat_map(|(name, one)| {
            one.waiters.iter().map(|waiter| Wait {
                what: Awaited::Signal(name.clone()),
                site: Some(waiter.site),
            })
        })
    }

    /// How much was received and not taken.
    pub(super) fn unread_bytes(&self) -> usize {
        let received = self.signals.values().flat_map(|one| &one.received);
        received.map(Bytes::len).sum()
    }

    /// Writes down what carries over a checkpoint.
    pub(super) fn carry(&mut self, checkpoint: &mut Checkpoint) {
        self.signals
            .retain(|_, signals| !signals.received.is_empty());
        for (name, signals) in &self.signals {
            let unread = signals.received.iter().cloned().collect();
            checkpoint.signals.push((name.clone(), unread));
        }
        checkpoint.signals.sort_by(|a, b| a.0.cmp(&b.0)); // a table has no order of its own
        checkpoint.children = self.leave_children();
        checkpoint.tokens = self.tokens.iter().cloned().collect();
        checkpoint.tokens.sort();
    }

    /// Takes up what a checkpoint carried over.
    pub(super) fn take_carried(&mut self, checkpoint: &Checkpoint) {
        for (name, unread) in &checkpoint.signals {
            let signals = self.signals.entry(name.clone()).or_default();
            signals.received.extend(unread.iter().cloned());
        }
        for child in &checkpoint.children {
            self.carry_child(child);
        }
        self.tokens.extend(checkpoint.tokens.iter().cloned());
    }
}

impl State {
    pub(super) fn outside(&mut self) -> &mut Outside {
        self.outside.get_or_insert_default()
    }

    /// A letter was delivered. In replay it is one of the journal, and none of those that were read.
    pub(super) fn letter_delivered(&mut self) {
        if self.went_live
            && let Some(outside) = &mut self.outside
        {
            outside.letters = outside.letters.saturating_sub(1);
        }
    }

    /// The run goes live, or ends: what was held back leaves with its next append.
    pub(super) fn release_held(&mut self, now: Timestamp) {
        if std::mem::replace(&mut self.went_live, true) {
            return;
        }
        self.release_children(now);
        if let Some(outside) = &mut self.outside {
            let held = std::mem::take(&mut outside.held_notes);
            outside.changes.notes.extend(held);
        }
    }
}

impl RunCore {
    // --- signals -----------------------------------------------------------------------

    /// Takes the next signal of a name, or has the waker woken when one comes.
    pub(crate) fn take_signal(
        &self,
        name: &str,
        ticket: &mut Option<u64>,
        site: &'static Location<'static>,
        waker: &Waker,
        check: SignalCheck,
    ) -> Option<Bytes> {
        let mut state = self.state();
        let outside = state.outside();
        if !outside.signals.contains_key(name) {
            outside.signals.insert(name.into(), Signals::default());
        }
        let signals = outside.signals.get_mut(name)?;
        let known = signals
            .waiters
            .iter()
            .position(|waiter| Some(waiter.ticket) == *ticket);
        if let Some(payload) = signals.received.pop_front() {
            if let Some(at) = known {
                signals.waiters.remove(at);
            }
            *ticket = None;
            return Some(payload);
        }
        match known {
            Some(at) => signals.waiters[at].waker.clone_from(waker),
            None => {
                let number = outside.next_ticket;
                outside.next_ticket += 1;
                *ticket = Some(number);
                signals.waiters.push(Waiter {
                    ticket: number,
                    site,
                    waker: waker.clone(),
                    check,
                });
            }
        }
        None
    }

    /// Forgets a wait for a signal.
    pub(crate) fn drop_wait(&self, name: &str, ticket: u64) {
        let mut state = self.state();
        if let Some(signals) = state.outside().signals.get_mut(name) {
            signals.waiters.retain(|waiter| waiter.ticket != ticket);
        }
    }

    /// What the next signal of a name has to be, as far as that is known: somebody waits for one, and
    /// no other signal is on its way to that wait.
    pub(crate) fn signal_check(&self, name: &str) -> Option<SignalCheck> {
        let state = self.state();
        if state.phase != Phase::Live || self.signal.has_mail() {
            return None;
        }
        let outside = state.outside.as_ref()?;
        let signals = outside.signals.get(name)?;
        if outside.letters > 0 || !signals.received.is_empty() {
            return None;
        }
        signals.waiters.first().map(|waiter| waiter.check)
    }

    /// Letters were read from the mailbox.
    pub(crate) fn letters_read(&self, count: usize) {
        if count > 0 {
            self.state().outside().letters += count;
        }
    }

    /// The signals that the code waits for, by name.
    pub(crate) fn waiting_signals(&self) -> Vec<String> {
        let state = self.state();
        let Some(outside) = &state.outside else {
            return Vec::new();
        };
        let mut waits: Vec<_> = outside
            .signals
            .iter()
            .flat_map(|(name, one)| one.waiters.iter().map(move |waiter| (name, waiter)))
            .map(|(name, waiter)| format!("the signal `{name}`, waited for at {}", waiter.site))
            .collect();
        waits.sort();
        waits
    }

    /// Delivers a signal.
    pub(crate) fn receive_signal(&self, time: Timestamp, name: &str, payload: Bytes) {
        let wakers: Vec<Waker> = {
            let mut state = self.state();
            self.set_now(time);
            state.letter_delivered();
            let signals = state.outside().signals.entry(name.into()).or_default();
            signals.received.push_back(payload);
            signals.waiters.iter().map(|w| w.waker.clone()).collect()
        };
        wakers.iter().for_each(wake_by_engine);
    }

    // --- hooks -------------------------------------------------------------------------

    /// The run holds a token: it is let go when the run ends.
    pub(crate) fn hold_token(&self, token: &str) {
        self.state().outside().tokens.insert(token.into());
    }

    /// The run lets go of a token by itself.
    pub(crate) fn release_token(&self, token: &str) {
        self.state().outside().tokens.remove(token);
    }

    /// Has all tokens let go with the run's next append, which is its last.
    pub(crate) fn let_go_tokens(&self) {
        if let Some(outside) = &mut self.state().outside {
            let mut tokens: Vec<_> = outside.tokens.drain().collect();
            tokens.sort(); // a set has no order of its own
            let namespace = &self.services.namespace;
            let notes = tokens.into_iter().map(|token| NoteChange {
                key: notes::token(namespace, &token),
                value: None,
            });
            outside.changes.notes.extend(notes);
        }
    }

    // --- what leaves the run ------------------------------------------------------------

    /// Publishes a value. In replay only the last one of a name counts, and it waits until the run is
    /// live: whether an earlier process got as far as writing it is not in the journal.
    pub(crate) fn publish(&self, name: &str, payload: Bytes) {
        let mut state = self.state();
        let live = state.went_live;
        let outside = state.outside();
        let first = outside.line.map_or(self.run(), |(first, _)| first);
        let key = notes::published(first, name);
        let notes = if live {
            &mut outside.changes.notes
        } else {
            &mut outside.held_notes
        };
        notes.retain(|change| change.key != key); // only the latest counts
        notes.push(NoteChange {
            key,
            value: Some(payload),
        });
    }

    /// Has a letter posted with the run's next append.
    pub(crate) fn post(&self, letter: Letter) {
        self.state().outside().changes.post.push(letter);
    }
}
