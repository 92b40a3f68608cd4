//! A replay that is all that is wanted: of a journal that no store has.
//!
//! Owns where it stops: when the journal is used up, or when the workflow has returned. Until there it is the same replay
//! as that of a resumed run, undoing included, and it is never live: no step, no timer and no child begins, and
//! nothing is written. It judges nothing; `engine/verify` compares what it came to with how the journal ends.

use super::passes::NextPass;
use super::stale::is_stale;
use super::{Driver, Exit, Stage};
use crate::export;
use crate::journal::End;
use crate::replay::describe_call;

/// What such a replay has to know.
pub(crate) struct Verifying {
    /// How the run aborted, if the journal says that it did: the age of outcomes is not judged anew.
    pub(crate) aborted: Option<Box<str>>,
}

impl Verifying {
    /// The reason, if the run aborted because an outcome of this step was too old.
    pub(super) fn aborted_as_stale(&self, step: &str) -> Option<Box<str>> {
        let reason = self.aborted.as_ref()?;
        // One that was taken out may have said so. If it did not, the code comes to an abort of its own, there or later.
        let may_be = **reason == *export::REDACTED_TEXT;
        (may_be || is_stale(reason, step)).then(|| reason.clone())
    }
}

/// What such a replay came to.
#[derive(Debug)]
pub(crate) struct Verified {
    /// How the workflow ends, if it does.
    pub(crate) end: Option<End>,
    /// It goes on as a new run.
    pub(crate) continues: bool,
    /// What the code waits for.
    pub(crate) waiting: Vec<String>,
    /// Something it did is to be undone before it ends.
    pub(crate) must_undo: bool,
    /// Outcomes for which no call waited; not with strict replay.
    pub(crate) left_over: usize,
    /// A call that the journal does not know may be made before what it holds: the workflow chose tolerant replay.
    pub(crate) tolerant: bool,
}

impl Driver {
    /// Replays and does nothing else.
    pub(crate) async fn verify(mut self, verifying: Verifying) -> Exit {
        self.verifying = Some(Box::new(verifying));
        self.await
    }

    /// What the replay came to, if nothing else is wanted.
    pub(super) fn verified(&mut self) -> Option<Exit> {
        self.verifying.as_ref()?;
        debug_assert_eq!(self.stage, Stage::Replaying, "it never goes live");
        let calls = self.core.all_waiting();
        let mut waiting: Vec<_> = calls.iter().map(describe_call).collect();
        waiting.extend(self.core.waiting_signals());
        if let Some(NextPass::Again(_)) = self.next_pass.as_deref() {
            waiting.push("a checkpoint".to_owned());
        }
        let must_undo = self.must_undo();
        Some(Exit::Verified(Box::new(Verified {
            continues: matches!(self.next_pass.as_deref(), Some(NextPass::NewRun(_))),
            waiting,
            must_undo,
            left_over: self.recorded.len(),
            tolerant: self.is_tolerant(),
            end: self.end.take(),
        })))
    }
}
