//! What a run's code is told about its past: which run it is, which ids it has, which patches it took.

use super::RunCore;
use crate::engine::outbox::Pushed;
use crate::ids::{RunId, StepId};
use crate::journal::{Draft, Event, MessagePushed, PatchMarker};
use crate::replay::{MadeCalls, Patch};

impl RunCore {
    /// The run that the workflow's code believes to be: in a fork, the one that was forked until what
    /// was copied from it is used up.
    pub(crate) fn ambient_run(&self) -> RunId {
        if self.forks.is_empty() {
            return self.run();
        }
        let passed = self.state().past.as_ref().and_then(|past| past.passed());
        let origin = self.forks.iter().find(|fork| passed < fork.until);
        origin.map_or(self.run(), |fork| fork.origin)
    }

    /// Makes the id of a call. In a fork, calls that the copied records know keep their ids; all
    /// others are this run's own, so that what runs again is new to the outside world.
    pub(crate) fn call_id(&self, mut derive: impl FnMut(RunId) -> StepId) -> StepId {
        let copied = self.forks.iter().find_map(|fork| {
            let id = derive(fork.origin);
            fork.shared.contains(&id).then_some(id)
        });
        copied.unwrap_or_else(|| derive(self.run()))
    }

    /// Says whether the run takes the new code of a patch, and puts that on record.
    pub(crate) fn patched(&self, name: &str) -> bool {
        let mut state = self.state();
        match state.past.get_or_insert_default().patch(name) {
            Patch::Taken => true,
            Patch::Untaken => false,
            Patch::New => {
                let marker = PatchMarker { name: name.into() };
                state.outbox.push(Draft::of(&Event::PatchMarker(marker)));
                true
            }
        }
    }

    /// The workflow's code pushes a message, which is written with a record of that: in replay not, if the
    /// journal says that it was.
    pub(crate) fn push_message(&self, call: StepId, message: Pushed) {
        let mut state = self.state();
        if state.past.as_mut().is_some_and(|past| past.push(call)) {
            return;
        }
        let outbox = message.outbox().into();
        let pushed = Event::MessagePushed(MessagePushed { call, outbox });
        let draft = Draft::of(&pushed).with_messages(vec![message]);
        state.outbox.push(draft);
    }

    /// The calls that the code made, if they were noted down, and the newest record that was delivered.
    pub(crate) fn take_noted(&self) -> (MadeCalls, Option<u64>) {
        let mut state = self.state();
        let past = state.past.as_mut();
        past.map_or_else(Default::default, |past| (past.take_noted(), past.passed()))
    }

    /// The recorded outcome of a waiting call counts no more: it runs again.
    pub(crate) fn discard(&self, call: StepId) {
        if let Some(waiting) = self.state().calls.get_mut(&call) {
            waiting.recorded = false;
        }
    }

    /// Something newer than all that was recorded before is being delivered.
    pub(crate) fn pass_all(&self) {
        if let Some(past) = &mut self.state().past {
            past.pass_all();
        }
    }

    /// A recorded outcome is being delivered or passed over.
    pub(crate) fn pass(&self, seq: u64) {
        if let Some(past) = &mut self.state().past {
            past.pass(seq);
        }
    }
}
