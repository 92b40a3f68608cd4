//! Between a driver and its store: what the calls made goes there, and what is durable comes back.
//!
//! Owns when the outbox is written, which append carries what, and the order in which acknowledgements count. It never
//! delivers anything, and it never waits.

use std::hint::cold_path;
use std::task::{Context, Poll};

use super::portions;
use super::{Driver, Exit, Stage};
use crate::engine::writer::Commit;
use crate::journal::{Draft, End};
use crate::store::{Changes, Durability, StoreError};

impl Driver {
    /// Takes what has come from the store.
    pub(super) fn collect(&mut self, cx: &mut Context<'_>) -> Result<(), Exit> {
        let collected = self.collect_commits(cx);
        let collected = collected.and_then(|()| self.collect_mail(cx));
        if let Err(error) = collected {
            cold_path();
            return Err(Exit::StoreFailed(error));
        }
        self.collect_owed(cx)
    }

    /// Takes the acknowledgements that have come, in order.
    fn collect_commits(&mut self, cx: &mut Context<'_>) -> Result<(), StoreError> {
        while let Some(commit) = self.commits.front_mut() {
            match commit.ack.poll(cx) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => {
                    cold_path();
                    return Err(error);
                }
                Poll::Ready(Ok(())) => {
                    if let Some(commit) = self.commits.pop_front() {
                        self.take_commit(commit);
                    }
                    if self.commits.is_empty() {
                        self.commits.clear(); // the next one lies where this one did, not behind it
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes an append that is durable.
    fn take_commit(&mut self, commit: Commit) {
        if let Some(first) = commit.first {
            self.durable.push_back(first);
        }
        self.writer.answered(commit.ack);
        let (end, durability) = (commit.end, commit.durability);
        let Some(more) = commit.more else {
            if self.buffers {
                self.core.acknowledged(end, durability, &[]);
            }
            return;
        };
        cold_path();
        self.durable.extend(more.others);
        if let Some(unmarked) = more.unmarked {
            unmarked.removed();
        }
        if self.buffers || !more.announced.is_empty() {
            self.core.acknowledged(end, durability, &more.announced);
        }
        if let (Some(news), Some(engine)) = (more.news, self.core.services.engine()) {
            engine.spread(news);
        }
    }

    /// Hands what the calls made to the store; not before the recorded outcomes are used up, so that
    /// code that does not fit them leaves no trace.
    pub(super) fn write_outbox(&mut self, end: Option<&End>) {
        if self.stage == Stage::Replaying {
            return;
        }
        if let Some(end) = end {
            self.tell_parent(end);
            self.core.let_go_tokens();
        }
        let (changes, sync) = self.core.take_outgoing(&mut self.drafts);
        if let Some(end) = end {
            self.drafts.push(Draft::of(&end.clone().into_event()));
        }
        let achieved = self.stage != Stage::Recovering && self.drafts.iter().any(Draft::is_own);
        self.append(changes, sync, achieved);
    }

    /// Appends what there is. If the run has achieved something, its mark goes with it.
    pub(super) fn append(&mut self, mut changes: Option<Box<Changes>>, sync: bool, achieved: bool) {
        let unmarked = self.marked.take_if(|_| achieved);
        if let Some(unmarked) = &unmarked {
            let changes = changes.get_or_insert_default();
            changes.notes.push(unmarked.removal());
        }
        if let [draft] = &self.drafts[..]
            && draft.is_plain()
            && !sync
            && changes.is_none()
            && unmarked.is_none()
            && let Some(draft) = self.drafts.pop()
        {
            let commit = self.writer.append_plain(draft);
            self.expect_commit(commit);
            self.note_length();
        } else if sync || !self.drafts.is_empty() || changes.is_some() {
            cold_path();
            let taken = std::mem::take(&mut self.writer.taken);
            if changes.is_some() || self.drafts.len() > 1 {
                for (mut drafts, changes) in portions::ahead(&mut self.drafts, &mut changes) {
                    let commit = self.writer.append(&mut drafts, changes, false, None);
                    self.expect_commit(commit);
                }
            }
            self.writer.taken = taken; // with the letters, which are never ahead
            let commit = self
                .writer
                .append(&mut self.drafts, changes, sync, unmarked);
            self.expect_commit(commit);
            self.note_length();
        }
    }

    pub(super) fn expect_commit(&mut self, commit: Commit) {
        // Where everything is synced, there is no account to keep of what is not.
        self.buffers |= commit.durability == Durability::Buffered;
        if self.buffers {
            self.core.appended(commit.end, commit.durability);
        }
        self.commits.push_back(commit);
    }
}
