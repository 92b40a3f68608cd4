//! What is written to a store: runs, frames, letters, notes. Plain data.

use bytes::Bytes;

use super::{Durability, Epoch, Frames, Guard, NoteChange, RunEnd, RunHeader, StoreResult};
use crate::clock::Timestamp;
use crate::ids::RunId;

/// A run to be created.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its header. The state is [`RunState::Active`](super::RunState::Active), or
    /// [`RunState::Asleep`](super::RunState::Asleep) if nobody is to drive
    /// it yet.
    pub header: RunHeader,
    /// Its first frame.
    pub first: Bytes,
    /// The frames behind it, if it begins with more: a fork does.
    pub rest: Vec<Bytes>,
    /// How durable the acknowledgement is.
    pub durability: Durability,
}

/// What [`Store::create`](super::Store::create) found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Creation {
    /// The run was created and is owned under this epoch.
    Created(Epoch),
    /// A run of that id is there already.
    Exists(Box<RunHeader>),
}

/// Frames to be appended to one run.
#[derive(Debug, Clone)]
pub struct Append {
    /// The run.
    pub run: RunId,
    /// The epoch under which the caller owns it.
    pub epoch: Epoch,
    /// The sequence number of the first frame.
    pub first_seq: u64,
    /// The frames, in order. May be empty: then it makes durable what stands before it, and its changes.
    pub frames: Frames,
    /// How the run ends with the last frame, if it does. Letters that wait for it are dropped then, unless it
    /// goes on as a new run: these get them (see [`Newest`](super::Newest)).
    pub end: Option<RunEnd>,
    /// Letters below this number are in the journal now: they are taken. 0 takes none.
    pub taken: u64,
    /// What changes elsewhere in the same write. Nothing in here can refuse the append: a run whose id
    /// is taken is left as it is, a letter to a run that has ended or is not there is dropped. A letter to a
    /// run that went on as a new one is one to the newest of its line.
    pub changes: Option<Box<Changes>>,
    /// How durable the acknowledgement is.
    pub durability: Durability,
}

/// A run that was taken over.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The epoch for all writes from now on.
    pub epoch: Epoch,
    /// The run's header.
    pub header: RunHeader,
    /// Its journal, as far as it was asked for.
    pub frames: Vec<Bytes>,
    /// The letters that wait for it, in order.
    pub mail: Vec<Mail>,
    /// The number of the next letter that it will get.
    pub next_letter: u64,
}

/// A journal as far as it is kept: see [`Store::forget`](super::Store::forget).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptJournal {
    /// All its frames, but for those that were forgotten.
    pub frames: Vec<Bytes>,
    /// Records from 2 up to this number were forgotten. 0: none.
    pub kept_from: u64,
}

/// More that changes in one atomic write.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Runs to be created. Whoever creates a run owns it under [`Epoch::FIRST`], unless it is created
    /// asleep.
    pub create: Vec<NewRun>,
    /// Letters to runs.
    pub post: Vec<Letter>,
    /// Notes to be written or removed, in order.
    pub notes: Vec<NoteChange>,
}

impl Changes {
    /// Says whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.create.is_empty() && self.post.is_empty() && self.notes.is_empty()
    }

    /// Refuses notes that are too large.
    pub(super) fn check(&self) -> StoreResult<()> {
        self.notes.iter().try_for_each(NoteChange::check)
    }
}

/// Something that another has for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Who gets it.
    pub to: RunId,
    /// What it says.
    pub body: Bytes,
}

/// A letter that waits for its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Its number among the letters to that run, from 0.
    pub number: u64,
    /// What it says.
    pub body: Bytes,
}

/// A write that no run's owner makes: see [`Store::commit`](super::Store::commit).
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// What notes must say for it to be made.
    pub guards: Vec<Guard>,
    /// What changes. Here a run whose id is taken, and a letter to a run that has ended or is not
    /// there, refuse the whole commit; of a run that went on as a new one, the newest of its line counts.
    pub changes: Changes,
}

/// What became of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// It is durable.
    Done,
    /// Nothing was changed.
    Refused(Refusal),
}

/// Why a commit was refused: the first guard, run or letter that did not fit, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A note says something else.
    Note {
        /// Which guard, from 0.
        guard: usize,
        /// What the note says.
        found: Option<Bytes>,
    },
    /// A run to be created is there already.
    Exists(Box<RunHeader>),
    /// A letter is to a run that has ended.
    Ended(RunId),
    /// A letter is to a run that is not there.
    Unknown(RunId),
}

/// What became of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The run sleeps; this owner is none any more.
    Asleep,
    /// Letters wait for it: it is still owned as before.
    HasMail,
}

/// A failed run to be taken up again.
#[derive(Debug, Clone)]
pub struct Reopening {
    /// The run.
    pub run: RunId,
    /// The sequence number of the frame.
    pub seq: u64,
    /// The frame that says so.
    pub frame: Bytes,
    /// What notes must say for it to be taken up.
    pub guards: Vec<Guard>,
    /// Notes that change in the same write.
    pub notes: Vec<NoteChange>,
    /// Letters that it gets in the same write: what waited when it failed.
    pub letters: Vec<Bytes>,
}

/// A sleeping run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sleeper {
    /// When it is to be woken.
    pub wake_at: Option<Timestamp>,
    /// The run.
    pub run: RunId,
    /// The namespace it lives in.
    pub namespace: Box<str>,
}
