//! What is kept of a message: until it is relayed, between attempts, and while it is set aside.
//!
//! Owns the bytes of these notes, listed in `docs/journal-format.md`, and the messages that an attempt has pushed
//! before they are any. Never decides when they are written.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::engine::notes::{self, Space};
use crate::error::{Error, Result};
use crate::ids::{MessageId, RunId, StepId};
use crate::store::{NoteChange, NoteKey};

/// The most bytes of a message: what a note takes, less what stands around it, also when it is set aside.
pub(crate) const MAX_MESSAGE: usize = 240 * 1024;

/// The most bytes that one attempt may push: they are one write with its outcome.
const MAX_AT_ONCE: usize = 8 * 1024 * 1024;

/// A message on its way to the store.
#[derive(Debug)]
pub(crate) struct Pushed {
    namespace: Arc<str>,
    outbox: Box<str>,
    id: MessageId,
    /// Which one of its record it is, among those to the same outbox.
    number: u32,
    payload: Bytes,
}

impl Pushed {
    pub(crate) fn new(
        namespace: &Arc<str>,
        outbox: &str,
        step: StepId,
        number: u32,
        payload: Bytes,
    ) -> Self {
        Self {
            namespace: namespace.clone(),
            outbox: outbox.into(),
            id: MessageId::derive(step, outbox, number),
            number,
            payload,
        }
    }

    pub(crate) fn id(&self) -> MessageId {
        self.id
    }

    pub(crate) fn outbox(&self) -> &str {
        &self.outbox
    }

    pub(crate) fn bytes(&self) -> usize {
        self.payload.len()
    }

    /// The note that it becomes with a record of a run.
    pub(crate) fn into_note(self, run: RunId, seq: u64, pushed_at: Timestamp) -> NoteChange {
        let place = Place {
            run,
            seq,
            number: self.number,
        };
        let note = MessageNote {
            id: self.id,
            pushed_at,
            payload: self.payload,
        };
        NoteChange {
            key: place.message(&self.namespace, &self.outbox),
            value: Some(notes::encode(&note)),
        }
    }
}

/// What an attempt has pushed so far.
#[derive(Debug, Default)]
pub(crate) struct Pushing {
    list: Mutex<Vec<Pushed>>,
    /// Whether there is any: hardly an attempt has one, and every one is asked.
    any: AtomicBool,
}

impl Pushing {
    fn list(&self) -> MutexGuard<'_, Vec<Pushed>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message, made of its number among those to the same outbox.
    pub(crate) fn push(&self, make: impl FnOnce(u32) -> Pushed, outbox: &str) -> Result<MessageId> {
        let mut list = self.list();
        let before = list.iter().filter(|one| *one.outbox == *outbox).count();
        let message = make(u32::try_from(before).unwrap_or(u32::MAX));
        let bytes = list.iter().map(Pushed::bytes).sum::<usize>() + message.bytes();
        if bytes > MAX_AT_ONCE {
            return Err(Error::fatal(format!(
                "the step has pushed {bytes} bytes, and may push {MAX_AT_ONCE}: push less in one step"
            )));
        }
        let id = message.id;
        list.push(message);
        self.any.store(true, Ordering::Release);
        Ok(id)
    }

    pub(crate) fn take(&self) -> Vec<Pushed> {
        match self.any.load(Ordering::Acquire) {
            true => std::mem::take(&mut *self.list()),
            false => Vec::new(),
        }
    }
}

/// Where a message stands in its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) run: RunId,
    /// The number of the record that it was written with.
    pub(super) seq: u64,
    /// Which one of that record it is.
    pub(super) number: u32,
}

impl Place {
    fn key(&self, space: Space, namespace: &str, outbox: &str) -> NoteKey {
        let (seq, number) = (self.seq.to_be_bytes(), self.number.to_be_bytes());
        let parts: [&[u8]; 4] = [outbox.as_bytes(), self.run.as_bytes(), &seq, &number];
        notes::key(space, namespace, &parts)
    }

    pub(super) fn message(&self, namespace: &str, outbox: &str) -> NoteKey {
        self.key(Space::Message, namespace, outbox)
    }

    pub(super) fn tries(&self, namespace: &str, outbox: &str) -> NoteKey {
        self.key(Space::MessageTries, namespace, outbox)
    }

    /// Behind all messages of a run.
    pub(super) fn behind(run: RunId) -> Self {
        Self {
            run,
            seq: u64::MAX,
            number: u32::MAX,
        }
    }

    /// Reads it from the key of a message.
    pub(super) fn of(key: &NoteKey) -> Option<Self> {
        let [_, _, run, seq, number] = <[Vec<u8>; 5]>::try_from(key.parts()?).ok()?;
        Some(Self {
            run: RunId::from_bytes(run.try_into().ok()?),
            seq: u64::from_be_bytes(seq.try_into().ok()?),
            number: u32::from_be_bytes(number.try_into().ok()?),
        })
    }
}

/// The prefix of all messages of an outbox.
pub(super) fn messages(namespace: &str, outbox: &str) -> NoteKey {
    notes::key(Space::Message, namespace, &[outbox.as_bytes()])
}

/// The prefix of all messages of a run in an outbox.
pub(super) fn messages_of(namespace: &str, outbox: &str, run: RunId) -> NoteKey {
    let parts: [&[u8]; 2] = [outbox.as_bytes(), run.as_bytes()];
    notes::key(Space::Message, namespace, &parts)
}

/// The prefix of all messages of an outbox that were set aside.
pub(super) fn all_aside(namespace: &str, outbox: &str) -> NoteKey {
    notes::key(Space::MessageAside, namespace, &[outbox.as_bytes()])
}

/// Names a message that was set aside.
pub(super) fn aside(namespace: &str, outbox: &str, id: MessageId) -> NoteKey {
    let parts: [&[u8]; 2] = [outbox.as_bytes(), id.as_bytes()];
    notes::key(Space::MessageAside, namespace, &parts)
}

/// Says whether a note is a message that waits to be relayed.
pub(crate) fn is_message(change: &NoteChange) -> bool {
    change.key.as_bytes().first() == Some(&(Space::Message as u8)) && change.value.is_some()
}

/// A message. On disk: the order of fields is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MessageNote {
    pub(super) id: MessageId,
    pub(super) pushed_at: Timestamp,
    pub(super) payload: Bytes,
}

/// Failed attempts at relaying a message. On disk: the order of fields is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct TriesNote {
    pub(super) failed: u32,
    pub(super) next_at: Timestamp,
}

/// A message that was set aside. On disk: the order of fields is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AsideNote {
    pub(super) place: Place,
    pub(super) message: MessageNote,
    pub(super) failed: u32,
    pub(super) since: Timestamp,
    /// What the last attempt failed with, as a payload: it may quote the message.
    pub(super) problem: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn the_bytes_of_messages_their_tries_and_those_set_aside_are_frozen() {
        let run = RunId::from_bytes([0xa1; 16]);
        let pushed = Pushed {
            namespace: "n".into(),
            outbox: "o".into(),
            id: MessageId::from_bytes([0xb2; 16]),
            number: 1,
            payload: Bytes::from_static(b"hi"),
        };
        let note = pushed.into_note(run, 300, Timestamp::from_micros(9));
        assert!(is_message(&note));
        let place = "6e00016f0001".to_owned()
            + &"a1".repeat(16)
            + "000100ff00ff00ff00ff00ff00ff012c000100ff00ff00ff010001";
        assert_eq!(hex(note.key.as_bytes()), format!("80{place}"));
        let value = note.value.expect("set");
        assert_eq!(hex(&value), format!("01{}09026869", "b2".repeat(16)));
        let read = Place::of(&note.key).expect("a place");
        assert_eq!((read.run, read.seq, read.number), (run, 300, 1));
        assert_eq!(hex(read.tries("n", "o").as_bytes()), format!("81{place}"));
        let tries = TriesNote {
            failed: 3,
            next_at: Timestamp::from_micros(300),
        };
        assert_eq!(hex(&notes::encode(&tries)), "0103fb2c01");
        let message: MessageNote = notes::decode(&value).expect("reads");
        let put_aside = AsideNote {
            place: read,
            message,
            failed: 3,
            since: Timestamp::from_micros(10),
            problem: Bytes::from_static(b"no"),
        };
        assert_eq!(
            hex(&notes::encode(&put_aside)),
            format!(
                "01{}fb2c0101{}09026869030a026e6f",
                "a1".repeat(16),
                "b2".repeat(16)
            )
        );
        let id = put_aside.message.id;
        assert_eq!(
            hex(aside("n", "o", id).as_bytes()),
            format!("826e00016f0001{}0001", "b2".repeat(16))
        );
    }

    #[test]
    fn messages_of_a_run_sort_by_their_records_and_end_before_the_next_run() {
        let run = |n| RunId::from_bytes([n; 16]);
        let key = |run, seq, number| Place { run, seq, number }.message("n", "o");
        let keys = [
            key(run(1), 2, 0),
            key(run(1), 2, 1),
            key(run(1), 255, 0),
            key(run(1), 256, 0),
            Place::behind(run(1)).message("n", "o"),
            key(run(2), 0, 0),
        ];
        assert!(keys.is_sorted(), "{keys:?}");
    }

    #[test]
    fn an_attempt_pushes_so_much_and_no_more() {
        let pushing = Pushing::default();
        let large = Bytes::from(vec![0; MAX_AT_ONCE / 2]);
        let step = StepId::from_bytes([1; 16]);
        let push = |outbox: &'static str| {
            let make = |number| Pushed::new(&"n".into(), outbox, step, number, large.clone());
            pushing.push(make, outbox)
        };
        assert_eq!(push("a").expect("fits"), MessageId::derive(step, "a", 0));
        assert_eq!(push("b").expect("fits"), MessageId::derive(step, "b", 0));
        let refused = push("a").expect_err("too much");
        assert!(refused.is_fatal() && refused.to_string().contains("push less"));
        assert_eq!(pushing.take().len(), 2);
    }
}
