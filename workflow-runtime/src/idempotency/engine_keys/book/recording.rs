//! How an outcome gets on record.
//!
//! Owns the one write that makes a key done, and that a claim ends with it, however it comes out. Never lets go of a write
//! that was begun.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::super::{Completion, Done, KeyError, KeyId, KeyResult, Ticket};
use super::super::cache::Known;
use super::super::rows::{self, MAX_CODED, MAX_OUTCOME, Row};
use super::{Before, Book};
use crate::engine::notes;
use crate::store::{Changes, Commit, Committed, Guard, NoteChange, NoteKey, Refusal};

impl Book {
    /// Records an outcome, in a task of its own: begun, it is finished, whoever still waits for it.
    pub(in super::super) async fn complete(
        self: Arc<Self>,
        ticket: Ticket,
        outcome: Bytes,
        ttl: Duration,
    ) -> KeyResult<Completion> {
        if outcome.len() > MAX_OUTCOME {
            return Err(too_large(&outcome));
        }
        let coded = match self.payloads.recode(&outcome) {
            Ok(coded) => coded.unwrap_or_else(|| outcome.clone()),
            Err(_) => return Err(KeyError::Codec),
        };
        if coded.len() > MAX_CODED {
            return Err(too_large(&coded));
        }
        let (before, body) = {
            let mut state = self.lock();
            let Some(claimed) = state.claim_of(&ticket) else {
                return Ok(Completion::Refused);
            };
            if claimed.completing {
                return Ok(Completion::Refused);
            }
            claimed.completing = true;
            (claimed.before.take(), claimed.body)
        };
        let completed_at = self.clock.now();
        let row = Row {
            body,
            since: ticket.since,
            completed_at,
            expires_at: completed_at.after(ttl),
            outcome: coded,
            chunks: 0,
        };
        let recording = async move {
            let settling = Settling {
                book: &self,
                ticket,
                known: None,
            };
            let known = Known {
                body,
                since: row.since,
                done: Done {
                    outcome,
                    completed_at,
                    expires_at: row.expires_at,
                },
            };
            let written = self.write(ticket.key, row, before).await;
            settling.end(matches!(written, Ok(Completion::Recorded)).then_some(known));
            written
        };
        match tokio::spawn(recording).await {
            Ok(written) => written,
            Err(_) => Err(KeyError::Stopped), // the runtime goes down
        }
    }

    /// Writes a row, unless another engine was faster.
    async fn write(
        &self,
        key: KeyId,
        row: Row,
        before: Option<Box<Before>>,
    ) -> KeyResult<Completion> {
        let name = notes::guarded_row(&self.namespace, key.as_bytes());
        let mut before = before;
        loop {
            let mut changes = Vec::new();
            if let Some(before) = &before {
                changes.extend(before.row.removal(&self.namespace, key));
            }
            changes.extend(rows::writing(&self.namespace, key, row.clone()));
            let commit = guarded(name.clone(), before.map(|before| before.bytes), changes);
            match self.store.commit(commit).await? {
                Committed::Done => return Ok(Completion::Recorded),
                Committed::Refused(Refusal::Note { found: None, .. }) => before = None, // it was swept
                Committed::Refused(Refusal::Note {
                    found: Some(bytes), ..
                }) => {
                    let found = Row::decode(key, &bytes)?;
                    if found.expires_at > self.clock.now() {
                        return Ok(Completion::Refused);
                    }
                    before = Some(Box::new(Before { bytes, row: found }));
                }
                Committed::Refused(_) => return Ok(Completion::Refused),
            }
        }
    }
}

/// Ends a claim whose outcome was written, or could not be; dropped, because the runtime goes down, nobody knows.
struct Settling<'b> {
    book: &'b Book,
    ticket: Ticket,
    known: Option<Known>,
}

impl Settling<'_> {
    fn end(mut self, known: Option<Known>) {
        self.known = known;
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let mut state = self.book.lock();
        match self.known.take() {
            Some(known) => state.cache.insert(self.ticket.key, known),
            None => state.cache.remove(&self.ticket.key),
        }
        self.book.remove(&mut state, &self.ticket);
    }
}

fn too_large(outcome: &Bytes) -> KeyError {
    KeyError::TooLarge {
        bytes: outcome.len(),
        limit: MAX_OUTCOME,
    }
}

fn guarded(key: NoteKey, expected: Option<Bytes>, notes: Vec<NoteChange>) -> Commit {
    Commit {
        guards: vec![Guard { key, expected }],
        changes: Changes {
            notes,
            ..Changes::default()
        },
    }
}
