//! What a run carries over a checkpoint, and what it leaves behind.

use bytes::Bytes;

use super::RunCore;
use crate::journal::Checkpoint;
use crate::store::{NoteChange, NoteKey};

impl RunCore {
    /// Names of the workflow's arguments.
    pub(crate) fn argument_names(&self) -> &'static [&'static str] {
        let (name, version) = (&self.identity.workflow_name, self.identity.version);
        let registered = self.services.registry.find(name, version);
        registered.map_or(&[], |registered| registered.args)
    }

    /// What keeps the workflow from beginning anew.
    pub(crate) fn outstanding(&self) -> Option<String> {
        {
            let state = self.state();
            if let Some(call) = state.calls.values().next() {
                let (name, site) = (call.view.name, call.view.site);
                return Some(format!("`{name}` at {site} is outstanding"));
            }
            let outside = state.outside.as_ref();
            if outside.is_some_and(|outside| outside.waits_for_something()) {
                return Some("a signal or a child is waited for".into());
            }
        }
        self.has_undo()
            .then(|| "there are steps to undo, which a checkpoint would forget".into())
    }

    /// Makes the record of a checkpoint, and leaves the pass that it ends behind.
    pub(crate) fn begin_anew(&self, pass: u64, input: Bytes) -> Checkpoint {
        let mut state = self.state();
        let state = &mut *state;
        state.dropped.clear();
        state.known.clear();
        state.keyed = None; // a pass has keys of its own
        let mut patches = Vec::new();
        if let Some(past) = &mut state.past {
            patches.extend(past.patches().map(|(name, taken)| (name.into(), taken)));
            past.begin_anew();
        }
        let mut checkpoint = Checkpoint {
            pass,
            input,
            now: state.now,
            signals: Vec::new(),
            patches,
            children: Vec::new(),
            tokens: Vec::new(),
        };
        if let Some(outside) = &mut state.outside {
            outside.carry(&mut checkpoint);
        }
        checkpoint
    }

    /// Has the place of a checkpoint noted with the run's next append, so that a resume finds it.
    pub(crate) fn keep_checkpoint(&self, key: NoteKey, place: Bytes) {
        let change = NoteChange {
            key,
            value: Some(place),
        };
        self.state().outside().changes.notes.push(change);
    }

    /// Takes up what a checkpoint carried over.
    pub(crate) fn carried(&self, checkpoint: &Checkpoint) {
        let mut state = self.state();
        state.now = checkpoint.now;
        state.outside().take_carried(checkpoint);
    }
}
