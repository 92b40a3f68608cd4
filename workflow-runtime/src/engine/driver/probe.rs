//! A replay that is only tried: does the code still ask for what the journal holds?
//!
//! It runs and writes nothing, and warns of nothing: the replay that counts will.

use super::{Driver, Exit, Next};
use crate::engine::undo_steps::UndoWay;
use crate::id_map::{IdMap, IdSet};
use crate::ids::StepId;
use crate::journal::End;
use crate::replay::MadeCalls;

/// What a replay that was only tried came to.
pub(crate) struct Probed {
    /// For how many outcomes no call waited.
    pub(crate) left_over: usize,
    /// Children whose ends the code did not want.
    pub(crate) unwanted: IdSet<StepId>,
    /// Children that the code dropped, so that they are cancelled.
    pub(crate) cancelled: IdSet<StepId>,
    /// The calls that the code made.
    pub(crate) made: MadeCalls,
    /// The newest record that was delivered.
    pub(crate) passed: Option<u64>,
    /// The workflow failed, with nothing left to wait for.
    pub(crate) failed: bool,
}

impl Driver {
    /// Replays as far as recorded outcomes go, without running or writing anything.
    ///
    /// # Errors
    ///
    /// The report of what does not fit.
    pub(crate) fn probe(mut self) -> Result<Probed, Box<str>> {
        self.probing = true;
        let replayed = self.replay_all().and_then(|left_over| {
            self.check_intents(self.end.is_some())?;
            let (made, passed) = self.core.take_noted();
            Ok(Probed {
                left_over,
                unwanted: self.core.unwanted_ends(),
                cancelled: self.core.cancelled_children(),
                made,
                passed,
                failed: matches!(self.end, Some(End::Failed(_))),
            })
        });
        replayed.map_err(|exit| match exit {
            Exit::Park(parking) => parking.report,
            Exit::StoreFailed(error) => error.to_string().into(),
            Exit::Ended(_) | Exit::Left | Exit::Asleep(_) => {
                unreachable!("a replay neither ends nor leaves a run")
            }
            #[cfg(feature = "testing")]
            Exit::Verified(_) => unreachable!("a replay that is tried is not verified"),
        })
    }

    /// Replays as far as the code goes, and says how the steps that it called are undone.
    pub(crate) fn probe_undo(mut self) -> IdMap<StepId, UndoWay> {
        self.probing = true;
        let _ = self.replay_all();
        self.core.undo_ways()
    }

    fn replay_all(&mut self) -> Result<usize, Exit> {
        self.core.signal.begin_driving();
        loop {
            if self.take_woken() || !self.started {
                self.started = true;
                if let Some(exit) = self.poll_workflow() {
                    return Err(exit);
                }
                continue;
            }
            if self.end.is_some() {
                break;
            }
            let next = if self.is_tolerant() {
                self.deliver_waiting()
            } else {
                let delivery = self.recorded.pop_front();
                delivery.map(|delivery| self.replay(delivery))
            };
            match next {
                None => break,
                Some(Next::Exit(exit)) => return Err(exit),
                Some(Next::Again | Next::Wait) => {}
            }
        }
        let core = &self.core;
        self.recorded.retain(|left| {
            let id = left.id();
            !id.is_none_or(|id| core.take_dropped(id) || core.has_child(id))
        });
        match self.recorded.pop_front() {
            Some(left) if !self.is_tolerant() => Err(self.diverged(&left, true, Vec::new())),
            Some(_) => Ok(1 + self.recorded.len()),
            None => Ok(0),
        }
    }
}
