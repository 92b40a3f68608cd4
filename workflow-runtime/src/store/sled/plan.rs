//! What one archive writes into the database.
//!
//! Owns the writes that move runs from the log to segments, and the census that goes with
//! them. Pure: it never touches the database, the archiver does.

use bytes::Bytes;

use super::annex::Pointer as Annexed;
use super::database::Write;
use super::keys::{Key, cut, pieces_of};
use super::ledger::{Batch, Moving};
use super::segment::{Archive, Pointer, Stored, live_member, note_member, pack, sleeper_member};
use super::table::{Entry, Place};
use super::walk::Held;
use crate::store::{NoteKey, RunState};

/// The writes of one archive.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Segments and letters: they go to the annex, before the rest.
    pub(super) early: Vec<(Key, Bytes)>,
    /// All that must change in one batch.
    pub(super) atomic: Vec<Write>,
    /// Letters that were taken: they go with that batch.
    pub(super) taken: Vec<Key>,
    /// What of the annex is not needed once that batch is made.
    pub(super) freed: Vec<Annexed>,
}

impl Plan {
    /// Plans an archive. The batch's entries are the new ones afterwards. `olds` are the
    /// values that its notes have in the database.
    pub(super) fn new(batch: &mut Batch, olds: &[Option<Bytes>], archive: &mut Archive) -> Self {
        let mut plan = Self::default();
        archive.number += 1;
        archive.as_of = batch.as_of;
        archive.log_from = batch.log_from;
        for moving in &mut batch.moving {
            plan.archive(moving, archive);
        }
        for (note, old) in batch.notes.iter().zip(olds) {
            plan.note(&note.key, note.value.as_ref(), old.as_ref(), archive);
        }
        plan
    }

    /// Moves all committed frames and letters of one run to the database.
    fn archive(&mut self, moving: &mut Moving, archive: &mut Archive) {
        let header = &moving.header;
        let run = header.run;
        let (taken, next_letter) = moving.mailbox;
        let layout = moving.layout;
        let frames = layout.end(moving.frames.len());
        self.segments(moving);
        for mail in &moving.letters {
            let key = Key::letter(run, mail.number);
            self.early.push((key, mail.body.clone()));
        }
        let place = match header.state {
            RunState::Ended(_) => Place::Ended,
            RunState::Asleep { wake_at } if moving.leaves => Place::Asleep(wake_at),
            _ => Place::Live,
        };
        let old = moving.entry.take();
        if let Some(old) = &old {
            self.withdraw(moving, old, place, archive);
        }
        let stored = Stored {
            header: header.clone(),
            as_of: archive.as_of,
            frames,
            kept_from: layout.kept_from,
            taken,
            next_letter,
        };
        let mut entry = Entry {
            as_of: archive.as_of,
            archived: frames,
            kept_from: layout.kept_from,
            letters: (taken, next_letter),
            place,
            pieces: 0,
        };
        match place {
            Place::Live => {
                archive.live.add(live_member(run, &entry));
                entry.pieces = put(&mut self.atomic, &Key::live(run), &stored.encode());
            }
            Place::Asleep(_) | Place::Ended => {
                archive.shelved += 1;
                let key = Key::header(header.position());
                entry.pieces = put(&mut self.atomic, &key, &stored.encode());
                let pointer = Pointer {
                    created_at: header.created_at,
                    as_of: archive.as_of,
                };
                put(&mut self.atomic, &Key::run(run), &pointer.encode());
            }
        }
        if let Place::Asleep(wake_at) = place {
            archive.asleep.add(sleeper_member(run, wake_at));
            let key = Key::wake(wake_at, run);
            put(&mut self.atomic, &key, header.namespace.as_bytes());
        }
        if let Some(old) = &old {
            self.remove_rest(moving, old, &entry);
        }
        moving.entry = Some(Box::new(entry));
    }

    /// Writes frames as segments: those before a gap and those behind it apart.
    fn segments(&mut self, moving: &Moving) {
        let Moving { frames, layout, .. } = moving;
        let at = moving.header.position();
        let gap = match layout.behind() == layout.start + layout.lead() as u64 {
            true => frames.len(),
            false => layout.lead().min(frames.len()),
        };
        let (lead, rest) = frames.split_at(gap);
        for (first, part) in [(layout.start, lead), (layout.behind(), rest)] {
            let part = part.iter().map(|frame| &frame.bytes);
            for (key, record) in pack(at, first, part) {
                self.early.push((key, record.into()));
            }
        }
    }

    /// Takes what the database had of a run out of the counts, and removes what has no
    /// successor under the same key.
    fn withdraw(&mut self, moving: &Moving, old: &Entry, place: Place, archive: &mut Archive) {
        let run = moving.header.run;
        match old.place {
            Place::Live => archive.live.remove(live_member(run, old)),
            Place::Asleep(_) | Place::Ended => archive.shelved -= 1,
        }
        if old.place != Place::Live && place == Place::Live {
            self.atomic.push((Key::run(run).piece(0), None));
        }
        if let Place::Asleep(wake_at) = old.place {
            archive.asleep.remove(sleeper_member(run, wake_at));
            if place != old.place {
                remove(
                    &mut self.atomic,
                    &Key::wake(wake_at, run),
                    pieces_of(moving.header.namespace.as_bytes()),
                );
            }
        }
    }

    /// Removes what is left of an older, longer record, and letters that were taken.
    fn remove_rest(&mut self, moving: &Moving, old: &Entry, new: &Entry) {
        let run = moving.header.run;
        let key = |place| match place {
            Place::Live => Key::live(run),
            Place::Asleep(_) | Place::Ended => Key::header(moving.header.position()),
        };
        let kept = match key(old.place) == key(new.place) {
            true => new.pieces,
            false => 0,
        };
        for number in kept..old.pieces {
            self.atomic.push((key(old.place).piece(number), None));
        }
        let (from, until) = old.letters;
        let taken = from..until.min(new.letters.0);
        self.taken
            .extend(taken.map(|number| Key::letter(run, number)));
    }

    /// Removes pieces of segments or letters.
    pub(super) fn drop(&mut self, held: impl IntoIterator<Item = Held>) {
        for Held { key, pointer } in held {
            self.atomic.push((key, None));
            self.freed.extend(pointer);
        }
    }

    /// Writes or removes a note.
    pub(super) fn note(
        &mut self,
        key: &NoteKey,
        value: Option<&Bytes>,
        old: Option<&Bytes>,
        archive: &mut Archive,
    ) {
        let name = Key::note(key);
        let mut kept = 0;
        if let Some(value) = value {
            archive.notes.add(note_member(key, value));
            kept = put(&mut self.atomic, &name, value);
        }
        if let Some(old) = old {
            archive.notes.remove(note_member(key, old));
            for number in kept..pieces_of(old) {
                self.atomic.push((name.piece(number), None));
            }
        }
    }
}

/// Removes a record of so many pieces.
pub(super) fn remove(writes: &mut Vec<Write>, key: &Key, pieces: u16) {
    writes.extend((0..pieces).map(|number| (key.piece(number), None)));
}

/// Adds the pieces of a record to some writes, and returns how many there are.
pub(super) fn put(writes: &mut Vec<Write>, key: &Key, record: &[u8]) -> u16 {
    let mut count = 0;
    for piece in cut(record) {
        writes.push((key.piece(count), Some(piece)));
        count += 1;
    }
    count
}
