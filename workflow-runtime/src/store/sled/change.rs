//! What a commit changes in memory, and what of the log is needed for it.
//!
//! Owns the step from a durable commit to what readers see. Never touches a file.

use bytes::Bytes;

use super::doze::{Place, Slumber};
use super::ledger::Ledger;
use super::op::Appending;
use super::table::{Live, Table};
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::store::{Epoch, NoteKey, Reopening, RunHeader, RunState};

/// A change of memory, made visible once the commit is durable.
#[derive(Debug)]
pub(super) enum Change {
    Created(Box<RunHeader>, Bytes),
    Appended(Appending),
    Parked(RunId, RunState),
    Posted(RunId, u64, Bytes),
    Noted(NoteKey, Option<Bytes>),
    Slept(RunId, Option<Timestamp>),
    /// The same, with a record in the block that begins at a place of it, has so many bytes and holds so many frames.
    Dozed(RunId, Option<Timestamp>, Dozed),
    Woken(RunId),
    Revived(Box<Reopening>, Epoch),
    Forgot(RunId, u64),
}

/// The record with which a run sleeps in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dozed {
    /// Where it begins in its block, and how many bytes it has.
    pub(super) at: usize,
    pub(super) len: usize,
    /// How many frames it holds.
    pub(super) frames: u64,
}

/// The block of a commit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub(super) commit: u64,
    /// Where it begins in its file.
    pub(super) at: u64,
}

// Every step is one: what is rare and large is boxed.
const _: () = assert!(size_of::<Change>() <= 104);

impl Change {
    /// Makes the change, and counts what of the commit's block is needed for it.
    pub(super) fn apply(self, table: &mut Table, ledger: &mut Ledger, block: Written) {
        let commit = block.commit;
        match self {
            Self::Created(header, first) => {
                let run = header.run;
                let mut live = Live::new(*header);
                live.next_seq = 1;
                live.push(first, commit);
                table.insert(live);
                ledger.count(run, 1);
                look_at(table, ledger, run, 0);
            }
            Self::Appended(append) => appended(append, table, ledger, commit),
            Self::Parked(run, state) => changed(table, ledger, run, state, commit),
            Self::Posted(run, number, body) => {
                let bytes = body.len();
                let Some(live) = table.runs.get_mut(&run) else {
                    return;
                };
                let mailbox = live.mailbox.get_or_insert_default();
                mailbox.push(number, body, commit);
                ledger.count(run, 1);
                ledger.look_at(live, bytes);
            }
            Self::Noted(key, value) => ledger.note(key, value, commit),
            Self::Slept(run, wake_at) => {
                // No block tells of it: it is durable once it is archived.
                if let Some(live) = table.set_state(run, RunState::Asleep { wake_at }) {
                    ledger.look_at(live, 0);
                }
            }
            Self::Dozed(run, wake_at, dozed) => {
                let place = dozed.place(block);
                // Something else may have happened to it in the same group: then it leaves as others do.
                if !place.is_some_and(|place| doze(table, ledger, run, wake_at, (place, dozed))) {
                    Self::Slept(run, wake_at).apply(table, ledger, block);
                }
            }
            Self::Forgot(run, below) => {
                if let Some(live) = table.runs.get_mut(&run) {
                    ledger.forget(live, below, commit);
                }
            }
            Self::Woken(run) => changed(table, ledger, run, RunState::Active, commit),
            Self::Revived(reopening, epoch) => {
                let Some(live) = table.set_state(reopening.run, RunState::Active) else {
                    return;
                };
                live.epoch = epoch;
                live.ending = false;
                live.next_seq = reopening.seq + 1;
                live.push(reopening.frame, commit);
                ledger.count(reopening.run, 1);
                ledger.look_at(live, 0);
            }
        }
    }
}

impl Dozed {
    /// Returns where it lies, if that can be said.
    pub(super) fn place(self, block: Written) -> Option<Place> {
        Some(Place {
            commit: block.commit,
            at: u32::try_from(block.at + self.at as u64).ok()?,
            len: u32::try_from(self.len).ok()?,
        })
    }
}

/// Has a run sleep in the log, if it is what its record says. Says whether it does.
pub(super) fn doze(
    table: &mut Table,
    ledger: &mut Ledger,
    run: RunId,
    wake_at: Option<Timestamp>,
    (place, dozed): (Place, Dozed),
) -> bool {
    let Some(live) = table.runs.get(&run) else {
        return false;
    };
    if !live.may_doze() || live.committed() != dozed.frames {
        return false;
    }
    ledger.doze(live);
    let live = table.remove(run).expect("it was just there");
    let header = &live.header;
    table
        .dozing
        .insert(header.position(), &header.namespace, wake_at, place);
    true
}

/// Takes a run that slept in the log back into memory, where it still sleeps.
pub(super) fn rouse(table: &mut Table, ledger: &mut Ledger, place: Place, slumber: Slumber) {
    let run = slumber.run();
    table.dozing.remove(run);
    table.insert(slumber.into_live(place.commit));
    let live = table.runs.get_mut(&run).expect("it was just inserted");
    ledger.rouse(live, place.commit);
}

fn appended(append: Appending, table: &mut Table, ledger: &mut Ledger, commit: u64) {
    let run = append.run;
    let Some(live) = table.runs.get_mut(&run) else {
        return;
    };
    let mut things = append.frames.len();
    // Raised when it was accepted already, but for what a run was created with.
    live.next_seq = live.next_seq.max(append.first_seq + things as u64);
    let before = live.tail_bytes;
    let newest = live.tail.last().map(|frame| frame.commit);
    append.frames.for_each(|frame| live.push(frame, commit));
    let bytes = live.tail_bytes - before;
    if append.taken == 0 && append.end.is_none() {
        // Nothing but its length has changed, so nothing else is looked at.
        ledger.count_after(run, things, newest);
        return ledger.grown(live, bytes);
    }
    if append.taken > 0 {
        for unneeded in live.take_letters(append.taken) {
            ledger.release(unneeded);
        }
        if things == 0 {
            // Otherwise the frames keep the block.
            live.changed_in.push(commit);
            things = 1;
        }
    }
    if let Some(end) = append.end {
        live.header.state = RunState::Ended(end);
        live.drop_letters();
    }
    ledger.count(run, things);
    ledger.look_at(live, bytes);
}

fn changed(table: &mut Table, ledger: &mut Ledger, run: RunId, state: RunState, commit: u64) {
    if let Some(live) = table.set_state(run, state) {
        live.changed_in.push(commit);
        ledger.count(run, 1);
        ledger.look_at(live, 0);
    }
}

fn look_at(table: &mut Table, ledger: &mut Ledger, run: RunId, bytes: usize) {
    if let Some(live) = table.runs.get_mut(&run) {
        ledger.look_at(live, bytes);
    }
}
