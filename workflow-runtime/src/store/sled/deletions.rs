//! The line of runs that are to be deleted.
//!
//! Owns who waits for which deletion, and which runs cannot come back into memory because one
//! is being made. Never touches the database: the archiver does.

use std::collections::VecDeque;

use super::op::Reply;
use super::shared::{Phase, Shared, State};
use crate::ids::RunId;
use crate::store::StoreError;

/// Runs that are to be deleted, and who wants to know.
#[derive(Debug)]
pub(super) struct Deletion {
    runs: VecDeque<RunId>,
    deleted: u64,
    reply: Reply<u64>,
}

impl Deletion {
    /// Answers with an error.
    pub(super) fn refuse(self, error: StoreError) {
        // Whoever dropped the future does not want to know.
        let _ = self.reply.send(Err(error));
    }
}

impl Shared {
    /// Puts runs in line to be deleted.
    pub(super) fn push_deletion(&self, state: &mut State, runs: Vec<RunId>, reply: Reply<u64>) {
        state.deletions.push_back(Deletion {
            runs: runs.into(),
            deleted: 0,
            reply,
        });
        self.wake_archiver();
    }

    /// Takes some runs that are to be deleted.
    pub(super) fn next_deletions(&self, limit: usize) -> Vec<RunId> {
        let mut state = self.lock();
        let Some(deletion) = state.deletions.front_mut() else {
            return Vec::new();
        };
        let count = deletion.runs.len().min(limit);
        deletion.runs.drain(..count).collect()
    }

    /// Counts deleted runs, and tells who wanted to know if there are no more to come.
    pub(super) fn deleted(&self, runs: u64) {
        let mut state = self.lock();
        let Some(deletion) = state.deletions.front_mut() else {
            return;
        };
        deletion.deleted += runs;
        if deletion.runs.is_empty()
            && let Some(done) = state.deletions.pop_front()
        {
            drop(state);
            // Whoever dropped the future does not want to know.
            let _ = done.reply.send(Ok(done.deleted));
        }
    }
}

impl State {
    /// Says whether one of these runs has ended and is still in memory.
    pub(super) fn any_is_leaving(&self, runs: &[RunId]) -> bool {
        let mut live = runs.iter().filter_map(|run| self.table.runs.get(run));
        live.any(|live| live.ended()) && !matches!(self.phase, Phase::Failed(_))
    }

    /// Keeps runs that are not in memory from coming back, and returns which those are.
    pub(super) fn mark_deleting(&mut self, runs: Vec<RunId>) -> Vec<RunId> {
        let table = &mut self.table;
        let outside = runs.into_iter().filter(|run| !table.runs.contains_key(run));
        // Each once.
        outside.filter(|run| table.deleting.insert(*run)).collect()
    }

    pub(super) fn unmark_deleting(&mut self, runs: &[RunId]) {
        for run in runs {
            self.table.deleting.remove(run);
        }
    }
}
