//! Events of at-least-once sources as keys: how they are named, and what is kept of one that was accepted.
//!
//! Owns the kind of these keys, the bytes of the outcome of an event that caused a run or a letter, and
//! [`KeyInbox`], which guards work on any place for keys. What an event causes is the engine's business
//! (`engine/inbox`).

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::{KeyId, KeyStore, Once};
use crate::ids::RunId;
use crate::key::Key;

/// The kind of the keys of events: they meet no others.
pub(super) const EVENT_KIND: &str = "inbox";

/// The version of the outcome's bytes, the same as of [`Once`]: both may stand under an event.
const FORMAT: u8 = 1;

/// The event caused a run, or a letter to one; the run's id follows. The tags below it are those of [`Once`].
pub(super) const CAUSED: u8 = 2;

/// How long events are remembered unless an inbox says otherwise: longer than any source that we know of
/// delivers again by itself.
pub(crate) const KEEP_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The name of an event where keys live.
pub(crate) fn event_key(inbox: &str, event: &Key) -> KeyId {
    KeyId::derive(EVENT_KIND, inbox, event)
}

/// The outcome of an event that caused a run, or a letter to one.
pub(crate) fn caused(run: RunId) -> Bytes {
    let mut out = BytesMut::with_capacity(2 + run.as_bytes().len());
    out.put_slice(&[FORMAT, CAUSED]);
    out.put_slice(run.as_bytes());
    out.freeze()
}

/// The run that an outcome names; `None` if it names none.
pub(crate) fn caused_run(outcome: &[u8]) -> Option<RunId> {
    match outcome {
        [FORMAT, CAUSED, run @ ..] => run.try_into().ok().map(RunId::from_bytes),
        _ => None,
    }
}

/// An inbox on any place for keys, for consumers that have no engine or keep their keys elsewhere.
///
/// It guards work, and cannot start runs or send signals: only in an engine's own store are an event and what it
/// causes one write. See [`Engine::inbox`](crate::Engine::inbox).
///
/// ```
/// use workflow_runtime::idempotency::KeyInbox;
/// # use workflow_runtime::{Engine, Error};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = Engine::builder().open_in_memory().await?;
/// # let keys = engine.keys(); // or Redis
/// let inbox = KeyInbox::new(&keys, "stripe");
/// for _delivery in 0..2 {
///     let handled = inbox.accept("evt_1").run(|| async { Ok::<_, Error>(7) });
///     assert_eq!(handled.await?, 7); // the second time nothing is done
/// }
/// # Ok(())
/// # }
/// ```
pub struct KeyInbox<'k> {
    keys: &'k dyn KeyStore,
    name: Box<str>,
    keep_for: Duration,
}

impl<'k> KeyInbox<'k> {
    /// Makes an inbox of that name; events of other inboxes are others, whatever their ids.
    pub fn new(keys: &'k dyn KeyStore, name: &str) -> Self {
        Self {
            keys,
            name: name.into(),
            keep_for: KEEP_FOR,
        }
    }

    /// Sets how long an event is remembered after it was handled; 30 days otherwise.
    #[must_use]
    pub fn keep_for(mut self, time: Duration) -> Self {
        self.keep_for = time;
        self
    }

    /// Takes an event: [`Once::run`] does its work unless that was done.
    pub fn accept(&self, event: impl Into<Key>) -> Once<'k> {
        let once = Once::new(self.keys, event).of_event(&self.name);
        once.ttl(self.keep_for)
    }
}

impl std::fmt::Debug for KeyInbox<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyInbox({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_and_the_outcome_of_an_event_are_frozen() {
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let run = RunId::from_bytes([0xa5; 16]);
        assert_eq!(hex(&caused(run)), format!("0102{}", "a5".repeat(16)));
        assert_eq!(caused_run(&caused(run)), Some(run));
        assert_eq!(caused_run(&[1, 0, 7]), None);
        assert_eq!(caused_run(&caused(run)[..17]), None);
        assert_eq!(
            event_key("stripe", &Key::from("evt_1")).to_string(),
            "c02a75ede4bae65c8e5844f6a32d658a933f87dc267f6447656cca5a4d41d4c3"
        );
    }
}
