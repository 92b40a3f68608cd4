//! Letters: from the run's mailbox into its journal, and from there to the code.
//!
//! Owns the way of a letter: read from the store when somebody says that one came, appended as a
//! record once the recorded outcomes are used up, delivered when that is durable. Recorded ones
//! are delivered the same way. Never writes a letter to anybody but the run's parent.

use std::collections::VecDeque;
use std::hint::cold_path;
use std::task::{Context, Poll};

use super::portions::PORTION;
use super::{Driver, Exit};
use crate::clock::Timestamp;
use crate::engine::obstacle::Obstacle;
use crate::journal::{ChildFinished, End, Event};
use crate::store::{BoxFuture, Letter, Mail, ParkReason, StoreError, StoreResult};

/// Letters on their way into the journal.
pub(super) struct Mailbox {
    waiting: VecDeque<Mail>,
    /// The number of the next letter to be read.
    next: u64,
    reading: Option<BoxFuture<'static, StoreResult<Vec<Mail>>>>,
}

impl Mailbox {
    /// Begins with what waited when the run was claimed.
    pub(super) fn new(mail: Vec<Mail>, next: u64) -> Self {
        Self {
            next,
            waiting: mail.into(),
            reading: None,
        }
    }

    pub(super) fn has_letters(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_none()
    }
}

impl Driver {
    /// Reads letters that have come.
    pub(super) fn collect_mail(&mut self, cx: &mut Context<'_>) -> Result<(), StoreError> {
        loop {
            if self.mailbox.reading.is_none() {
                if !self.core.signal.take_mail() {
                    return Ok(());
                }
                cold_path();
                let (store, run) = (self.writer.store.clone(), self.writer.run);
                let from = self.mailbox.next;
                self.mailbox.reading = Some(Box::pin(async move { store.mail(run, from).await }));
            }
            let Some(reading) = &mut self.mailbox.reading else {
                return Ok(());
            };
            let Poll::Ready(read) = reading.as_mut().poll(cx) else {
                return Ok(());
            };
            self.mailbox.reading = None;
            for mail in read? {
                if mail.number >= self.mailbox.next {
                    self.mailbox.next = mail.number + 1;
                    self.mailbox.waiting.push_back(mail);
                    self.core.letters_read(1);
                }
            }
        }
    }

    /// Puts letters into the journal. Says whether there were any.
    pub(super) fn journal_mail(&mut self) -> Result<bool, Exit> {
        if self.mailbox.waiting.is_empty() {
            return Ok(false);
        }
        let mut bytes = 0;
        while let Some(mail) = self.mailbox.waiting.pop_front() {
            if bytes > 0 && bytes + mail.body.len() > PORTION {
                self.write_outbox(None);
                bytes = 0;
            }
            bytes += mail.body.len();
            let event = Event::from_letter(&mail.body).map_err(|error| {
                let report = format!("letter {} to it cannot be read: {error}", mail.number);
                self.park(Obstacle::new(ParkReason::Undecodable, report))
            })?;
            self.core.annotate(&event);
            self.writer.taken = mail.number + 1;
        }
        self.write_outbox(None);
        Ok(true)
    }

    /// Delivers what came by letter.
    pub(super) fn receive(&mut self, event: Event, time: Timestamp) {
        match event {
            Event::SignalReceived(signal) => {
                self.core.receive_signal(time, &signal.name, signal.payload);
            }
            Event::ChildFinished(child) => {
                self.core.finish_child(time, child.call, child.end);
            }
            Event::CancelRequested(cancel) => self.cancel(cancel),
            _ => {} // nothing else comes by letter
        }
    }

    /// Has the run that this one is the child of told how it ended.
    pub(super) fn tell_parent(&self, end: &End) {
        if let Some(parent) = &self.parent {
            let finished = Event::ChildFinished(ChildFinished {
                call: parent.call,
                child: self.core.run(),
                end: end.clone(),
            });
            self.core.post(Letter {
                to: parent.run,
                body: finished.to_letter(),
            });
        }
    }
}
