//! The world outside of the simulated runs: what was done under which key.
//!
//! Owns the effects. It outlives every process of a case, as the world does, and never knows why it is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use workflow_runtime::{MessageId, RunId, StepId, get_step_metadata};

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) run: RunId,
    pub(crate) kind: Kind,
    pub(crate) tag: u64,
    pub(crate) given: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Done,
    Undone,
}

/// The outside world.
#[derive(Debug, Default)]
pub(crate) struct World(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    effects: BTreeMap<StepId, Effect>,
    /// Every time a body ran.
    asked: Vec<Asked>,
    /// How many of them somebody was told of.
    told: usize,
    /// Messages that came: the run that sent them, their ids and what they say.
    received: BTreeSet<(RunId, MessageId, u64)>,
    /// How often the guarded work was done.
    guarded: u64,
    /// How often somebody mended what is broken.
    mended: u64,
}

/// A body that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) step: StepId,
    pub(crate) attempt: u32,
    pub(crate) effect: Effect,
}

impl World {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something under the id of the running step, once.
    pub(crate) fn act(&self, kind: Kind, tag: u64, given: u64) {
        let meta = get_step_metadata();
        let effect = Effect {
            run: meta.run_id,
            kind,
            tag,
            given,
        };
        let asked = Asked {
            step: meta.step_id,
            attempt: meta.attempt,
            effect,
        };
        let mut book = self.book();
        book.asked.push(asked);
        book.effects.entry(meta.step_id).or_insert(effect);
    }

    /// Takes a message.
    pub(crate) fn receive(&self, run: RunId, id: MessageId, value: u64) {
        self.book().received.insert((run, id, value));
    }

    /// The messages that came, each once.
    pub(crate) fn received(&self) -> Vec<(RunId, MessageId, u64)> {
        self.book().received.iter().copied().collect()
    }

    /// Does the guarded work, and says how often it was done before.
    pub(crate) fn guarded(&self) -> u64 {
        let mut book = self.book();
        book.guarded += 1;
        book.guarded - 1
    }

    /// How often the guarded work was done.
    pub(crate) fn times_guarded(&self) -> u64 {
        self.book().guarded
    }

    /// Mends what is broken, a little.
    pub(crate) fn mend(&self) {
        self.book().mended += 1;
    }

    /// How often somebody mended what is broken.
    pub(crate) fn times_mended(&self) -> u64 {
        self.book().mended
    }

    /// The bodies that ran since this was asked last.
    pub(crate) fn take_news(&self) -> Vec<Asked> {
        let mut book = self.book();
        let news = book.asked[book.told..].to_vec();
        book.told = book.asked.len();
        news
    }

    /// What was done under an id.
    pub(crate) fn effect(&self, step: StepId) -> Option<Effect> {
        self.book().effects.get(&step).copied()
    }

    /// Everything that was done, by id.
    pub(crate) fn effects(&self) -> Vec<(StepId, Effect)> {
        let book = self.book();
        let effects = book.effects.iter();
        effects.map(|(id, effect)| (*id, *effect)).collect()
    }

    /// Every time a body ran.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.book().asked.clone()
    }
}
