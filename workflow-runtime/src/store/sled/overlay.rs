//! Notes that changed since they were last archived.
//!
//! Owns what readers must look at before the database, and which commit each change needs.
//! Never touches a file or the database.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Instant;

use bytes::Bytes;

use crate::store::NoteKey;

/// What a note that is removed, or whose value is short, costs in an archive all the same.
const NOTE_COST: usize = 64;

/// Changed notes, over those in the database.
#[derive(Debug)]
pub(super) struct Overlay {
    notes: BTreeMap<NoteKey, Changed>,
    /// How many of them are not on their way to the database.
    waiting: usize,
    waiting_bytes: usize,
    /// Since when one waits.
    pub(super) since: Instant,
    /// Up to where the last archive got: the next one goes on from there, so that notes that
    /// change all the time do not keep others waiting.
    reached: Option<NoteKey>,
}

#[derive(Debug)]
struct Changed {
    value: Option<Bytes>,
    /// The commit whose block holds it.
    commit: u64,
    /// Whether an archive is being made of it: then its block is no longer needed.
    moving: bool,
}

/// A note on its way to the database.
#[derive(Debug)]
pub(super) struct MovingNote {
    pub(super) key: NoteKey,
    pub(super) value: Option<Bytes>,
    pub(super) commit: u64,
}

impl Overlay {
    pub(super) fn new() -> Self {
        Self {
            notes: BTreeMap::new(),
            waiting: 0,
            waiting_bytes: 0,
            since: Instant::now(),
            reached: None,
        }
    }

    /// Returns how many changes wait to be archived.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Returns what a note says, if it changed; `Some(None)`: it was removed.
    pub(super) fn get(&self, key: &NoteKey) -> Option<Option<Bytes>> {
        self.notes.get(key).map(|note| note.value.clone())
    }

    /// Returns the changed notes whose keys begin with `prefix`, from behind `after` on.
    pub(super) fn range<'a>(
        &'a self,
        prefix: &'a NoteKey,
        after: Option<&'a NoteKey>,
    ) -> impl Iterator<Item = (&'a NoteKey, Option<&'a Bytes>)> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.notes
            .range((start, Bound::Unbounded))
            .take_while(|(key, _)| key.as_bytes().starts_with(prefix.as_bytes()))
            .map(|(key, note)| (key, note.value.as_ref()))
    }

    /// Enters a committed change, and returns the commit that is no longer needed for it.
    pub(super) fn set(&mut self, key: NoteKey, value: Option<Bytes>, commit: u64) -> Option<u64> {
        if self.waiting == 0 {
            self.since = Instant::now();
        }
        self.waiting += 1;
        self.waiting_bytes += cost(&key, value.as_ref());
        let changed = Changed {
            value,
            commit,
            moving: false,
        };
        let old = match self.notes.get_mut(&key) {
            Some(note) => std::mem::replace(note, changed),
            None => {
                self.notes.insert(key, changed);
                return None;
            }
        };
        if old.moving {
            return None;
        }
        self.waiting -= 1;
        self.waiting_bytes -= cost(&key, old.value.as_ref());
        Some(old.commit)
    }

    /// Takes what the next archive moves: at most as many bytes as are given, or one note.
    pub(super) fn take(&mut self, budget: usize) -> Vec<MovingNote> {
        let mut taken = Vec::new();
        if self.waiting == 0 {
            return taken;
        }
        let mut spent = 0;
        if let Some(reached) = self.reached.take() {
            let behind = (Bound::Excluded(reached), Bound::Unbounded);
            take_from(self.notes.range_mut(behind), budget, &mut spent, &mut taken);
        }
        // From the beginning; what was just taken is passed over.
        take_from(self.notes.iter_mut(), budget, &mut spent, &mut taken);
        self.left_waiting(&taken);
        self.reached = taken.last().map(|note| note.key.clone());
        taken
    }

    /// Takes all changed notes whose keys begin with `prefix`.
    pub(super) fn take_all(&mut self, prefix: &NoteKey) -> Vec<MovingNote> {
        let mut taken = Vec::new();
        let below = self
            .notes
            .range_mut(prefix..)
            .take_while(|(key, _)| key.as_bytes().starts_with(prefix.as_bytes()));
        take_from(below, usize::MAX, &mut 0, &mut taken);
        self.left_waiting(&taken);
        taken
    }

    fn left_waiting(&mut self, taken: &[MovingNote]) {
        self.waiting -= taken.len();
        let bytes = taken
            .iter()
            .map(|note| cost(&note.key, note.value.as_ref()));
        self.waiting_bytes -= bytes.sum::<usize>();
        self.since = Instant::now();
    }

    /// Forgets what is in the database now, unless it changed since.
    pub(super) fn archived(&mut self, moved: &[MovingNote]) {
        for note in moved {
            let same = self.notes.get(&note.key);
            if same.is_some_and(|now| now.moving && now.commit == note.commit) {
                self.notes.remove(&note.key);
            }
        }
    }
}

fn take_from<'a>(
    notes: impl Iterator<Item = (&'a NoteKey, &'a mut Changed)>,
    budget: usize,
    spent: &mut usize,
    taken: &mut Vec<MovingNote>,
) {
    for (key, note) in notes.filter(|(_, note)| !note.moving) {
        let more = cost(key, note.value.as_ref());
        if *spent > 0 && spent.saturating_add(more) > budget {
            return;
        }
        *spent = spent.saturating_add(more);
        note.moving = true;
        taken.push(MovingNote {
            key: key.clone(),
            value: note.value.clone(),
            commit: note.commit,
        });
    }
}

fn cost(key: &NoteKey, value: Option<&Bytes>) -> usize {
    NOTE_COST + key.as_bytes().len() + value.map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> NoteKey {
        NoteKey::new(1, &[name.as_bytes()])
    }

    fn value(text: &'static str) -> Option<Bytes> {
        Some(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_change_needs_its_block_until_it_is_replaced_or_moved() {
        let mut notes = Overlay::new();
        assert_eq!(notes.set(key("a"), value("1"), 1), None);
        assert_eq!(notes.set(key("a"), value("2"), 2), Some(1));
        let moved = notes.take(usize::MAX);
        assert_eq!(moved.len(), 1);
        assert_eq!(notes.set(key("a"), None, 3), None, "moved already");
        notes.archived(&moved);
        assert_eq!(notes.get(&key("a")), Some(None), "it changed since");
        let moved = notes.take(usize::MAX);
        notes.archived(&moved);
        assert_eq!(notes.get(&key("a")), None);
        assert_eq!((notes.waiting(), notes.waiting_bytes()), (0, 0));
    }

    #[test]
    fn notes_that_change_all_the_time_do_not_keep_others_waiting() {
        let mut notes = Overlay::new();
        for name in ["a", "b", "c", "d"] {
            notes.set(key(name), value("1"), 1);
        }
        let mut seen = Vec::new();
        for commit in 2..6 {
            let moved = notes.take(1);
            assert_eq!(moved.len(), 1);
            notes.archived(&moved);
            seen.extend(moved.into_iter().map(|note| note.key));
            notes.set(key("a"), value("2"), commit);
        }
        assert_eq!(seen, ["a", "b", "c", "d"].map(key));
    }
}
