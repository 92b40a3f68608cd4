//! The log, replayed on top of what was left of the database.
//!
//! Owns what a block that was found means for a run or a note. Pure, as all of putting together is: it reads no file, and decodes no frame.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::super::super::block::Item;
use super::super::super::doze::Slumber;
use super::super::super::segment::Stored;
use super::super::blocks::Blocks;
use super::{Assembling, FoundRun};
use crate::ids::RunId;
use crate::store::{NoteKey, RunHeader, RunState};

impl Assembling {
    /// Adds what the log says.
    pub(super) fn replay(&mut self, log: &Blocks) {
        for block in &log.found {
            if block.commit < self.log_from {
                // It is in the database, as far as that is there: frames are taken all the same.
                self.replay_old(block.commit, &block.items);
                continue;
            }
            for item in &block.items {
                self.replay_item(block.commit, item);
            }
        }
        if !self.missing.is_empty() {
            self.found.notes_may_be_missing = true;
            let newest = self.missing.iter().map(|(_, until)| *until).max();
            let known = log
                .found
                .iter()
                .filter(|block| Some(block.commit) >= newest);
            let known = known.flat_map(|block| &block.items);
            let certain: BTreeSet<&NoteKey> = known
                .filter_map(|item| match item {
                    Item::Noted(key, _) => Some(key),
                    _ => None,
                })
                .collect();
            let notes = self.found.notes.keys();
            let doubtful = notes.filter(|key| !certain.contains(key)).cloned();
            self.found.doubtful_notes.extend(doubtful);
        }
    }

    fn replay_old(&mut self, commit: u64, items: &[Item]) {
        for item in items {
            match item {
                Item::Created(header, first) => self.created(commit, header, first),
                Item::Appended {
                    run,
                    first_seq,
                    frames,
                    ..
                } => self.frames_of(*run, commit, *first_seq, frames),
                Item::Slept(_, record) => drop(self.slept(commit, record)),
                _ => {}
            }
        }
    }

    /// Takes header and frames of what a run left in the log when it fell asleep, and returns what else that says.
    fn slept(&mut self, commit: u64, record: &Bytes) -> Option<Stored> {
        let Slumber { stored, frames } = Slumber::decode(record).ok()?;
        let (first, rest) = frames.split_first()?;
        self.created(commit, &stored.header, first);
        self.frames_of(stored.header.run, commit, 1, rest);
        Some(stored)
    }

    fn is_deleted(&self, run: RunId, commit: u64) -> bool {
        let deleted = self.deleted.get(&run);
        deleted.is_some_and(|as_of| commit <= *as_of)
    }

    fn created(&mut self, commit: u64, header: &RunHeader, first: &Bytes) {
        if self.is_deleted(header.run, commit) {
            return;
        }
        let run = self.run(header.run);
        if run.header.is_none() {
            run.header = Some(header.clone());
            run.created_at = Some(header.created_at);
            run.as_of = 0;
        }
        run.frames.entry(0).or_insert_with(|| first.clone());
        run.until = run.until.max(1);
        run.seen = run.seen.max(commit);
    }

    fn frames_of(&mut self, run: RunId, commit: u64, first: u64, frames: &[Bytes]) {
        if self.is_deleted(run, commit) {
            return;
        }
        let found = self.run(run);
        for (seq, frame) in (first..).zip(frames) {
            found.frames.entry(seq).or_insert_with(|| frame.clone());
            found.until = found.until.max(seq + 1);
        }
        found.seen = found.seen.max(commit);
    }

    fn replay_item(&mut self, commit: u64, item: &Item) {
        let run = match item {
            Item::Created(header, first) => return self.created(commit, header, first),
            Item::Noted(key, value) => return self.noted(commit, key, value.as_ref()),
            Item::Slept(_, record) => {
                if let Some(stored) = self.slept(commit, record) {
                    self.fell_asleep(commit, stored);
                }
                return;
            }
            Item::Appended { run, .. }
            | Item::Parked(run, _)
            | Item::Taken(run, _)
            | Item::Posted(run, ..)
            | Item::Woken(run)
            | Item::Forgotten(run, _)
            | Item::Revived(run, ..) => *run,
        };
        match item {
            Item::Appended {
                first_seq, frames, ..
            } => self.frames_of(run, commit, *first_seq, frames),
            Item::Revived(_, seq, frame) => {
                self.frames_of(run, commit, *seq, std::slice::from_ref(frame));
            }
            _ => {}
        }
        if !self.is_deleted(run, commit) {
            let found = self.run(run);
            if commit > found.as_of {
                found.news(item);
            }
        }
    }

    fn fell_asleep(&mut self, commit: u64, stored: Stored) {
        if self.is_deleted(stored.header.run, commit) {
            return;
        }
        let found = self.run(stored.header.run);
        if commit > found.as_of {
            found.set_state(stored.header.state);
            found.letters.taken = found.letters.taken.max(stored.taken);
            found.letters.next = found.letters.next.max(stored.next_letter);
        }
    }

    fn noted(&mut self, commit: u64, key: &NoteKey, value: Option<&Bytes>) {
        if key.run().is_some_and(|run| self.is_deleted(run, commit)) {
            return;
        }
        self.found.doubtful_notes.remove(key);
        match value {
            Some(value) => {
                self.found.notes.insert(key.clone(), value.clone());
            }
            None => {
                self.found.notes.remove(key);
            }
        }
    }
}

impl FoundRun {
    /// Applies what a commit says of it, beside frames.
    fn news(&mut self, item: &Item) {
        match item {
            Item::Appended { end: Some(end), .. } => {
                self.set_state(RunState::Ended(*end));
                self.letters.taken = self.letters.next;
                self.letters.waiting.clear();
            }
            Item::Parked(_, parking) => {
                self.set_state(parking.clone().map_or(RunState::Active, RunState::Parked));
            }
            Item::Woken(_) | Item::Revived(..) => self.set_state(RunState::Active),
            Item::Taken(_, below) => {
                self.letters.taken = self.letters.taken.max(*below);
                self.letters.next = self.letters.next.max(*below);
                self.letters.waiting = self.letters.waiting.split_off(below);
            }
            Item::Posted(_, number, body) => {
                self.letters.next = self.letters.next.max(number + 1);
                self.letters.waiting.insert(*number, body.clone());
            }
            Item::Forgotten(_, below) => self.kept_from = self.kept_from.max(*below),
            _ => {}
        }
    }

    fn set_state(&mut self, state: RunState) {
        if let Some(header) = &mut self.header {
            header.state = state;
        }
    }
}
