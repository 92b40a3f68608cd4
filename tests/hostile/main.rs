//! Hostile bytes: whatever reads bytes that somebody else may have written returns, without a panic and without more
//! memory than its limit.
//!
//! The doors are the same as those of the fuzzing targets (`fuzz/`). Here they are fed with what proptest makes of
//! nothing and of valid bytes, on a stable toolchain, in every run of the tests; and with what was ever found.

mod found;

use std::alloc::System;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use cap::Cap;
use proptest::prelude::*;
use workflow_runtime::encryption::{Encryption, EncryptionKey};
use workflow_runtime::{
    Key, MessageId, PayloadCodec, PayloadContext, RunCursor, RunId, StepId, hostile,
};

/// Counts what is asked of the system.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// The most that a reader may ask for at once beside what its input justifies: `MAX_DECODED_SMALL` in `codec.rs` is 1
/// MiB, and serde reserves up to 1 MiB for a sequence whose length was only claimed.
const ROOM: usize = 8 * 1024 * 1024;

/// One at a time, so that what is counted is of one reader.
static ALONE: Mutex<()> = Mutex::new(());

/// Feeds a door. It returns, and never had more memory than it may.
fn feed(name: &str, door: Door, bytes: &[u8]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = ROOM + 64 * bytes.len();
    let before = MEMORY.allocated();
    // What asks for more is aborted by the allocator, and no message could say more than this.
    MEMORY
        .set_limit(before + limit)
        .expect("it is more than now");
    let fed = std::panic::catch_unwind(|| door(bytes));
    MEMORY.set_limit(usize::MAX).expect("it is more than now");
    assert!(fed.is_ok(), "{name} panics for {bytes:02x?}");
}

fn text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = RunId::from_str(&text);
    let _ = StepId::from_str(&text);
    let _ = MessageId::from_str(&text);
    if let Ok(cursor) = RunCursor::from_str(&text) {
        assert_eq!(RunCursor::from_str(&cursor.to_string()), Ok(cursor));
    }
    let _ = Key::from(&*text).to_string();
    let _ = Key::of((&*text, 1)).to_string();
    let _ = Key::business("order", &*text).to_string();
}

fn encrypted(bytes: &[u8]) {
    let encryption = Encryption::new(1, EncryptionKey::from_bytes([7; 32]));
    let opened = encryption.decode_at(bytes, &PayloadContext::detached("shop"));
    assert!(opened.is_err(), "nobody wrote that");
}

/// A reader that is fed.
type Door = fn(&[u8]);

const DOORS: [(&str, Door); 11] = [
    ("record", hostile::record),
    ("journal", hostile::journal),
    ("journal file", hostile::journal_file),
    ("payload", hostile::payload),
    ("note", hostile::note),
    ("block", hostile::block),
    ("annex", hostile::annex),
    ("key header", hostile::key_header),
    ("stored response", hostile::stored_response),
    ("text", text),
    ("encrypted", encrypted),
];

fn feed_all(bytes: &[u8]) {
    for (name, door) in DOORS {
        feed(name, door, bytes);
    }
}

/// Bodies of all records in the fixtures.
fn recorded() -> Vec<Vec<u8>> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("format/fixtures");
    let mut bodies = Vec::new();
    for entry in std::fs::read_dir(fixtures).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|kind| kind != "hex") {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("reads");
        for line in text.lines().filter(|line| line.starts_with("01")) {
            let frame: Vec<u8> = (0..line.len() / 2)
                .map(|at| u8::from_str_radix(&line[2 * at..2 * at + 2], 16).expect("hex"))
                .collect();
            if frame.len() > 33 {
                bodies.push(frame[1..frame.len() - 32].to_vec());
            }
        }
    }
    assert!(bodies.len() > 20, "{}", bodies.len());
    bodies.sort();
    bodies
}

/// A record of the annex around bytes, from the book's page on them.
fn annexed(bytes: &[u8]) -> Vec<u8> {
    let hash = blake3::derive_key("workflow-runtime 2026-11 store annex", bytes);
    let len = (16 + bytes.len() as u32).to_le_bytes();
    [&len[..], &hash[..16], bytes].concat()
}

/// A record's body with a few bytes changed, cut, repeated or put in.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let body = proptest::sample::select(recorded());
    let edits = proptest::collection::vec((any::<u16>(), any::<u8>(), 0..4u8), 1..8);
    (body, edits).prop_map(|(mut body, edits)| {
        for (at, byte, how) in edits {
            let at = usize::from(at) % (body.len() + 1);
            match how {
                0 if at < body.len() => body[at] = byte,
                1 => body.truncate(at.max(1)),
                2 => body.insert(at, byte),
                // A length of bincode that claims eight bytes of length.
                _ => {
                    let claim = [253, byte, byte, byte, 0, 0, 0, 0, 0];
                    body.splice(at..at, claim);
                }
            }
        }
        body
    })
}

/// A recorded journal file as text with a few characters changed, cut, repeated or put in.
fn damaged_file() -> impl Strategy<Value = String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("journals");
    let files = std::fs::read_dir(folder).expect("the recorded files");
    let files = files.map(|entry| std::fs::read_to_string(entry.expect("an entry").path()));
    let mut files: Vec<String> = files.map(|text| text.expect("reads")).collect();
    assert!(files.len() > 10, "{}", files.len());
    files.sort();
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        "\"",
        ",",
        "-1",
        "1e999",
        "null",
        "\\ud800",
        "{\"$map\": [[1, 2]]}",
        "{\"$redacted\": 7}",
        "{\"$payload\": \"c1\"}",
        "18446744073709551615",
        "0",
        "a",
    ];
    let piece = proptest::sample::select(pieces.to_vec());
    let edits = proptest::collection::vec((any::<u32>(), piece, 0..4u8), 1..6);
    (proptest::sample::select(files), edits).prop_map(|(text, edits)| {
        let mut text: Vec<char> = text.chars().collect();
        for (at, piece, how) in edits {
            let at = at as usize % (text.len() + 1);
            let end = (at + piece.len()).min(text.len());
            match how {
                0 => drop(text.splice(at..end, piece.chars())),
                1 => drop(text.splice(at..at, piece.chars())),
                2 => drop(text.drain(at..end)),
                _ => text.truncate(at.max(400)),
            }
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_journal_file_is_read_or_refused(text in damaged_file()) {
        feed("journal file", hostile::journal_file, text.as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_reader_panics_or_asks_for_too_much_for_bytes_made_of_nothing(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        feed_all(&bytes);
        // The same as what begins like something.
        for first in [[1, 1], [1, 2], [2, 0], [0xc1, 1]] {
            feed_all(&[&first[..], &bytes].concat());
        }
    }

    #[test]
    fn no_reader_panics_or_asks_for_too_much_for_damaged_records(bytes in damaged()) {
        feed_all(&bytes);
        let mut framed = vec![1];
        framed.extend_from_slice(&bytes);
        framed.extend_from_slice(&[0; 32]);
        let len = (framed.len() as u16).to_le_bytes();
        feed("journal", hostile::journal, &[&len[..], &framed].concat());
        // As a note: its version, then what bincode made of something else.
        feed("note", hostile::note, &[&[1], &bytes[1..]].concat());
        // As a block of the log, with its length.
        let mut block = vec![0; 4 + 8 + 32 + 32 + 16];
        block.extend_from_slice(&bytes);
        let len = (block.len() as u32 - 4).to_le_bytes();
        block[..4].copy_from_slice(&len);
        feed("block", hostile::block, &block);
        // As a record of the annex whose hash is right: whoever can write to a store can do that.
        feed("annex", hostile::annex, &annexed(&bytes));
        feed("annex", hostile::annex, &[&bytes[..], &[0; 24], &annexed(&bytes)].concat());
    }

    #[test]
    fn no_parser_of_text_panics(line in "\\PC{0,80}", ascii in "[ -~\\t]{0,80}", id in "(run|step|msg)_[0-9a-zA-Z]{20,30}") {
        for text in [line, ascii, id] {
            feed_all(text.as_bytes());
        }
    }
}
