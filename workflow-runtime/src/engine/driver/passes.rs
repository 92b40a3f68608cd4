//! Checkpoints: the workflow begins anew, and the journal before that is done with.
//!
//! Owns the change from one pass through a workflow to the next. It waits until nothing of the old pass is on
//! its way, so that no record of it comes after the checkpoint; a resumed run then begins with the
//! newest checkpoint and reads nothing before it. Also has the store forget passes that are long over.

use std::sync::Arc;

use bytes::Bytes;

use super::{Driver, Next, Stage};
use crate::context::{Ambient, Scope};
use crate::engine::notes;
use crate::engine::obstacle::Obstacle;
use crate::engine::prepared::EncodedCall;
use crate::engine::registry::Ways;
use crate::engine::warnings::Warning;
use crate::journal::{Checkpoint, Event};
use crate::payload::Place;
use crate::replay::Recorded;
use crate::store::ParkReason;

/// How many records a pass may have before somebody is told of checkpoints.
const LONG_PASS: u64 = 10_000;

/// How many steps of earlier passes may be left to be undone before somebody is told.
const MANY_OWED: u64 = 10_000;

/// After how many records what came before the last pass is forgotten: seldom enough to cost nothing.
const FORGOTTEN_EVERY: u64 = 128;

/// What comes after the workflow as it is.
pub(super) enum NextPass {
    /// It begins anew with these arguments.
    Again(Bytes),
    /// A new run goes on.
    NewRun(EncodedCall),
}

impl Driver {
    /// Begins the pass that a checkpoint asks for, once nothing of the old one is left.
    pub(super) fn begin_next_pass(&mut self) -> Next {
        if self.stage == Stage::Replaying {
            return self.replay_rest_of_pass();
        }
        if self.deliver_durable() {
            return Next::Again;
        }
        if !self.commits.is_empty() {
            return Next::Wait;
        }
        if self.stage == Stage::Recovering {
            self.go_live();
            return Next::Again;
        }
        self.change_pass()
    }

    /// A checkpoint is on record only if it is the newest: the history before it is gone. So what is left
    /// can only be what was on its way to calls that were dropped, and letters.
    fn replay_rest_of_pass(&mut self) -> Next {
        let Some(left) = self.recorded.pop_front() else {
            return self.used_up();
        };
        let for_the_run = matches!(
            left.what,
            Recorded::Signal(_) | Recorded::Cancel(_) | Recorded::Child(_)
        );
        if for_the_run {
            return self.replay(left);
        }
        if let Recorded::Step(step) = &left.what {
            self.core.complete_recorded_undo(step);
        }
        match left.id() {
            Some(id) if self.core.take_dropped(id) => Next::Again,
            _ => Next::Exit(self.diverged(&left, true, Vec::new())),
        }
    }

    fn change_pass(&mut self) -> Next {
        let input = match self.next_pass.take().map(|next| *next) {
            Some(NextPass::Again(input)) => input,
            Some(NextPass::NewRun(call)) => return self.continue_as_new(&call),
            None => return Next::Again,
        };
        let number = self.pass.0 + 1;
        let next = self.writer.chain.next_seq();
        let places = (self.pass.1, next);
        let (owed, checkpoint) = self.core.begin_anew(number, input, places);
        let seq = next + owed.len() as u64;
        // A resume begins with the last record of what is to be undone, if there is one.
        let place = seq - u64::from(!owed.is_empty());
        self.core
            .keep_checkpoint(notes::checkpoint(self.core.run()), notes::encode(&place));
        for carried in owed {
            self.core.annotate(&Event::UndoCarried(carried));
        }
        self.core.annotate(&Event::Checkpoint(checkpoint.clone()));
        self.write_outbox(None);
        self.note_owed();
        self.forget_passes(seq);
        match self.enter_pass(&checkpoint, seq) {
            Ok(()) => Next::Again,
            Err(obstacle) => Next::Exit(self.park(obstacle)),
        }
    }

    /// Has the store forget what came before the pass that ends with a checkpoint, now and then. Not if something is to be
    /// undone if the run does not complete: the passes that did it are read again then.
    fn forget_passes(&mut self, checkpoint: u64) {
        let began = self.pass.1;
        let is_due = checkpoint / FORGOTTEN_EVERY > began / FORGOTTEN_EVERY;
        if !is_due
            || began == 0
            || self.core.owed_steps() > 0
            || self.core.services.config.keep_passes
        {
            return;
        }
        // The record before it is needed for its link in the chain. If this is refused, the run's next write is too.
        drop(self.writer.forget(began - 1));
    }

    /// Makes the workflow of a pass. Its calls are counted anew, in a scope of their own.
    pub(in crate::engine) fn enter_pass(
        &mut self,
        checkpoint: &Checkpoint,
        seq: u64,
    ) -> Result<(), Obstacle> {
        let core = self.core.clone();
        let identity = core.identity();
        let (name, version) = (&identity.workflow_name, identity.version);
        let registry = &core.services.registry;
        let registered = registry.find(name, version).ok_or_else(|| {
            Obstacle::new(ParkReason::Unregistered, registry.missing(name, version))
        })?;
        let places = Ways {
            input: core.services.payloads.at(Place::checkpoint(core.run())),
            end: core.end_payloads(),
        };
        let made = (registered.make)(&places, &checkpoint.input);
        let workflow = made.map_err(|problem| {
            let what = format!("the state of checkpoint {} of `{name}`", checkpoint.pass);
            Obstacle::unreadable(&what, &problem)
        })?;
        let scope = Scope::of_pass(Arc::clone(&core), checkpoint.pass);
        self.ambient = Ambient::Workflow(scope);
        self.workflow = Some(workflow);
        self.started = false; // it has to be polled
        self.pass = (checkpoint.pass, seq);
        self.warned_long = false;
        Ok(())
    }

    /// Tells of a list of steps to be undone that has grown long: it ends only with the run.
    fn note_owed(&mut self) {
        if self.core.owed_steps() >= MANY_OWED && !self.warned_owed {
            self.warned_owed = true;
            self.warn(Warning::MANY_OWED);
        }
    }

    /// Tells of checkpoints if a pass has grown long: resuming the run costs as much.
    pub(super) fn note_length(&mut self) {
        let records = self.writer.chain.next_seq() - self.pass.1;
        if records >= LONG_PASS && !self.warned_long {
            self.warned_long = true;
            self.warn(Warning::LONG_PASS);
        }
    }
}
