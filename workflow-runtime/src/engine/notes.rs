//! The names of the notes that the engine keeps beside the journals.
//!
//! Owns the list of spaces and the parts of keys, in one place, so that no two features use the same
//! name. What a note says is the business of the feature that writes it.
//!
//! | space | parts | note |
//! |---|---|---|
//! | 2 | run | how often the process died while the run was driven; see `poison` |
//! | 3 | namespace, `engine` | empty: no step of the namespace begins; see `pause` |
//! | 3 | namespace, `workflow`, name | empty: no step of the workflow begins |

use crate::ids::RunId;
use crate::store::NoteKey;

/// The space of marks of runs that may kill their process.
const MARKS: u8 = 2;

/// The space of pauses.
const PAUSES: u8 = 3;

/// How often the process died while a run was driven.
pub(super) fn mark(run: RunId) -> NoteKey {
    NoteKey::new(MARKS, &[run.as_bytes()])
}

/// The prefix of all marks.
pub(super) fn marks() -> NoteKey {
    NoteKey::new(MARKS, &[])
}

/// That a namespace is paused.
pub(super) fn engine_paused(namespace: &str) -> NoteKey {
    NoteKey::new(PAUSES, &[namespace.as_bytes(), b"engine"])
}

/// That a workflow is paused.
pub(super) fn workflow_paused(namespace: &str, workflow: &str) -> NoteKey {
    NoteKey::new(
        PAUSES,
        &[namespace.as_bytes(), b"workflow", workflow.as_bytes()],
    )
}

/// The prefix of all pauses of a namespace.
pub(super) fn pauses(namespace: &str) -> NoteKey {
    NoteKey::new(PAUSES, &[namespace.as_bytes()])
}
