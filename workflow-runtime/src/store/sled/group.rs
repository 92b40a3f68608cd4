//! One group in the making: from what was queued to items, changes and answers.
//!
//! Owns what a group commit is about. Never writes and never waits.

use super::block::Draft;
use super::change::{Change, Dozed};
use super::doze::Slumber;
use super::judge::{Judge, Recipient};
use super::op::{Appending, Op, Reply};
use super::shared::Shared;
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::store::{
    AckSender, Changes, Commit, Committed, Creation, Durability, EndKind, Epoch, Letter, NewRun,
    NoteChange, Refusal, Released, Reopening, RunState, StoreError, StoreResult, Unread,
};

/// How many bytes of a block's buffer are kept for the next one.
const KEPT_BUFFER: usize = 4 * 1024 * 1024;

/// What is told to whom once a commit is durable.
#[derive(Debug)]
enum Answer {
    Acked(AckSender),
    Done(Reply<()>),
    Creation(Reply<Creation>, Creation),
    Committed(Reply<Committed>, Box<Committed>),
    Released(Reply<Released>, Box<StoreResult<Released>>),
    Revived(Reply<Epoch>, Box<StoreResult<Epoch>>),
}

// Every step has one: what is rare and large is boxed.
const _: () = assert!(size_of::<Answer>() <= 32);

/// One commit in the making; its buffers are used again for the next.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) draft: Draft,
    pub(super) changes: Vec<Change>,
    pub(super) synced: bool,
    pub(super) judge: Judge,
    /// Whether a run falls asleep in it with a record in the log.
    pub(super) dozes: bool,
    answers: Vec<Answer>,
}

impl Group {
    /// Turns what was queued into items and answers.
    pub(super) fn gather(&mut self, shared: &Shared, ops: &mut Vec<Op>) -> StoreResult<()> {
        self.draft.clear(KEPT_BUFFER);
        self.changes.clear();
        self.judge.clear();
        self.synced = false;
        self.dozes = false;
        let mut failed = None;
        for op in ops.drain(..) {
            self.synced |= op.durability() == Durability::Synced;
            if let Err(error) = self.add(shared, op) {
                // The group fails as a whole, and this call with it.
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Adds one thing that was asked for. An error stops the store.
    fn add(&mut self, shared: &Shared, op: Op) -> StoreResult<()> {
        match op {
            Op::Append(append, ack) => {
                let outcome = self.append(shared, append);
                self.answers.push(Answer::Acked(ack));
                outcome
            }
            Op::Create(run, reply) => {
                let creation = self.create(shared, *run);
                self.answer(shared, reply, creation, Answer::Creation)
            }
            Op::Commit(commit, reply) => {
                let committed = self.commit(shared, commit);
                self.answer(shared, reply, committed.map(Box::new), Answer::Committed)
            }
            Op::Park(run, parking, reply) => {
                self.draft.parked(run, parking.as_ref());
                let state = parking.map_or(RunState::Active, RunState::Parked);
                self.changes.push(Change::Parked(run, state));
                self.answers.push(Answer::Done(reply));
                Ok(())
            }
            Op::Sleep(run, epoch, wake_at, reply) => {
                let released = self.release(shared, run, epoch, wake_at);
                self.answers
                    .push(Answer::Released(reply, Box::new(released)));
                Ok(())
            }
            Op::Claim(run, reply) => {
                self.wake(shared, run);
                self.answers.push(Answer::Done(reply));
                Ok(())
            }
            Op::Revive(reopening, reply) => {
                let revived = self.revive(shared, reopening);
                self.answer(shared, reply, revived.map(Box::new), Answer::Revived)
            }
            Op::Forget(run, below, reply) => {
                self.draft.forgotten(run, below);
                self.changes.push(Change::Forgot(run, below));
                self.answers.push(Answer::Done(reply));
                Ok(())
            }
            Op::Barrier(reply) => {
                self.answers.push(Answer::Done(reply));
                Ok(())
            }
        }
    }

    /// Keeps an answer for later. An error stops the store: whoever asked hears the same as all who ask later.
    fn answer<T, A>(
        &mut self,
        shared: &Shared,
        reply: Reply<T>,
        outcome: StoreResult<A>,
        answer: impl FnOnce(Reply<T>, A) -> Answer,
    ) -> StoreResult<()> {
        match outcome {
            Ok(outcome) => {
                self.answers.push(answer(reply, outcome));
                Ok(())
            }
            Err(error) => {
                shared.fail(&error);
                let _ = reply.send(Err(shared.lock().stopped()));
                Err(error)
            }
        }
    }

    fn append(&mut self, shared: &Shared, mut append: Appending) -> StoreResult<()> {
        let run = append.run;
        let frames = &append.frames;
        self.draft
            .appended(run, append.first_seq, frames, append.end);
        if append.taken > 0 {
            append.taken = self.judge.take(shared, run, append.taken);
            self.draft.taken(run, append.taken);
        }
        let mut left = Vec::new();
        let end = append.end.map(|end| end.kind);
        if let Some(end) = append.end {
            if matches!(end.kind, EndKind::Continued | EndKind::Failed) {
                left = self.letters_to(shared, run);
            }
            self.judge.end(run, end);
        }
        let changes = append.changes.take();
        self.changes.push(Change::Appended(append));
        if let Some(changes) = changes {
            self.change(shared, *changes)?;
        }
        if end == Some(EndKind::Failed) {
            let left = left.into_iter().map(|letter| letter.body);
            let kept = Unread::keep(run, left).into_iter();
            kept.for_each(|note| self.note(note));
        } else {
            for letter in left {
                self.forward(shared, letter)?;
            }
        }
        Ok(())
    }

    /// The letters that wait for a run, also those that come with this group.
    fn letters_to(&mut self, shared: &Shared, run: RunId) -> Vec<Letter> {
        let (taken, committed) = self.judge.waiting(shared, run);
        let mut bodies: Vec<_> = committed.into_iter().map(|mail| mail.body).collect();
        for change in &self.changes {
            match change {
                Change::Posted(to, number, body) if *to == run && *number >= taken => {
                    bodies.push(body.clone());
                }
                _ => {}
            }
        }
        let letters = bodies.into_iter().map(|body| Letter { to: run, body });
        letters.collect()
    }

    /// Posts a letter to whoever takes it, if there is anybody.
    fn forward(&mut self, shared: &Shared, letter: Letter) -> StoreResult<()> {
        let (to, recipient) = self.addressee(shared, letter.to)?;
        if recipient == Recipient::Takes {
            self.post(Letter { to, ..letter });
        }
        Ok(())
    }

    /// Who takes the letters to a run: itself, or the newest of its line if it went on.
    fn addressee(&mut self, shared: &Shared, to: RunId) -> StoreResult<(RunId, Recipient)> {
        let recipient = self.judge.recipient(shared, to)?;
        if recipient == Recipient::Ended
            && let Some(heir) = self.judge.heir(shared, to)?
        {
            return Ok((heir, self.judge.recipient(shared, heir)?));
        }
        Ok((to, recipient))
    }

    /// Makes changes as far as they fit.
    fn change(&mut self, shared: &Shared, changes: Changes) -> StoreResult<()> {
        for run in changes.create {
            self.create(shared, run)?;
        }
        for letter in changes.post {
            self.forward(shared, letter)?;
        }
        for note in changes.notes {
            self.note(note);
        }
        Ok(())
    }

    /// Adds a creation, unless the id is taken: in memory, in this group, or long ago.
    fn create(&mut self, shared: &Shared, run: NewRun) -> StoreResult<Creation> {
        let id = run.header.run;
        if let Some(header) = self.judge.existing(shared, id)? {
            return Ok(Creation::Exists(Box::new(header)));
        }
        self.judge.create(&run.header);
        self.draft.created(&run.header, &run.first);
        let header = Box::new(run.header);
        self.changes.push(Change::Created(header, run.first));
        if !run.rest.is_empty() {
            self.draft.appended(id, 1, &run.rest, None);
            self.changes.push(Change::Appended(Appending {
                run: id,
                first_seq: 1,
                frames: run.rest.into(),
                end: None,
                taken: 0,
                changes: None,
                durability: run.durability,
            }));
        }
        Ok(Creation::Created(Epoch::FIRST))
    }

    fn post(&mut self, letter: Letter) {
        let Letter { to, body } = letter;
        let number = self.judge.number(to);
        self.draft.posted(to, number, &body);
        self.changes.push(Change::Posted(to, number, body));
    }

    fn note(&mut self, note: NoteChange) {
        let NoteChange { key, value } = note;
        self.draft.noted(&key, value.as_ref());
        self.judge.change_note(key.clone(), value.clone());
        self.changes.push(Change::Noted(key, value));
    }

    fn commit(&mut self, shared: &Shared, commit: Commit) -> StoreResult<Committed> {
        if let Some(refusal) = self.refuses(shared, &commit)? {
            return Ok(Committed::Refused(refusal));
        }
        self.change(shared, commit.changes)?;
        Ok(Committed::Done)
    }

    /// Says what keeps a commit from being made.
    fn refuses(&mut self, shared: &Shared, commit: &Commit) -> StoreResult<Option<Refusal>> {
        for (guard, wanted) in commit.guards.iter().enumerate() {
            let found = self.judge.note(shared, &wanted.key)?;
            if found != wanted.expected {
                return Ok(Some(Refusal::Note { guard, found }));
            }
        }
        let create = &commit.changes.create;
        for (index, new) in create.iter().enumerate() {
            let run = new.header.run;
            let twice = create[..index].iter().find(|other| other.header.run == run);
            let existing = match twice {
                Some(other) => Some(other.header.clone()),
                None => self.judge.existing(shared, run)?,
            };
            if let Some(header) = existing {
                return Ok(Some(Refusal::Exists(Box::new(header))));
            }
        }
        for letter in &commit.changes.post {
            if create.iter().any(|new| new.header.run == letter.to) {
                continue;
            }
            match self.addressee(shared, letter.to)?.1 {
                Recipient::Takes => {}
                Recipient::Ended => return Ok(Some(Refusal::Ended(letter.to))),
                Recipient::Unknown => return Ok(Some(Refusal::Unknown(letter.to))),
            }
        }
        Ok(None)
    }

    /// Lets a run sleep, unless letters wait for it or it has another owner by now.
    fn release(
        &mut self,
        shared: &Shared,
        run: RunId,
        epoch: Epoch,
        wake_at: Option<Timestamp>,
    ) -> StoreResult<Released> {
        let has_mail = self.judge.has_mail(shared, run);
        let mut state = shared.lock();
        let (has_room, as_of) = (state.ledger.has_room(), state.ledger.commit());
        let unowned = state.table.next_epoch();
        let live = state.table.runs.get_mut(&run);
        let live = live.ok_or(StoreError::UnknownRun { run })?;
        live.releasing = false;
        if live.epoch != epoch {
            return Err(StoreError::StaleEpoch { run });
        }
        if has_mail {
            return Ok(Released::HasMail);
        }
        live.epoch = unowned;
        // With frames or letters on their way its record would not be all there is.
        let is_whole = live.next_seq == live.committed() && !self.judge.knows_letters(live);
        let slumber =
            (has_room && is_whole && live.may_doze()).then(|| Slumber::of(live, wake_at, as_of));
        drop(state);
        let change = match slumber {
            Some(slumber) => Change::Dozed(run, wake_at, self.doze(&slumber)),
            None => Change::Slept(run, wake_at),
        };
        self.changes.push(change);
        Ok(Released::Asleep)
    }

    /// Writes the record of a run that sleeps in the log.
    fn doze(&mut self, slumber: &Slumber) -> Dozed {
        let record = slumber.encode();
        self.dozes = true;
        self.judge.dozes(slumber.run());
        Dozed {
            at: self.draft.slept(&record),
            len: record.len(),
            frames: slumber.stored.frames,
        }
    }

    /// Wakes a run that was claimed, if it slept.
    fn wake(&mut self, shared: &Shared, run: RunId) {
        self.judge.pinned(run);
        let sleeps = shared.lock().table.sleeping.contains(&run);
        if sleeps {
            self.draft.woken(run);
            self.changes.push(Change::Woken(run));
        }
    }

    fn revive(
        &mut self,
        shared: &Shared,
        mut reopening: Box<Reopening>,
    ) -> StoreResult<StoreResult<Epoch>> {
        let run = reopening.run;
        for wanted in std::mem::take(&mut reopening.guards) {
            if self.judge.note(shared, &wanted.key)? != wanted.expected {
                return Ok(Err(StoreError::Guarded { run }));
            }
        }
        let notes = std::mem::take(&mut reopening.notes);
        let letters = std::mem::take(&mut reopening.letters);
        let epoch = match self.judge.revive(shared, &reopening)? {
            Ok(epoch) => epoch,
            Err(refused) => return Ok(Err(refused)),
        };
        self.draft
            .revived(reopening.run, reopening.seq, &reopening.frame);
        self.changes.push(Change::Revived(reopening, epoch));
        notes.into_iter().for_each(|note| self.note(note));
        for body in letters {
            self.forward(shared, Letter { to: run, body })?;
        }
        Ok(Ok(epoch))
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

impl Answer {
    fn send(self) {
        // Whoever dropped the future does not want to know.
        let _ = match self {
            Self::Acked(ack) => return ack.send(Ok(())),
            Self::Done(reply) => reply.send(Ok(())).is_err(),
            Self::Creation(reply, creation) => reply.send(Ok(creation)).is_err(),
            Self::Committed(reply, committed) => reply.send(Ok(*committed)).is_err(),
            Self::Released(reply, released) => reply.send(*released).is_err(),
            Self::Revived(reply, epoch) => reply.send(*epoch).is_err(),
        };
    }

    fn fail(self, error: StoreError) {
        let _ = match self {
            Self::Acked(ack) => return ack.send(Err(error)),
            Self::Done(reply) => reply.send(Err(error)).is_err(),
            Self::Creation(reply, _) => reply.send(Err(error)).is_err(),
            Self::Committed(reply, _) => reply.send(Err(error)).is_err(),
            Self::Released(reply, _) => reply.send(Err(error)).is_err(),
            Self::Revived(reply, _) => reply.send(Err(error)).is_err(),
        };
    }
}
