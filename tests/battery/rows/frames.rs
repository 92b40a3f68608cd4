//! Frames made by hand, from the book's page on the journal's bytes: whole chains around bodies that no engine writes.
//!
//! Owns nothing of the product's code on purpose: it is a second reading of the format.

use bytes::Bytes;
use workflow_runtime::RunId;

/// The frame format of this release.
pub(crate) const FORMAT: u8 = 1;

/// The bytes of a chain value.
const CHAIN: usize = 32;

/// The body of a frame.
pub(crate) fn body(frame: &Bytes) -> &[u8] {
    &frame[1..frame.len() - CHAIN]
}

/// Frames bodies as one journal whose chain verifies.
pub(crate) fn chained(run: RunId, format: u8, bodies: &[Vec<u8>]) -> Vec<Bytes> {
    let mut chain = [0; CHAIN];
    let mut frames = Vec::new();
    for (seq, body) in (0_u64..).zip(bodies) {
        let mut hasher = blake3::Hasher::new_derive_key("workflow-runtime 2026-11 journal chain");
        hasher.update(&chain).update(run.as_bytes());
        hasher.update(&seq.to_le_bytes()).update(body);
        chain = *hasher.finalize().as_bytes();
        let mut frame = vec![format];
        frame.extend_from_slice(body);
        frame.extend_from_slice(&chain);
        frames.push(frame.into());
    }
    frames
}

/// A number as the format has it when it is written in eight bytes.
pub(crate) fn long(number: u64) -> Vec<u8> {
    let mut bytes = vec![253];
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes
}
