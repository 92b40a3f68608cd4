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
use super::{Before, Book, tell};
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
        let Some(recording) = self.begin_recording(&ticket, outcome, ttl)? else {
            return Ok(Completion::Refused);
        };
        let recording = async move {
            let settling = Settling {
                book: &self,
                ticket,
                known: None,
            };
            let Recording {
                row, before, known, ..
            } = recording;
            let written = self.write(ticket.key, row, before).await;
            settling.end(matches!(written, Ok(Completion::Recorded)).then_some(known));
            written
        };
        match tokio::spawn(recording).await {
            Ok(written) => written,
            Err(_) => Err(KeyError::Stopped), // the runtime goes down
        }
    }

    /// Makes an outcome ready to be written. From now on nobody takes the key over, until it is settled. `None`: the
    /// claim was taken over, or is being completed.
    pub(in super::super) fn begin_recording(
        &self,
        ticket: &Ticket,
        outcome: Bytes,
        ttl: Duration,
    ) -> KeyResult<Option<Recording>> {
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
            match state.claim_of(ticket) {
                Some(claimed) if !claimed.completing => {
                    claimed.completing = true;
                    (claimed.before.take(), claimed.body)
                }
                _ => return Ok(None),
            }
        };
        let completed_at = self.clock.now();
        let expires_at = completed_at.after(ttl);
        let row = Row {
            body,
            since: ticket.since,
            completed_at,
            expires_at,
            outcome: coded,
            chunks: 0,
        };
        let known = Known {
            body,
            since: ticket.since,
            done: Done {
                outcome,
                completed_at,
                expires_at,
            },
        };
        Ok(Some(Recording {
            ticket: *ticket,
            row,
            before,
            known,
        }))
    }

    /// Ends a claim whose outcome was written, or could not be.
    pub(in super::super) fn settle(&self, ticket: &Ticket, known: Option<Known>) {
        let mut state = self.lock();
        match known {
            Some(known) => state.cache.insert(ticket.key, known),
            None => state.cache.remove(&ticket.key),
        }
        let gone = self.remove(&mut state, ticket);
        drop(state);
        tell(gone);
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

/// An outcome on its way to the store.
pub(in super::super) struct Recording {
    pub(in super::super) ticket: Ticket,
    row: Row,
    before: Option<Box<Before>>,
    pub(in super::super) known: Known,
}

impl Recording {
    /// What it changes in the store.
    pub(in super::super) fn changes(&self, namespace: &str) -> Vec<NoteChange> {
        let key = self.ticket.key;
        let mut changes = match &self.before {
            Some(before) => before.row.removal(namespace, key),
            None => Vec::new(),
        };
        changes.extend(rows::writing(namespace, key, self.row.clone()));
        changes
    }

    /// How many bytes the outcome has.
    pub(in super::super) fn size(&self) -> usize {
        self.row.outcome.len()
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
        self.book.settle(&self.ticket, self.known.take());
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
