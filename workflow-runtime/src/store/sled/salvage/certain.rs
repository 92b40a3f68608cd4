//! What is certain of a `db` with holes: what was written behind all of them.
//!
//! In a real `db` a hole hardly ever hits both a run's newest header and its newest records, so these are made by hand.

use std::fs;
use std::path::Path;

use super::super::block::{Draft, Facts, GENESIS};
use super::super::keys::{self, Key};
use super::super::log;
use super::super::segment::{Archive, Stored};
use super::super::tests::header;
use super::Contents;
use super::assemble::{Found, assemble};
use super::blocks::Blocks;
use super::carve::{Carved, Entry, Hole};
use crate::ids::RunId;
use crate::store::NoteKey;

/// Up to here in sled's log something is missing.
const HOLES_END: u64 = 1_000;

/// The first commit that the log has: all before is in the database only.
const FIRST: u64 = 50;

fn note(n: u64) -> NoteKey {
    NoteKey::new(5, &[&n.to_be_bytes()])
}

/// Run `n` and note `n`, last written at this place of sled's log.
fn write(carved: &mut Carved, n: u64, at: u64) {
    let stored = Stored {
        header: header(n),
        as_of: 10,
        frames: 1,
        kept_from: 0,
        taken: 0,
        next_letter: 0,
    };
    let position = stored.header.position();
    put(carved, &Key::header(position), &stored.encode(), at);
    put(carved, &Key::note(&note(n)), b"value", at);
}

fn put(carved: &mut Carved, key: &Key, record: &[u8], at: u64) {
    for (number, value) in (0..).zip(keys::cut(record)) {
        let entry = Entry { value, at };
        carved.entries.insert(key.piece(number), entry);
    }
}

/// A log that begins late and has nothing to say.
fn late_log(store: &Path) -> Blocks {
    let directory = log::directory(store);
    fs::create_dir_all(&directory).expect("made");
    let mut draft = Draft::default();
    draft.woken(RunId::from_bytes([7; 16]));
    let facts = Facts {
        archive: 1,
        synced: FIRST - 1,
    };
    let (block, _) = draft.seal(&GENESIS, FIRST, facts);
    fs::write(log::file_path(&directory, FIRST), block).expect("written");
    Blocks::read(store).expect("readable")
}

/// What is found of a `db` with these holes, if runs 1 to 4 were last written around where they end.
fn found(holes: &[u64], is_sound: bool) -> Found {
    let store = tempfile::tempdir().expect("a directory");
    let mut carved = Carved::default();
    for (n, at) in [(1, 399), (2, HOLES_END - 1), (3, HOLES_END), (4, 5_000)] {
        write(&mut carved, n, at);
    }
    let archive = Archive {
        number: 1,
        as_of: 10,
        log_from: FIRST,
        shelved: 4,
        ..Archive::default()
    };
    put(&mut carved, &Key::archive(), &archive.encode(), 5_500);
    carved.holes = holes
        .iter()
        .map(|until| Hole {
            offset: until - 100,
            len: 100,
            until: *until,
        })
        .collect();
    let database = Contents { carved, is_sound };
    assemble(store.path(), database, &mut late_log(store.path()), None, 1)
}

/// Runs and notes of which there may have been something newer.
fn doubtful(found: &Found) -> (Vec<u64>, Vec<u64>) {
    let runs = (1..5).filter(|n| found.runs[&header(*n).run].may_be_older);
    let notes = (1..5).filter(|n| found.doubtful_notes.contains(&note(*n)));
    (runs.collect(), notes.collect())
}

#[test]
fn only_what_was_written_behind_every_hole_is_certain() {
    let behind = (vec![1, 2], vec![1, 2]);
    // The last one counts, in whatever order they were found.
    for holes in [&[400, HOLES_END][..], &[HOLES_END, 400], &[HOLES_END]] {
        assert_eq!(doubtful(&found(holes, false)), behind, "{holes:?}");
    }
    assert_eq!(doubtful(&found(&[400], false)), (vec![1], vec![1]));
    // One of which nobody knows when it was written.
    let all = (vec![1, 2, 3, 4], vec![1, 2, 3, 4]);
    assert_eq!(doubtful(&found(&[u64::MAX], false)), all);
    // A database that is sound is the newest.
    assert_eq!(doubtful(&found(&[], true)), (vec![], vec![]));
}
