//! One group in the making: from what was queued to items, changes and answers.
//!
//! Owns what a group commit is about. Never writes and never waits; it asks the database
//! only whether an id is taken.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::block::Items;
use super::database::Database;
use super::ledger::BlockInfo;
use super::reads;
use super::shared::{Op, Reply, Shared};
use super::table::{Live, Table};
use crate::ids::RunId;
use crate::store::{
    Append, Creation, Durability, Epoch, NewRun, RunHeader, RunState, StoreError, StoreResult,
};

/// What is told to whom once a commit is durable.
pub(super) enum Answer {
    Done(Reply<()>),
    Creation(Reply<Creation>, Creation),
}

/// One commit in the making.
#[derive(Default)]
pub(super) struct Group {
    pub(super) items: Items,
    pub(super) answers: Vec<Answer>,
    pub(super) changes: Vec<Change>,
    pub(super) info: BlockInfo,
    pub(super) synced: bool,
    created: HashMap<RunId, RunHeader>,
}

/// A change of the table, made visible once the commit is durable.
pub(super) enum Change {
    Created(RunHeader, bytes::Bytes),
    Appended(Append),
    Parked(RunId, RunState),
}

impl Group {
    /// Turns what was queued into items and answers.
    pub(super) fn gather(
        &mut self,
        shared: &Shared,
        database: &Database,
        ops: Vec<Op>,
    ) -> StoreResult<()> {
        let mut failed = None;
        for op in ops {
            self.synced |= op.durability() == Durability::Synced;
            match op {
                Op::Create(run, reply) => match self.create(shared, database, &run) {
                    Ok(creation) => self.answers.push(Answer::Creation(reply, creation)),
                    Err(error) => {
                        // The group fails as a whole, and this call with it.
                        let _ = reply.send(Err(error.clone()));
                        failed.get_or_insert(error);
                    }
                },
                Op::Append(append, reply) => {
                    self.items
                        .appended(append.run, append.first_seq, &append.frames, append.end);
                    self.count(append.run, append.frames.len());
                    self.changes.push(Change::Appended(append));
                    self.answers.push(Answer::Done(reply));
                }
                Op::Park(run, parking, reply) => {
                    self.items.parked(run, parking.as_ref());
                    self.count(run, 1);
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
    fn create(
        &mut self,
        shared: &Shared,
        database: &Database,
        run: &NewRun,
    ) -> StoreResult<Creation> {
        let id = run.header.run;
        let exists = |header: RunHeader| Ok(Creation::Exists(Box::new(header)));
        if let Some(live) = shared.lock().table.runs.get(&id) {
            return exists(live.header.clone());
        }
        if let Some(ended) = reads::ended_run(database, id)? {
            return exists(ended.header);
        }
        match self.created.entry(id) {
            Entry::Occupied(taken) => return exists(taken.get().clone()),
            Entry::Vacant(free) => {
                free.insert(run.header.clone());
            }
        }
        self.items.created(&run.header, &run.first);
        self.count(id, 1);
        self.changes
            .push(Change::Created(run.header.clone(), run.first.clone()));
        Ok(Creation::Created(Epoch::FIRST))
    }

    /// Counts what the block holds of a run.
    fn count(&mut self, run: RunId, things: usize) {
        let things = u32::try_from(things).expect("an append has few frames");
        self.info.live += things;
        self.info.total += things;
        if self.info.runs.last() != Some(&run) {
            self.info.runs.push(run);
        }
    }
}

impl Change {
    /// Applies the change and returns the run.
    pub(super) fn apply(self, table: &mut Table, commit: u64) -> Option<&mut Live> {
        let run = match self {
            Self::Created(header, first) => {
                let run = header.run;
                let mut live = Live::new(header);
                live.next_seq = 1;
                live.push(first, commit);
                table.insert(live);
                run
            }
            Self::Appended(append) => {
                let live = table.runs.get_mut(&append.run)?;
                for frame in append.frames {
                    live.push(frame, commit);
                }
                if let Some(end) = append.end {
                    live.header.state = RunState::Ended(end);
                }
                append.run
            }
            Self::Parked(run, state) => {
                let live = table.runs.get_mut(&run)?;
                live.header.state = state;
                live.parked_in.push(commit);
                run
            }
        };
        table.runs.get_mut(&run)
    }
}

impl Answer {
    pub(super) fn send(self) {
        // Whoever dropped the future does not want to know.
        let _ = match self {
            Self::Done(reply) => reply.send(Ok(())).is_err(),
            Self::Creation(reply, creation) => reply.send(Ok(creation)).is_err(),
        };
    }

    pub(super) fn fail(self, error: StoreError) {
        let _ = match self {
            Self::Done(reply) => reply.send(Err(error)).is_err(),
            Self::Creation(reply, _) => reply.send(Err(error)).is_err(),
        };
    }
}
