//! Outcomes that are recorded together with what they stand for: one write for several keys, a run or a letter.
//!
//! Owns the one commit in which an event's row and what the event causes are there or are not. Never knows what
//! that is: to it, it is a commit with guards of its own.

use std::time::Duration;

use bytes::Bytes;

use super::super::super::{Done, KeyError, KeyResult, Ticket};
use super::super::cache::Known;
use super::super::rows::{self, MAX_CODED, MAX_OUTCOME, Row};
use super::{Before, Book};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::engine::notes;
use crate::store::{Commit, Committed, Guard, Refusal};

/// A key that is to be completed with others.
pub(crate) struct Completing {
    pub(crate) ticket: Ticket,
    pub(crate) outcome: Bytes,
    pub(crate) ttl: Duration,
}

/// What became of them.
pub(crate) enum Joined {
    /// All is recorded, since then.
    Recorded(Timestamp),
    /// Nothing is: somebody else has one of the keys. The others are held as before.
    Lost,
    /// Nothing is: what was to be written with them was refused. All keys are held as before.
    Refused,
}

/// A key while its row is being written.
struct Entering {
    ticket: Ticket,
    body: Digest,
    before: Option<Box<Before>>,
    outcome: Bytes,
    row: Row,
}

impl Book {
    /// Records outcomes and makes a commit, all in one write. To be called in a task of its own: begun, it has
    /// to be finished.
    pub(crate) async fn complete_with(
        &self,
        keys: Vec<Completing>,
        with: &Commit,
    ) -> KeyResult<Joined> {
        let now = self.clock.now();
        let Some(mut entering) = self.enter(keys, now)? else {
            return Ok(Joined::Lost);
        };
        loop {
            let refused = match self.store.commit(self.commit_of(&entering, with)).await {
                Ok(Committed::Done) => break,
                Ok(Committed::Refused(refused)) => refused,
                Err(error) => {
                    entering
                        .iter()
                        .for_each(|one| self.settle(&one.ticket, None));
                    return Err(error.into());
                }
            };
            let (at, found) = match refused {
                Refusal::Note { guard, found } if guard < entering.len() => (guard, found),
                _ => {
                    self.step_back(entering);
                    return Ok(Joined::Refused);
                }
            };
            let one = &mut entering[at];
            one.before = match found {
                None => None, // it was swept
                Some(bytes) => match Row::decode(one.ticket.key, &bytes) {
                    Ok(row) if row.expires_at <= now => Some(Box::new(Before { bytes, row })),
                    // Another engine has it, or nobody can say.
                    other => {
                        let lost = entering.swap_remove(at);
                        self.settle(&lost.ticket, None);
                        self.step_back(entering);
                        return other.map(|_| Joined::Lost);
                    }
                },
            };
        }
        for one in entering {
            let known = Known {
                body: one.body,
                since: one.row.since,
                done: Done {
                    outcome: one.outcome,
                    completed_at: one.row.completed_at,
                    expires_at: one.row.expires_at,
                },
            };
            self.settle(&one.ticket, Some(known));
        }
        Ok(Joined::Recorded(now))
    }

    /// Marks all keys as being completed. `None`: not all of them are held any more, and none is marked.
    fn enter(&self, keys: Vec<Completing>, now: Timestamp) -> KeyResult<Option<Vec<Entering>>> {
        let mut coded = Vec::with_capacity(keys.len());
        for one in &keys {
            let code = self.payloads.recode(&one.outcome);
            let code = code.map_err(|_| KeyError::Codec)?;
            let code = code.unwrap_or_else(|| one.outcome.clone());
            if one.outcome.len() > MAX_OUTCOME || code.len() > MAX_CODED {
                return Err(KeyError::TooLarge {
                    bytes: code.len(),
                    limit: MAX_OUTCOME,
                });
            }
            coded.push(code);
        }
        let mut state = self.lock();
        let held = |ticket: &Ticket, state: &mut super::State| {
            state.claim_of(ticket).is_some_and(|one| !one.completing)
        };
        if !keys.iter().all(|one| held(&one.ticket, &mut state)) {
            return Ok(None);
        }
        let mut entering = Vec::with_capacity(keys.len());
        for (one, outcome) in keys.into_iter().zip(coded) {
            let Some(claimed) = state.claim_of(&one.ticket) else {
                continue; // it was there a moment ago, under the same lock
            };
            claimed.completing = true;
            entering.push(Entering {
                ticket: one.ticket,
                body: claimed.body,
                before: claimed.before.take(),
                outcome: one.outcome,
                row: Row {
                    body: claimed.body,
                    since: one.ticket.since,
                    completed_at: now,
                    expires_at: now.after(one.ttl),
                    outcome,
                    chunks: 0,
                },
            });
        }
        Ok(Some(entering))
    }

    /// The keys are held as before.
    fn step_back(&self, entering: Vec<Entering>) {
        let mut state = self.lock();
        for one in entering {
            if let Some(claimed) = state.claim_of(&one.ticket) {
                claimed.completing = false;
                claimed.before = one.before;
            }
        }
    }

    /// The one write: the keys' own guards first.
    fn commit_of(&self, entering: &[Entering], with: &Commit) -> Commit {
        let mut commit = Commit {
            guards: Vec::with_capacity(entering.len() + with.guards.len()),
            changes: with.changes.clone(),
        };
        for one in entering {
            let key = one.ticket.key;
            commit.guards.push(Guard {
                key: notes::guarded_row(&self.namespace, key.as_bytes()),
                expected: one.before.as_ref().map(|before| before.bytes.clone()),
            });
            if let Some(before) = &one.before {
                let removal = before.row.removal(&self.namespace, key);
                commit.changes.notes.extend(removal);
            }
            let writing = rows::writing(&self.namespace, key, one.row.clone());
            commit.changes.notes.extend(writing);
        }
        commit.guards.extend(with.guards.iter().cloned());
        commit
    }
}
