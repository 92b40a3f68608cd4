//! The names of the notes that the engine keeps beside the journals.
//!
//! Owns the list of spaces and the parts of keys, in one place, so that no two features use the same
//! name. What a note says is the business of the feature that writes it.
//!
//! | space | parts | note |
//! |---|---|---|
//! | 0 | run, `published`, name | what the run last published under the name, a payload |
//! | 0 | run, `signal`, name, key | empty: a signal of that name and key was accepted |
//! | 1 | namespace, token | the run that holds the token of a hook, 16 bytes |
//!
//! Notes in space 0 belong to a run and are deleted with it.

use crate::ids::RunId;
use crate::store::NoteKey;

/// The space of hooks' tokens.
const TOKENS: u8 = 1;

/// What a run last published under a name.
pub(crate) fn published(run: RunId, name: &str) -> NoteKey {
    NoteKey::of_run(run, &[b"published", name.as_bytes()])
}

/// That a run was sent a signal of that name under that key.
pub(crate) fn signal_key(run: RunId, name: &str, key: &str) -> NoteKey {
    NoteKey::of_run(run, &[b"signal", name.as_bytes(), key.as_bytes()])
}

/// Who holds a token.
pub(crate) fn token(namespace: &str, token: &str) -> NoteKey {
    NoteKey::new(TOKENS, &[namespace.as_bytes(), token.as_bytes()])
}
