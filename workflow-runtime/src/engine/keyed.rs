//! Who holds a key: the run that it names, for how long, and what becomes of another start.
//!
//! Owns the promise that is made when a key's run is started (how long the key names it, and whether it is
//! kept when the run does not complete), and the one rule by which a key goes on to its next generation:
//! lookup, expiry, increment and creation are one guarded commit. It never creates a run itself.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::generations::Generation;
use super::prepared::{EncodedCall, Naming};
use super::{EngineError, Shared, lines, notes};
use crate::call::Workflow;
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::key::Key;
use crate::store::{EndKind, Guard, NoteChange, NoteKey, Origin, RunEnd, RunHeader};

/// How long a key names its run after the run has ended, unless something else is said. Frozen: a run without
/// a promise on record was promised this.
pub(super) const DEFAULT_KEY_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// What becomes of a start whose key is held by a run with other input. With the same input it is always
/// given that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnConflict {
    /// It is refused with [`EngineError::Conflict`], which names the run that holds the key.
    #[default]
    Reject,
    /// It is given the run that holds the key, whose input is another one.
    ReturnExisting,
    /// It takes the key over: in one write the run that holds it is asked to cancel, and a new run is created,
    /// which begins when the old one has ended. A run that has ended already is not touched.
    Replace,
}

/// What becomes of a key whose run fails, is cancelled or aborts. A parked run has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnFailure {
    /// It goes on naming that run, until its time is over. [`Engine::retry`](super::Engine::retry) takes a failed
    /// run up again under the same step ids.
    #[default]
    Keep,
    /// The next start makes a new run, with new step ids: what the failed one did is not known to it. Only for
    /// workflows that did nothing, or undid it.
    Release,
}

/// What was promised for a key when its run was started. It holds for that run whatever later starts say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Promise {
    ttl: Duration,
    on_failure: OnFailure,
    /// How often the run was taken up again after it failed: who judged it as failed must look again.
    retries: u32,
}

/// A promise as its note keeps it. The order of fields is frozen.
#[derive(Serialize, Deserialize)]
struct PromiseNote {
    ttl_micros: u64,
    on_failure: u8,
    retries: u32,
}

impl Promise {
    /// What a run without a note was promised.
    const UNSAID: Self = Self {
        ttl: DEFAULT_KEY_TTL,
        on_failure: OnFailure::Keep,
        retries: 0,
    };

    /// For keys that the engine makes itself and never starts anew: they hold nothing once their run ended.
    pub(super) const NONE: Self = Self {
        ttl: Duration::ZERO,
        ..Self::UNSAID
    };

    pub(super) fn new(ttl: Duration, on_failure: OnFailure) -> Self {
        Self {
            ttl,
            on_failure,
            retries: 0,
        }
    }

    /// Until when a key names a run that ended like this; `None`: for ever.
    fn held_until(&self, end: RunEnd) -> Option<Timestamp> {
        match end.kind {
            EndKind::Continued => None,
            EndKind::Failed | EndKind::Cancelled | EndKind::Aborted
                if self.on_failure == OnFailure::Release =>
            {
                Some(Timestamp::default())
            }
            EndKind::Completed | EndKind::Failed | EndKind::Cancelled | EndKind::Aborted => {
                let early = seeded!(KeyExpiredEarly);
                Some(end.at.after(if early { self.ttl / 2 } else { self.ttl }))
            }
        }
    }

    fn holds(&self, end: RunEnd, now: Timestamp) -> bool {
        self.held_until(end).is_none_or(|until| now < until)
    }

    fn encode(&self) -> Bytes {
        notes::encode(&PromiseNote {
            ttl_micros: u64::try_from(self.ttl.as_micros()).unwrap_or(u64::MAX),
            on_failure: match self.on_failure {
                OnFailure::Keep => 0,
                OnFailure::Release => 1,
            },
            retries: self.retries,
        })
    }

    fn decode(run: RunId, bytes: Option<&Bytes>) -> Result<Self, EngineError> {
        let Some(bytes) = bytes else {
            return Ok(Self::UNSAID);
        };
        let unreadable = |problem: String| {
            EngineError::Key(format!(
                "what was promised for the key of {run} cannot be read: {problem}"
            ))
        };
        let note: PromiseNote = notes::decode(bytes).map_err(unreadable)?;
        Ok(Self {
            ttl: Duration::from_micros(note.ttl_micros),
            on_failure: match note.on_failure {
                0 => OnFailure::Keep,
                1 => OnFailure::Release,
                other => return Err(unreadable(format!("it says {other} of failures"))),
            },
            retries: note.retries,
        })
    }

    /// The note that keeps it, unless it is what a run without a note was promised.
    pub(super) fn note(&self, run: RunId) -> Option<NoteChange> {
        (*self != Self::UNSAID).then(|| NoteChange {
            key: note_key(run),
            value: Some(self.encode()),
        })
    }
}

/// Names the note of what was promised for the key of a run.
fn note_key(run: RunId) -> NoteKey {
    NoteKey::of_run(run, &[b"key"])
}

/// What a start says about its key.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeyOptions {
    pub(super) ttl: Option<Duration>,
    pub(super) on_failure: Option<OnFailure>,
    pub(super) on_conflict: Option<OnConflict>,
}

impl KeyOptions {
    /// Says whether something is asked for that only a key can do.
    pub(super) fn ask_for_a_key(&self) -> bool {
        self.ttl.is_some() || self.on_failure.is_some() || self.on_conflict.is_some()
    }

    /// What is promised to a run of a workflow: by the call, the workflow, or the engine.
    pub(super) fn promise<W: Workflow>(&self, shared: &Shared) -> Promise {
        let (definition, config) = (W::DEFINITION, &shared.services.config);
        Promise::new(
            self.ttl.or(definition.key_ttl).unwrap_or(config.key_ttl),
            self.on_failure
                .or(definition.on_failure)
                .unwrap_or(config.on_failure),
        )
    }
}

/// A key that a start asks for.
pub(super) struct Asked<'a> {
    key: &'a Key,
    promise: Promise,
    on_conflict: OnConflict,
}

impl<'a> Asked<'a> {
    pub(super) fn new<W: Workflow>(shared: &Shared, key: &'a Key, options: KeyOptions) -> Self {
        Self {
            key,
            promise: options.promise::<W>(shared),
            on_conflict: options.on_conflict.unwrap_or_default(),
        }
    }

    /// For a start that is refused if the key is held by a run with other input.
    pub(super) fn strictly(key: &'a Key, promise: Promise) -> Self {
        Self {
            key,
            promise,
            on_conflict: OnConflict::Reject,
        }
    }

    /// The id of the key's first run, which stands for the key.
    pub(super) fn first(&self, shared: &Shared, workflow: &str) -> RunId {
        RunId::derive(&shared.services.namespace, workflow, self.key.as_str(), 0)
    }
}

/// What a start finds under its key.
pub(super) enum Look {
    /// A run holds it, and the start does not take it over.
    Held {
        /// The run that the key names.
        header: Box<RunHeader>,
        /// The newest run of its line, which is itself unless it went on as a new one.
        newest: RunId,
        holding: Holding,
    },
    /// The start may create a run.
    Free(Terms),
}

/// How long a run holds its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// It has not ended.
    GoesOn,
    /// It has ended; until then, or for ever.
    Until(Option<Timestamp>),
}

/// On which terms a run is created.
pub(super) struct Terms {
    pub(super) naming: Naming,
    pub(super) guards: Vec<Guard>,
    pub(super) notes: Vec<NoteChange>,
    /// The run that is to be cancelled first.
    pub(super) replaces: Option<RunId>,
}

impl Terms {
    /// Those of a run without a key.
    pub(super) fn unkeyed(shared: &Shared) -> Self {
        Self {
            naming: Naming::unkeyed(shared.services.new_run_id()),
            guards: Vec::new(),
            notes: Vec::new(),
            replaces: None,
        }
    }
}

/// Looks at what a key names now, and decides what a start of it may do.
pub(super) async fn look(
    shared: &Shared,
    call: &EncodedCall,
    asked: &Asked<'_>,
) -> Result<Look, EngineError> {
    loop {
        if let Some(look) = look_once(shared, call, asked).await? {
            return Ok(look);
        }
    }
}

/// `None`: what was read does not fit together, because something changed meanwhile.
async fn look_once(
    shared: &Shared,
    call: &EncodedCall,
    asked: &Asked<'_>,
) -> Result<Option<Look>, EngineError> {
    let (workflow, key) = (&*call.workflow, asked.key.as_str());
    let first = asked.first(shared, workflow);
    // Together: most keys are in their first generation, and both reads may leave this thread.
    let (generation, found) = tokio::join!(
        Generation::of(shared, workflow, key),
        shared.store.header(first)
    );
    let generation = generation?;
    let namespace = &shared.services.namespace;
    let found = match generation.number {
        0 => found?,
        number => {
            let run = RunId::derive(namespace, workflow, key, number);
            shared.store.header(run).await?
        }
    };
    let terms = |number: u64, guards, replaces| {
        let naming = Naming::keyed(namespace, workflow, key, number);
        Terms {
            notes: asked.promise.note(naming.run).into_iter().collect(),
            naming,
            guards,
            replaces,
        }
    };
    let Some(header) = found else {
        let guards = vec![generation.guard];
        return Ok(Some(Look::Free(terms(generation.number, guards, None))));
    };
    let takes_over =
        header.input_digest != call.input_digest && asked.on_conflict == OnConflict::Replace;
    let mut guards = vec![generation.guard.clone()];
    // The key names a line, if the run went on as a new one: what counts is how the newest stands.
    let newest = match header.went_on() {
        false => header.clone(),
        true => match lines::newest_header(shared, header.run).await? {
            Some(newest) if !newest.went_on() => newest,
            _ => return Ok(None),
        },
    };
    let held = |holding| Look::Held {
        header: Box::new(header.clone()),
        newest: newest.run,
        holding,
    };
    let replaces = match newest.end() {
        None if takes_over => Some(newest.run),
        None if seeded!(SecondRunPerKey) => None,
        None => return Ok(Some(held(Holding::GoesOn))),
        Some(end) => {
            let (promise, guard) = promised(shared, header.run).await?;
            if promise.holds(end, shared.services.clock.now()) && !takes_over {
                let until = Holding::Until(promise.held_until(end));
                return Ok(Some(held(until)));
            }
            // The promise changes when a failed run is taken up again: only if the run has ended still, after the
            // promise was read, does the guard tell whether that happens from now on.
            let now = shared.store.header(newest.run).await?;
            if now.is_none_or(|now| now.end() != Some(end)) {
                return Ok(None);
            }
            guards.push(guard);
            None
        }
    };
    let mut terms = terms(generation.number + 1, guards, replaces);
    terms.notes.push(generation.moves_on());
    Ok(Some(Look::Free(terms)))
}

/// Reads what was promised for the key of a run, and a guard that it stays so.
async fn promised(shared: &Shared, run: RunId) -> Result<(Promise, Guard), EngineError> {
    let key = note_key(run);
    let expected = shared.store.note(key.clone()).await?;
    let promise = Promise::decode(run, expected.as_ref())?;
    Ok((promise, Guard { key, expected }))
}

/// The run that holds the key of a run: itself, or the first one of its line. `None` for others: the key of a child
/// only tells it from its siblings.
async fn holder(shared: &Shared, header: &RunHeader) -> Result<Option<RunHeader>, EngineError> {
    Ok(match header.origin {
        None => Some(header.clone()),
        Some(Origin::Continued(first)) => {
            let first = shared.store.header(first).await?;
            first.filter(|first| first.origin.is_none())
        }
        Some(_) => None,
    })
}

/// Says whether a run that has ended is still named by its key, and so must be kept.
pub(super) async fn is_named(shared: &Shared, header: &RunHeader) -> Result<bool, EngineError> {
    let Some(first) = holder(shared, header).await? else {
        return Ok(false);
    };
    let Some(key) = &first.key else {
        return Ok(false);
    };
    let Some(last) = lines::newest_header(shared, first.run).await? else {
        return Ok(false);
    };
    // Of a line the first run has the key and the last one what it came to.
    if header.run != first.run && header.run != last.run {
        return Ok(false);
    }
    let Some(end) = last.end() else {
        return Ok(true);
    };
    let header = &first;
    let generation = Generation::of(shared, &header.workflow, key).await?;
    let (namespace, number) = (&shared.services.namespace, generation.number);
    if RunId::derive(namespace, &header.workflow, key, number) != header.run {
        return Ok(false);
    }
    let (promise, _) = promised(shared, header.run).await?;
    Ok(promise.holds(end, shared.services.clock.now()))
}

/// The guard with which the key of a run that has ended goes on to its next generation because the run is deleted: a failed
/// one that is taken up again meanwhile holds its key. `None`: it does already, or its time has begun anew.
pub(super) async fn letting_go(
    shared: &Shared,
    header: &RunHeader,
) -> Result<Option<Guard>, EngineError> {
    // The promise changes with every revival: it is read before the look at how the run stands.
    let (_, guard) = promised(shared, header.run).await?;
    Ok((!is_named(shared, header).await?).then_some(guard))
}

/// Under which conditions a failed run is taken up again, and what is noted then: nobody may have given its key
/// to a newer run, and whoever is about to must look again. `None`: somebody has.
pub(super) async fn revival(
    shared: &Shared,
    header: &RunHeader,
) -> Result<Option<(Vec<Guard>, Vec<NoteChange>)>, EngineError> {
    let free = Ok(Some((Vec::new(), Vec::new())));
    let Some(header) = holder(shared, header).await? else {
        return free;
    };
    let Some(key) = &header.key else {
        return free;
    };
    let generation = Generation::of(shared, &header.workflow, key).await?;
    let (namespace, number) = (&shared.services.namespace, generation.number);
    if RunId::derive(namespace, &header.workflow, key, number) != header.run {
        return Ok(None);
    }
    let (mut promise, guard) = promised(shared, header.run).await?;
    promise.retries = promise.retries.saturating_add(1);
    let notes = promise.note(header.run).into_iter().collect();
    Ok(Some((vec![generation.guard, guard], notes)))
}

/// Hands hostile bytes to the readers of its notes; see `hostile`.
#[cfg(feature = "testing")]
pub(super) fn hostile(bytes: &[u8]) {
    let bytes = bytes::Bytes::copy_from_slice(bytes);
    let _ = Promise::decode(RunId::from_bytes([0; 16]), Some(&bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn ended(kind: EndKind) -> RunEnd {
        let at = Timestamp::from_micros(5_000_000);
        RunEnd { kind, at }
    }

    #[test]
    fn a_key_is_held_until_its_time_after_the_end_is_over() {
        let promise = Promise::new(DAY, OnFailure::Keep);
        for kind in [
            EndKind::Completed,
            EndKind::Failed,
            EndKind::Cancelled,
            EndKind::Aborted,
        ] {
            let end = ended(kind);
            let over = end.at.after(DAY);
            assert!(promise.holds(end, end.at), "{kind}");
            assert!(promise.holds(end, over.before(Duration::from_micros(1))));
            assert!(!promise.holds(end, over), "{kind}");
        }
    }

    #[test]
    fn only_a_run_that_did_not_complete_releases_its_key() {
        let promise = Promise::new(DAY, OnFailure::Release);
        let holds = |kind| promise.holds(ended(kind), ended(kind).at);
        assert!(holds(EndKind::Completed));
        assert!(holds(EndKind::Continued));
        assert!(!holds(EndKind::Failed));
        assert!(!holds(EndKind::Cancelled));
        assert!(!holds(EndKind::Aborted));
    }

    #[test]
    fn the_longest_time_is_for_ever() {
        let end = ended(EndKind::Completed);
        let promise = Promise::new(Duration::MAX, OnFailure::Keep);
        let kept = Promise::decode(RunId::from_bytes([3; 16]), Some(&promise.encode()));
        let far = Timestamp::from_micros(u64::MAX - 1);
        assert!(kept.expect("reads").holds(end, far));
    }

    #[test]
    fn the_bytes_of_a_promise_are_frozen() {
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let run = RunId::from_bytes([3; 16]);
        let promise = Promise {
            ttl: Duration::from_micros(300),
            on_failure: OnFailure::Release,
            retries: 7,
        };
        assert_eq!(hex(&promise.encode()), "01fb2c010107");
        let noted = promise.note(run).expect("it is not the usual one");
        assert_eq!(
            hex(noted.key.as_bytes()),
            "00030303030303030303030303030303030001\
             6b65790001"
        );
        let read = Promise::decode(run, noted.value.as_ref()).expect("reads");
        assert_eq!(read, promise);
        assert_eq!(
            hex(&Promise::NONE.encode()),
            "01000000",
            "what a tick is promised"
        );
        let usual = Promise::decode(run, None).expect("reads");
        assert_eq!(usual, Promise::new(DAY, OnFailure::Keep));
        assert_eq!(
            usual.note(run),
            None,
            "the usual promise costs no byte, and never changes"
        );
    }
}
