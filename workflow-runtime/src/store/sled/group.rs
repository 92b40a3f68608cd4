//! One group in the making: from what was queued to items, changes and answers.
//!
//! Owns what a group commit is about. Never writes and never waits; it asks the database
//! only whether an id is taken.

use std::collections::hash_map::Entry;

use super::block::Draft;
use super::op::{Op, Reply};
use super::reads;
use super::shared::Shared;
use super::table::{Live, Table};
use crate::id_map::IdMap;
use crate::ids::RunId;
use crate::store::{
    Append, Creation, Durability, Epoch, NewRun, RunHeader, RunState, StoreError, StoreResult,
};

/// How many bytes of a block's buffer are kept for the next one.
const KEPT_BUFFER: usize = 4 * 1024 * 1024;

/// What is told to whom once a commit is durable.
#[derive(Debug)]
enum Answer {
    Done(Reply<()>),
    Creation(Reply<Creation>, Creation),
}

/// One commit in the making; its buffers are used again for the next.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) draft: Draft,
    pub(super) changes: Vec<Change>,
    pub(super) synced: bool,
    answers: Vec<Answer>,
    created: IdMap<RunId, RunHeader>,
}

/// A change of the table, made visible once the commit is durable.
#[derive(Debug)]
pub(super) enum Change {
    Created(RunHeader, bytes::Bytes),
    Appended(Append),
    Parked(RunId, RunState),
}

impl Group {
    /// Turns what was queued into items and answers.
    pub(super) fn gather(&mut self, shared: &Shared, ops: &mut Vec<Op>) -> StoreResult<()> {
        self.draft.clear(KEPT_BUFFER);
        self.changes.clear();
        self.created.clear();
        self.synced = false;
        let mut failed = None;
        for op in ops.drain(..) {
            self.synced |= op.durability() == Durability::Synced;
            match op {
                Op::Create(run, reply) => match self.create(shared, run) {
                    Ok(creation) => self.answers.push(Answer::Creation(reply, creation)),
                    Err(error) => {
                        // The group fails as a whole, and this call with it.
                        let _ = reply.send(Err(error.clone()));
                        failed.get_or_insert(error);
                    }
                },
                Op::Append(append, reply) => {
                    self.draft
                        .appended(append.run, append.first_seq, &append.frames, append.end);
                    self.changes.push(Change::Appended(append));
                    self.answers.push(Answer::Done(reply));
                }
                Op::Park(run, parking, reply) => {
                    self.draft.parked(run, parking.as_ref());
                    let state = parking.map_or(RunState::Active, RunState::Parked);
                    self.changes.push(Change::Parked(run, state));
                    self.answers.push(Answer::Done(reply));
                }
                Op::Barrier(reply) => self.answers.push(Answer::Done(reply)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Adds a creation, unless the id is taken: in memory, in this group, or long ago.
    fn create(&mut self, shared: &Shared, run: NewRun) -> StoreResult<Creation> {
        let id = run.header.run;
        let exists = |header: RunHeader| Ok(Creation::Exists(Box::new(header)));
        if let Some(live) = shared.lock().table.runs.get(&id) {
            return exists(live.header.clone());
        }
        let guard = shared.database();
        let database = guard.as_ref().expect("only the committer takes it away");
        if let Some(ended) = reads::ended_run(database, id)? {
            return exists(ended.header);
        }
        drop(guard);
        match self.created.entry(id) {
            Entry::Occupied(taken) => return exists(taken.get().clone()),
            Entry::Vacant(free) => {
                free.insert(run.header.clone());
            }
        }
        self.draft.created(&run.header, &run.first);
        self.changes.push(Change::Created(run.header, run.first));
        if !run.rest.is_empty() {
            self.draft.appended(id, 1, &run.rest, None);
            self.changes.push(Change::Appended(Append {
                run: id,
                epoch: Epoch::FIRST,
                first_seq: 1,
                frames: run.rest,
                end: None,
                taken: 0,
                changes: None,
                durability: run.durability,
            }));
        }
        Ok(Creation::Created(Epoch::FIRST))
    }

    /// Tells everybody in the group that it is durable.
    pub(super) fn tell(&mut self) {
        for answer in self.answers.drain(..) {
            answer.send();
        }
    }

    /// Tells everybody in the group that it failed.
    pub(super) fn refuse(&mut self, error: &StoreError) {
        for answer in self.answers.drain(..) {
            answer.fail(error.clone());
        }
    }
}

impl Change {
    /// Returns how many bytes of frames it brings.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Created(_, first) => first.len(),
            Self::Appended(append) => append.frames.iter().map(bytes::Bytes::len).sum(),
            Self::Parked(..) => 0,
        }
    }

    /// Applies the change. Returns the run and how many frames and parkings it got.
    pub(super) fn apply(self, table: &mut Table, commit: u64) -> Option<(&mut Live, usize)> {
        match self {
            Self::Created(header, first) => {
                let run = header.run;
                let mut live = Live::new(header);
                live.next_seq = 1;
                live.push(first, commit);
                table.insert(live);
                Some((table.runs.get_mut(&run)?, 1))
            }
            Self::Appended(append) => {
                let live = table.runs.get_mut(&append.run)?;
                let frames = append.frames.len();
                // Raised when it was accepted already, but for what a run was created with.
                live.next_seq = live.next_seq.max(append.first_seq + frames as u64);
                for frame in append.frames {
                    live.push(frame, commit);
                }
                if let Some(end) = append.end {
                    live.header.state = RunState::Ended(end);
                }
                Some((live, frames))
            }
            Self::Parked(run, state) => {
                let live = table.runs.get_mut(&run)?;
                live.header.state = state;
                live.parked_in.push(commit);
                Some((live, 1))
            }
        }
    }
}

impl Answer {
    fn send(self) {
        // Whoever dropped the future does not want to know.
        let _ = match self {
            Self::Done(reply) => reply.send(Ok(())).is_err(),
            Self::Creation(reply, creation) => reply.send(Ok(creation)).is_err(),
        };
    }

    fn fail(self, error: StoreError) {
        let _ = match self {
            Self::Done(reply) => reply.send(Err(error)).is_err(),
            Self::Creation(reply, _) => reply.send(Err(error)).is_err(),
        };
    }
}
