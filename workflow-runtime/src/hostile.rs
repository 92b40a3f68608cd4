//! Doors for tests that feed hostile bytes to whatever reads bytes; only with the feature `testing`.
//!
//! Owns nothing: each function hands its bytes to one decoder of the crate and drops what comes back. It must return,
//! whatever the bytes are: no panic, no endless loop, no memory past the decoder's limit. Not part of the public
//! interface.

use bytes::Bytes;

use crate::export::JournalFile;
use crate::ids::RunId;
use crate::journal::{Chain, Event, Reader};
use crate::payload::Payloads;

/// Reads the body of a record, and the letter that such a body would be.
pub fn record(bytes: &[u8]) {
    if let Ok((time, event)) = Event::decode(bytes) {
        // What was understood can be shown, and means the same when it is written again.
        let _ = event.to_string();
        let mut chain = Chain::new(RunId::from_bytes([0; 16]), None);
        let frame = crate::journal::Draft::of(&event).seal(time, &mut chain);
        let body = &frame[1..frame.len() - 32];
        let again = Event::decode(body).map(|(_, again)| again);
        assert_eq!(again.as_ref(), Ok(&event), "written again, it is another");
    }
    if let Ok(event) = Event::from_letter(bytes) {
        let again = Event::from_letter(&event.to_letter());
        assert_eq!(again.as_ref(), Ok(&event), "written again, it is another");
    }
}

/// Reads a journal: frames, each behind its length of two bytes.
pub fn journal(bytes: &[u8]) {
    let mut frames = Vec::new();
    let mut rest = bytes;
    while let Some((len, tail)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(tail.len());
        let (frame, tail) = tail.split_at(len);
        frames.push(Bytes::copy_from_slice(frame));
        rest = tail;
    }
    let run = RunId::from_bytes([0; 16]);
    Reader::new(run, None, &frames).for_each(drop);
    let chained = rechained(run, &frames);
    Reader::new(run, None, &chained).for_each(drop);
}

/// Frames the bodies of frames anew, as a journal whose chain is right. Whoever can write to a store can do that, if
/// the chain is not keyed.
pub fn rechained(run: RunId, frames: &[Bytes]) -> Vec<Bytes> {
    let mut chain = Chain::new(run, None);
    let long_enough = frames.iter().filter(|frame| frame.len() > 33);
    long_enough.map(|frame| chain.copy(frame)).collect()
}

/// Reads a payload: without a type, and as some types.
pub fn payload(bytes: &[u8]) {
    let payloads = Payloads::default();
    let _ = payloads.value(bytes).map(|value| value.to_string());
    let _ = payloads.decode::<Vec<String>>(bytes);
    let _ = payloads.decode::<std::collections::HashMap<String, Vec<u64>>>(bytes);
    let _ = payloads.decode::<(u8, Option<f64>, Bytes)>(bytes);
    let _ = payloads.decode::<crate::Error>(bytes);
    let _ = payloads.uncode(bytes);
}

/// Reads a journal file: as text, as bytes, and as bytes whose frame and hash are right.
pub fn journal_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut read = vec![
        JournalFile::from_json(&text),
        JournalFile::from_json_edited(&text),
        JournalFile::from_binary(Bytes::copy_from_slice(bytes)),
    ];
    for form in [1, 2] {
        let mut framed = b"wfjournl".to_vec();
        framed.push(form);
        framed.extend_from_slice(bytes);
        let hash = *blake3::hash(&framed).as_bytes();
        framed.extend_from_slice(&hash);
        read.push(JournalFile::from_binary(framed));
    }
    for file in read.into_iter().flatten() {
        // What was understood comes back as it is, and whatever is in it can be taken out.
        let again = JournalFile::from_json(&file.to_json());
        assert_eq!(again.as_ref(), Ok(&file), "as text it is another");
        let again = JournalFile::from_binary(file.to_binary());
        assert_eq!(again.as_ref(), Ok(&file), "as bytes it is another");
        let _ = (file.key_ids(), file.end());
        let without = file.redact_fields(["input"]).redact_all();
        let again = JournalFile::from_json(&without.to_json());
        assert_eq!(again.as_ref(), Ok(&without), "redacted, it is another");
    }
}

/// Reads the value of a note, as each kind that there is.
pub fn note(bytes: &[u8]) {
    crate::engine::hostile_note(bytes);
    crate::idempotency::hostile_row(bytes);
    let _ = crate::store::Newest::decode(bytes);
}

/// Reads a block of the embedded store's log, checked or not.
pub fn block(bytes: &[u8]) {
    crate::store::sled::hostile_block(bytes);
}

/// Reads a record of the embedded store's annex, and the bytes behind the first 24 as a file of it, to which those point and of which they
/// are the count.
pub fn annex(bytes: &[u8]) {
    crate::store::sled::hostile_annex(bytes);
}

/// Reads the `Idempotency-Key` header, given once or twice.
#[cfg(feature = "http")]
pub fn key_header(bytes: &[u8]) {
    crate::idempotency::http::hostile_header(bytes);
}

/// Rebuilds a stored response.
#[cfg(feature = "http")]
pub fn stored_response(bytes: &[u8]) {
    crate::idempotency::http::hostile_response(bytes);
}
