//! The letters that wait for a run in memory.
//!
//! Owns their numbers, and which of them only the log holds yet. Never touches a file.

use bytes::Bytes;

use crate::store::Mail;

/// The letters to one run.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// Letters below this number were taken.
    pub(super) taken: u64,
    /// The number of the next letter.
    pub(super) next: u64,
    /// Those in between, in order.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    body: Bytes,
    /// The commit whose block holds it, if nothing else does.
    commit: Option<u64>,
}

impl Mailbox {
    /// Begins with numbers that the database has; the letters in between follow.
    pub(super) fn new(taken: u64, next: u64) -> Self {
        Self {
            taken,
            next,
            waiting: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a letter that lies in the database.
    pub(super) fn restore(&mut self, number: u64, body: Bytes) {
        self.waiting.push(Waiting {
            number,
            body,
            commit: None,
        });
        self.next = number + 1;
    }

    /// Adds a committed letter.
    pub(super) fn push(&mut self, number: u64, body: Bytes, commit: u64) {
        self.waiting.push(Waiting {
            number,
            body,
            commit: Some(commit),
        });
        self.next = number + 1;
    }

    /// Takes the letters below a number, and returns the commits that they no longer need.
    pub(super) fn take(&mut self, below: u64) -> Vec<u64> {
        self.taken = self.taken.max(below);
        // A block may tell that letters were taken whose own blocks are gone.
        self.next = self.next.max(below);
        let taken = self.waiting.partition_point(|mail| mail.number < below);
        let commits = self.waiting.drain(..taken).filter_map(|mail| mail.commit);
        commits.collect()
    }

    /// Returns the letters from a number on.
    pub(super) fn from(&self, from: u64) -> Vec<Mail> {
        let waiting = self.waiting.iter().filter(|mail| mail.number >= from);
        let mail = waiting.map(|mail| Mail {
            number: mail.number,
            body: mail.body.clone(),
        });
        mail.collect()
    }

    /// Returns the letters that only the log holds, which no longer needs to: they are
    /// about to be archived. With each comes the commit that it needed.
    pub(super) fn leave_log(&mut self) -> Vec<(Mail, u64)> {
        let waiting = self.waiting.iter_mut();
        let leaving = waiting.filter_map(|mail| {
            let commit = mail.commit.take()?;
            let letter = Mail {
                number: mail.number,
                body: mail.body.clone(),
            };
            Some((letter, commit))
        });
        leaving.collect()
    }

    /// Returns the oldest commit that a letter needs.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.waiting.iter().find_map(|mail| mail.commit)
    }
}
