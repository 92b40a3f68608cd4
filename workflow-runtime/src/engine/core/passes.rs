//! What a run carries over a checkpoint or into a new run, and what it leaves behind.

use bytes::Bytes;

use super::RunCore;
use crate::ids::RunId;
use crate::journal::{Checkpoint, RunSucceeds, UndoCarried};
use crate::payload::{Payloads, Place};
use crate::replay::Owed;
use crate::store::{NoteChange, NoteKey};

/// How many bytes of signals that were not taken a checkpoint carries: its record is one, with the state in it,
/// and a store takes 64 MiB in one write.
const CARRIED_BYTES: usize = 32 * 1024 * 1024;

impl RunCore {
    /// Names of the workflow's arguments.
    pub(crate) fn argument_names(&self) -> &'static [&'static str] {
        let (name, version) = (&self.identity.workflow_name, self.identity.version);
        let registered = self.services.registry.find(name, version);
        registered.map_or(&[], |registered| registered.args)
    }

    /// What keeps the workflow from beginning anew, and the way out.
    pub(crate) fn outstanding(&self) -> Option<String> {
        {
            let state = self.state();
            if let Some(call) = state.calls.values().next() {
                let (name, site) = (call.view.name, call.view.site);
                return Some(format!(
                    "`{name}` at {site} is outstanding: await or drop it first"
                ));
            }
            let outside = state.outside.as_ref();
            if outside.is_some_and(|outside| outside.waits_for_something()) {
                return Some("a signal or a child is waited for: await or drop it first".into());
            }
            let unread = outside.map_or(0, |outside| outside.unread_bytes());
            if unread > CARRIED_BYTES {
                return Some(format!(
                    "{unread} bytes of signals wait that were not taken, more than the {CARRIED_BYTES} bytes that \
                     it carries over: take them (`wait_for`) before it"
                ));
            }
        }
        self.kept_call().map(|name| {
            format!(
                "a call of `{name}` is kept with `undo_with`, which a checkpoint cannot carry: nothing could find it \
                 again; say `#[step(undo = {name})]` at the step that it undoes, or do that part in a child \
                 workflow"
            )
        })
    }

    /// Makes the record of a checkpoint, and leaves the pass that it ends behind, which began with the record
    /// `since`. Before it stand the records of what is to be undone, from `next` on.
    pub(crate) fn begin_anew(
        &self,
        pass: u64,
        input: Bytes,
        (since, next): (u64, u64),
    ) -> (Vec<UndoCarried>, Checkpoint) {
        let mut state = self.state();
        let state = &mut *state;
        state.dropped = None;
        state.known = None;
        state.keyed = None; // a pass has keys of its own
        let mut patches = Vec::new();
        if let Some(past) = &mut state.past {
            patches.extend(past.patches().map(|(name, taken)| (name.into(), taken)));
            past.begin_anew();
        }
        let mut checkpoint = Checkpoint {
            pass,
            input,
            now: self.now(),
            signals: Vec::new(),
            patches,
            children: Vec::new(),
            tokens: Vec::new(),
        };
        let mut owed = Vec::new();
        if let Some(outside) = &mut state.outside {
            outside.carry(&mut checkpoint);
            if let Some(log) = &mut outside.undo {
                owed = log.carry(since, next);
            }
        }
        (owed, checkpoint)
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
    pub(crate) fn carried(&self, checkpoint: &Checkpoint, owed: Option<Owed>) {
        if let Some(owed) = owed {
            self.owe(owed);
        }
        let mut state = self.state();
        self.set_now(checkpoint.now);
        state.outside().take_carried(checkpoint);
    }

    /// The first run of the line that this run is part of, and how many came before it.
    pub(crate) fn line(&self) -> (RunId, u64) {
        let line = self.state().outside.as_ref().and_then(|one| one.line);
        line.unwrap_or((self.run(), 0))
    }

    /// How what the run ends with is written.
    pub(crate) fn end_payloads(&self) -> Payloads {
        self.services.payloads.at(Place::run_end(self.line().0))
    }

    /// The bytes of signals that the run was sent and has not taken.
    pub(crate) fn unread_bytes(&self) -> usize {
        let state = self.state();
        let outside = state.outside.as_ref();
        outside.map_or(0, |outside| outside.unread_bytes())
    }

    /// The run continues a line.
    pub(crate) fn join_line(&self, first: RunId, ordinal: u64) {
        self.state().outside().line = Some((first, ordinal));
    }

    /// Takes up what the run that this one continues has left it.
    pub(crate) fn succeed(&self, left: &RunSucceeds) {
        let mut state = self.state();
        let carried = Checkpoint {
            pass: 0,
            input: Bytes::new(),
            now: self.now(),
            signals: left.signals.clone(),
            patches: Vec::new(),
            children: left.children.clone(),
            tokens: left.tokens.clone(),
        };
        state.outside().take_carried(&carried);
    }
}
