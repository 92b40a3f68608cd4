//! A door for hostile bytes to whatever reads an annex; see `crate::hostile`.
//!
//! Owns a file in the system's directory for such files, which it writes anew each time. Never touches a store.

use std::fs;
use std::sync::{Mutex, PoisonError};

use super::super::salvage;
use super::{Entry, Files, Pointer, Tally, file_path, tally_member};

/// Bytes of a pointer behind the two that say that it is one, and of a count.
const POINTER: usize = 8 + 4 + 4 + 8;

/// One file, one caller.
static ALONE: Mutex<()> = Mutex::new(());

/// Hands bytes to the readers of records, pointers, counts and whole files.
pub(in super::super) fn hostile(bytes: &[u8]) {
    if let Ok(entry) = Entry::read(bytes) {
        let pointer = entry.at(0, 0);
        assert!(pointer.fits(&entry) && pointer.is_near(entry.name, bytes));
        assert_eq!(Pointer::decode(&pointer.encode()), Some(pointer));
    }
    let _ = Pointer::decode(bytes);
    let Some((numbers, file)) = bytes.split_at_checked(POINTER) else {
        return;
    };
    let pointer = Pointer::decode(&[&[0, 0], numbers].concat()).expect("it has the length of one");
    let mut tally = Tally::decode(numbers).expect("it has the length of one");
    let _ = (tally.is_sparse(), tally_member(pointer.file, &tally));
    tally.add(&pointer);
    let _ = tally.without(&pointer);
    let _ = Tally::decode(bytes);
    read(&pointer, file);
    salvage::hostile_annex(&pointer, file);
}

/// Reads what a pointer points to in a file, as whoever reads a run does.
fn read(pointer: &Pointer, file: &[u8]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("workflow-runtime-hostile-{}", std::process::id());
    let files = Files::new(&std::env::temp_dir().join(name));
    fs::create_dir_all(files.directory()).expect("a directory for such files");
    fs::write(file_path(files.directory(), 0), file).expect("written");
    let mut pointer = *pointer;
    pointer.file = 0;
    let _ = files.read(b"name", &pointer);
}
