//! Identity: what names a run and a step, for ever.
//!
//! Owns the two 128-bit ids, their text form and their derivation. A derived id
//! depends on *structure* alone (names, scopes, occurrences, business keys) and never
//! on input, time, attempt, machine or the order in which futures are polled. That is
//! why a step id can be handed to a payment API as its idempotency key: no retry, restart
//! or recompile changes it.
//!
//! The derivation is versioned. A run keeps the version it began with, and golden vectors
//! in `tests/format` freeze every version that was ever released.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::hashing::{Begun, HashContext, LANES};
use crate::key::Key;

/// The derivation that new runs begin with.
///
/// It covers the hash inputs below *and* the macro's rule for which source constructs open
/// a scope, because both decide an id.
pub(crate) const DERIVATION_VERSION: u16 = 1;

/// Crockford's base32 alphabet in lower case: no `i`, `l`, `o`, `u`.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Characters of a 128-bit id in base32 (130 bits, the top two always zero).
const TEXT_LEN: usize = 26;

/// Names one run of one workflow; shown as `run_` and 26 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId([u8; 16]);

/// Names one step of one run; shown as `step_` and 26 characters.
///
/// The same in every attempt, process and machine: hand it to the other side as the
/// idempotency key of what the step does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepId([u8; 16]);

/// Names one message of an outbox; shown as `msg_` and 26 characters.
///
/// Derived from the step (or the place in the workflow) that pushed it, the outbox and how many messages it pushed
/// there before: the same in every attempt and every delivery. Whoever receives it twice can tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MessageId([u8; 16]);

/// Says why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a {kind} id: expected `{prefix}` followed by {TEXT_LEN} characters of 0-9a-z without i, l, o, u"
)]
pub struct ParseIdError {
    text: String,
    kind: &'static str,
    prefix: &'static str,
}

impl ParseIdError {
    fn of(text: &str, kind: &'static str, prefix: &'static str) -> Self {
        Self {
            text: text.chars().take(64).collect(),
            kind,
            prefix,
        }
    }
}

macro_rules! id_text {
    ($id:ident, $prefix:literal, $kind:literal) => {
        impl $id {
            /// Rebuilds an id from its 16 bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// Returns the id's 16 bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let text = encode_base32(self.0);
                f.write_str($prefix)?;
                f.write_str(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
            }
        }

        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $id {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                text.strip_prefix($prefix)
                    .and_then(decode_base32)
                    .map(Self)
                    .ok_or_else(|| ParseIdError::of(text, $kind, $prefix))
            }
        }
    };
}

id_text!(RunId, "run_", "run");
id_text!(StepId, "step_", "step");
id_text!(MessageId, "msg_", "message");

/// Where the ids of runs without a key come from.
#[derive(Debug, Clone, Default)]
pub(crate) enum RunIds {
    /// Chance and the machine's clock.
    #[default]
    Random,
    /// A seed, a count and the engine's clock: the same ones in the same order, for tests.
    #[cfg_attr(
        not(feature = "testing"),
        expect(dead_code, reason = "made for tests only")
    )]
    Seeded { seed: u64, made: Arc<AtomicU64> },
}

impl RunIds {
    /// Makes a source that gives the same ids for the same seed.
    #[cfg(feature = "testing")]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::Seeded {
            seed,
            made: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Makes the next id, time-ordered.
    pub(crate) fn next(&self, now: Timestamp) -> RunId {
        let Self::Seeded { seed, made } = self else {
            return RunId::random();
        };
        let count = made.fetch_add(1, Ordering::Relaxed);
        let mut hash = Derivation::new(&SEEDED_CONTEXT);
        hash.field(&seed.to_le_bytes());
        hash.field(&count.to_le_bytes());
        let mut drawn = [0; 10];
        hash.stream().fill(&mut drawn);
        let millis = now.as_micros() / 1000;
        RunId(
            *uuid::Builder::from_unix_timestamp_millis(millis, &drawn)
                .as_uuid()
                .as_bytes(),
        )
    }
}

impl RunId {
    /// Makes the id of a run that was started without a key: random and time-ordered.
    pub(crate) fn random() -> Self {
        Self(*uuid::Uuid::now_v7().as_bytes())
    }

    /// Derives the id of a run that was started with a key.
    ///
    /// `generation` counts the runs a key has had; it is 0 until the key expires.
    pub(crate) fn derive(namespace: &str, workflow: &str, key: &str, generation: u64) -> Self {
        let mut hash = Derivation::new(&RUN_CONTEXT);
        hash.field(&DERIVATION_VERSION.to_le_bytes());
        hash.field(namespace.as_bytes());
        hash.field(workflow.as_bytes());
        hash.field(key.as_bytes());
        hash.field(&generation.to_le_bytes());
        Self(hash.finish())
    }

    /// Derives the id of a child run from the call that it belongs to, whose id has all of it: the
    /// parent, where the call stands, the workflow's name, occurrence or key.
    pub(crate) fn of_child(call: StepId) -> Self {
        let mut hash = Derivation::new(&CHILD_CONTEXT);
        hash.field(&DERIVATION_VERSION.to_le_bytes());
        hash.field(call.as_bytes());
        Self(hash.finish())
    }

    /// Derives the id of a run that continues others, from the first of them and how many came before it.
    pub(crate) fn of_line(first: Self, ordinal: u64) -> Self {
        let mut hash = Derivation::new(&LINE_CONTEXT);
        hash.field(&DERIVATION_VERSION.to_le_bytes());
        hash.field(first.as_bytes());
        hash.field(&ordinal.to_le_bytes());
        Self(hash.finish())
    }
}

/// What tells calls of one name in one scope apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discriminator<'a> {
    /// How many un-keyed calls of that name the scope made before this one.
    Occurrence(u64),
    /// A business key that the caller chose instead.
    Key(&'a str),
}

/// What kind of call an id is derived for, so that a timer named `x` and a step named `x`
/// never share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A `#[step]`.
    Step,
    /// A durable timer.
    Timer,
    /// A child workflow.
    Child,
    /// A message that the workflow's own code pushed.
    Message,
}

impl StepId {
    /// Derives the id of one call from where it stands.
    ///
    /// `scope` is the encoded scope path (see `context::scope`).
    pub(crate) fn derive(
        run: RunId,
        scope: &[u8],
        kind: CallKind,
        name: &str,
        which: Discriminator<'_>,
    ) -> Self {
        let mut hash = Derivation::of_call(run, scope, kind, name);
        match which {
            Discriminator::Occurrence(n) => {
                hash.field(OCCURRENCE);
                hash.field(&n.to_le_bytes());
            }
            Discriminator::Key(key) => {
                hash.field(b"key");
                hash.field(key.as_bytes());
            }
        }
        Self(hash.finish())
    }

    /// Derives the id that the outside world sees of all calls of a step under one idempotency key in
    /// one pass of a run, whatever scopes they stand in.
    ///
    /// `pass` is the scope element of the pass, empty in the first.
    pub(crate) fn keyed(run: RunId, pass: &str, name: &str, key: &str) -> Self {
        let mut hash = Derivation::new(&KEYED_CONTEXT);
        hash.field(&DERIVATION_VERSION.to_le_bytes());
        hash.field(run.as_bytes());
        hash.field(pass.as_bytes());
        hash.field(name.as_bytes());
        hash.field(key.as_bytes());
        Self(hash.finish())
    }

    /// Derives the id that the outside world sees of all calls of a step under one key that the runs of a
    /// namespace share. No run is in it: whoever takes a key over uses the same one.
    ///
    /// `generation` counts the outcomes that the key has had; it is 0 until the first one expires.
    pub(crate) fn shared(namespace: &str, name: &str, key: &str, generation: u64) -> Self {
        let mut hash = Derivation::new(&SHARED_CONTEXT);
        hash.field(&DERIVATION_VERSION.to_le_bytes());
        hash.field(namespace.as_bytes());
        hash.field(name.as_bytes());
        hash.field(key.as_bytes());
        hash.field(&generation.to_le_bytes());
        Self(hash.finish())
    }

    /// Derives a second key for a second effect inside the same step.
    ///
    /// A step that both charges and mails hands `step_id` to the payment API and
    /// `step_id.for_effect("mail")` to the mail API.
    #[must_use]
    pub fn for_effect(&self, effect: &str) -> Self {
        let mut hash = Derivation::new(&EFFECT_CONTEXT);
        hash.field(&self.0);
        hash.field(effect.as_bytes());
        Self(hash.finish())
    }
}

/// The ids of all un-keyed calls of one name in one scope: what they have in common is hashed once.
pub(crate) struct CallIds {
    run: RunId,
    begun: Begun,
    /// The ids from an occurrence on that were derived ahead: several take hardly longer than two.
    ahead: Option<(u64, [[u8; 16]; LANES])>,
}

/// From this occurrence on it is a loop, of which more calls are likely to come.
const A_LOOP: u64 = 4;

impl CallIds {
    /// Hashes what the ids have in common. `None` if that is so much that nothing is gained.
    pub(crate) fn new(run: RunId, scope: &[u8], kind: CallKind, name: &str) -> Option<Self> {
        let mut hash = Derivation::of_call(run, scope, kind, name);
        hash.field(OCCURRENCE);
        hash.put(&NUMBER_LEN);
        let begun = hash.begin()?;
        Some(Self {
            run,
            begun,
            ahead: None,
        })
    }

    /// The run whose calls they are.
    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    /// What [`StepId::derive`] gives for that occurrence.
    pub(crate) fn id(&mut self, occurrence: u64) -> StepId {
        let ahead = self.ahead.as_ref().and_then(|(first, ids)| {
            let at = occurrence.checked_sub(*first)?;
            ids.get(usize::try_from(at).ok()?)
        });
        if let Some(id) = ahead {
            return StepId(*id);
        }
        if occurrence >= A_LOOP
            && let Some(ids) = self.begun.end_with_next(occurrence)
        {
            self.ahead = Some((occurrence, ids));
            return StepId(ids[0]);
        }
        StepId(id_of(&self.begun.end_with(occurrence)))
    }
}

impl MessageId {
    /// Derives the id of a message from the step that pushed it: the one of that number, from 0, that it pushed
    /// into that outbox.
    pub(crate) fn derive(step: StepId, outbox: &str, number: u32) -> Self {
        let mut hash = Derivation::new(&MESSAGE_CONTEXT);
        hash.field(step.as_bytes());
        hash.field(outbox.as_bytes());
        hash.field(&number.to_le_bytes());
        Self(hash.finish())
    }
}

impl From<MessageId> for Key {
    fn from(id: MessageId) -> Self {
        id.to_string().into()
    }
}

static RUN_CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 run id");
static STEP_CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 step id");
static KEYED_CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 keyed step id");
static SHARED_CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 shared step id");
static CHILD_CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 child run id");
static LINE_CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 continued run id");
static EFFECT_CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 effect id");
static MESSAGE_CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 message id");
static SEEDED_CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 seeded run id");
static RANDOM_CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 random stream");

static SECRET_CONTEXT: HashContext = HashContext::new("workflow-runtime 2026-11 secret key");

/// What is kept of a secret key instead of its text: 128 bits that are derived from it, as ids are shown.
pub(crate) fn secret_text(key: &str) -> String {
    let mut hash = Derivation::new(&SECRET_CONTEXT);
    hash.field(key.as_bytes());
    let text = encode_base32(hash.finish());
    text.iter().map(|byte| char::from(*byte)).collect()
}

/// Returns the random stream of one scope of one run, to be read at any position.
pub(crate) fn random_stream(run: RunId, scope: &[u8]) -> blake3::OutputReader {
    let mut hash = Derivation::new(&RANDOM_CONTEXT);
    hash.field(&DERIVATION_VERSION.to_le_bytes());
    hash.field(run.as_bytes());
    hash.field(scope);
    hash.stream()
}

/// What stands before the number of a call that has no key.
const OCCURRENCE: &[u8] = b"occurrence";

/// The length of that number, as it stands before every field.
const NUMBER_LEN: [u8; 8] = 8_u64.to_le_bytes();

/// How many bytes of fields are gathered before they are hashed: more than nearly every call has.
const GATHERED: usize = 256;

/// A hash over fields that are each prefixed with their length, so that no two different
/// lists of fields ever feed it the same bytes.
///
/// The fields are gathered first: every call of every step derives an id, and feeding the hash a few
/// bytes at a time took longer than the hash itself.
struct Derivation {
    context: &'static HashContext,
    gathered: [u8; GATHERED],
    len: usize,
    /// What did not fit in there.
    hashed: Option<Box<blake3::Hasher>>,
}

impl Derivation {
    fn new(context: &'static HashContext) -> Self {
        Self {
            context,
            gathered: [0; GATHERED],
            len: 0,
            hashed: None,
        }
    }

    /// Begins with what the ids of all calls of a name in a scope have in common, with a key or without.
    fn of_call(run: RunId, scope: &[u8], kind: CallKind, name: &str) -> Self {
        let mut hash = Self::new(&STEP_CONTEXT);
        hash.field(&DERIVATION_VERSION.to_le_bytes());
        hash.field(run.as_bytes());
        hash.field(scope);
        hash.field(match kind {
            CallKind::Step => b"step",
            CallKind::Timer => b"timer",
            CallKind::Child => b"child",
            CallKind::Message => b"message",
        });
        hash.field(name.as_bytes());
        hash
    }

    fn field(&mut self, bytes: &[u8]) {
        self.put(&(bytes.len() as u64).to_le_bytes());
        self.put(bytes);
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        match self.gathered.get_mut(self.len..end) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len = end;
            }
            None => self.spill(bytes),
        }
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        let context = self.context;
        let hashed = self
            .hashed
            .get_or_insert_with(|| Box::new(context.hasher()));
        hashed.update(&self.gathered[..self.len]).update(bytes);
        self.len = 0;
    }

    fn finish(self) -> [u8; 16] {
        let hash = match self.hashed {
            None => self.context.hash(&self.gathered[..self.len]),
            Some(mut hash) => {
                let hash = hash.update(&self.gathered[..self.len]).finalize();
                *hash.as_bytes()
            }
        };
        id_of(&hash)
    }

    /// Begins hashes of what was gathered and a number. `None` if not all of it is still here.
    fn begin(&self) -> Option<Begun> {
        let gathered = &self.gathered[..self.len];
        self.hashed.is_none().then(|| self.context.begin(gathered))
    }

    fn stream(self) -> blake3::OutputReader {
        let mut hash = self
            .hashed
            .unwrap_or_else(|| Box::new(self.context.hasher()));
        hash.update(&self.gathered[..self.len]).finalize_xof()
    }
}

/// An id is the first half of a hash.
fn id_of(hash: &[u8; 32]) -> [u8; 16] {
    *hash.first_chunk().expect("32 bytes")
}

fn encode_base32(bytes: [u8; 16]) -> [u8; TEXT_LEN] {
    let value = u128::from_be_bytes(bytes);
    let mut text = [0; TEXT_LEN];
    for (i, slot) in text.iter_mut().enumerate() {
        let shift = 5 * (TEXT_LEN - 1 - i);
        *slot = ALPHABET[((value >> shift) & 31) as usize];
    }
    text
}

fn decode_base32(text: &str) -> Option<[u8; 16]> {
    if text.len() != TEXT_LEN {
        return None;
    }
    let mut value: u128 = 0;
    for (i, byte) in text.bytes().enumerate() {
        let digit = ALPHABET.iter().position(|&a| a == byte)? as u128;
        if i == 0 && digit > 7 {
            return None; // 26 characters hold 130 bits; the top two must be zero
        }
        value = (value << 5) | digit;
    }
    Some(value.to_be_bytes())
}

#[cfg(test)]
mod tests;
