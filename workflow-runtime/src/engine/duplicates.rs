//! Duplicates on record: what was asked for again and not done again.
//!
//! Owns the counts per run (or other subject) and kind, and the newest ones with time, origin and whether they
//! asked for the same. Whoever suppresses a duplicate calls [`Recorder::saw`], which neither waits nor writes:
//! what was seen is written by a task, at most once a second for all runs together, and when the engine is
//! shut down. A crash forgets what was seen since. It never decides what a duplicate is.

mod note;
mod write;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

pub(super) use self::write::{flush, of_run, serve};
use super::{Engine, EngineError};
use crate::clock::{Clock, Timestamp};
use crate::ids::RunId;

/// How many duplicates of a subject are kept; of older ones only the count.
pub(crate) const KEPT: usize = 16;

/// The most bytes of an origin that are kept.
const MAX_ORIGIN: usize = 128;

/// Runs of which some may wait to be written; beyond that duplicates are only counted for the whole engine. They
/// are that many only if the store does not take them.
const MAX_PENDING: usize = 64 * 1024;

/// How many kinds there are.
const KINDS: usize = 5;

/// What was asked for again. The numbers are on disk: they never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum DuplicateKind {
    /// A start whose key named a run.
    Start = 0,
    /// A signal whose key was used before.
    Signal = 1,
    /// A step whose outcome was known under its key.
    Step = 2,
    /// An event that was accepted before.
    Event = 3,
    /// A request that was answered, or is being answered.
    Request = 4,
}

impl DuplicateKind {
    const ALL: [Self; KINDS] = [
        Self::Start,
        Self::Signal,
        Self::Step,
        Self::Event,
        Self::Request,
    ];
}

impl fmt::Display for DuplicateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Signal => "signal",
            Self::Step => "step",
            Self::Event => "event",
            Self::Request => "request",
        })
    }
}

/// Whether a duplicate asked for the same as the first one. The numbers are on disk: they never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum DuplicateBody {
    /// For the same.
    Same = 0,
    /// For something else under the same key.
    Other = 1,
    /// Nobody knows: of the first one no digest was kept.
    Unknown = 2,
}

impl DuplicateBody {
    pub(crate) fn same(same: bool) -> Self {
        match same {
            true => Self::Same,
            false => Self::Other,
        }
    }
}

/// One duplicate that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Duplicate {
    /// When.
    pub at: Timestamp,
    /// Of what.
    pub kind: DuplicateKind,
    /// Who asked: what was given as the origin, or the line of code.
    pub origin: Box<str>,
    /// Whether it asked for the same.
    pub body: DuplicateBody,
}

/// The duplicates that were seen of one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Duplicates {
    counts: [u64; KINDS],
    recent: VecDeque<Duplicate>,
}

impl Duplicates {
    /// Returns how many there were of one kind.
    pub fn count(&self, kind: DuplicateKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Returns how many there were.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the newest ones, 16 at most, the newest last.
    pub fn recent(&self) -> impl ExactSizeIterator<Item = &Duplicate> {
        self.recent.iter()
    }

    /// Adds what was seen after this.
    fn then(&mut self, later: Self) {
        for (count, more) in self.counts.iter_mut().zip(later.counts) {
            *count += more;
        }
        self.recent.extend(later.recent);
        let over = self.recent.len().saturating_sub(KEPT);
        self.recent.drain(..over);
    }
}

/// Where a duplicate came from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Line(&'static Location<'static>),
    Named(Arc<str>),
}

impl Source {
    /// Names a source; a long name is cut.
    pub(crate) fn named(name: &str) -> Self {
        let cut = name.floor_char_boundary(MAX_ORIGIN);
        Self::Named(name[..cut].into())
    }

    fn text(&self) -> Box<str> {
        match self {
            Self::Line(line) => format!("{}:{}", line.file(), line.line()).into(),
            Self::Named(name) => (&**name).into(),
        }
    }
}

/// What was seen and is not written yet, and the counts of the engine.
pub(crate) struct Recorder {
    counts: [AtomicU64; KINDS],
    pending: Mutex<BTreeMap<RunId, Pending>>,
    clock: Clock,
    /// Told when there is something to write.
    seen: Notify,
    /// The right to write, and to read what was written.
    writing: Semaphore,
}

#[derive(Debug, Default)]
struct Pending {
    counts: [u64; KINDS],
    recent: VecDeque<(Timestamp, DuplicateKind, Source, DuplicateBody)>,
}

impl Recorder {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            counts: Default::default(),
            pending: Mutex::default(),
            seen: Notify::new(),
            writing: Semaphore::new(1),
        }
    }

    /// Records a duplicate that was not done again. Neither waits nor writes.
    pub(crate) fn saw(
        &self,
        run: RunId,
        kind: DuplicateKind,
        source: &Source,
        body: DuplicateBody,
    ) {
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
        let at = self.clock.now();
        let mut all = self.pending();
        let is_first = all.is_empty();
        if all.len() >= MAX_PENDING && !all.contains_key(&run) {
            return;
        }
        let pending = all.entry(run).or_default();
        pending.counts[kind as usize] += 1;
        if pending.recent.len() == KEPT {
            pending.recent.pop_front();
        }
        pending.recent.push_back((at, kind, source.clone(), body));
        drop(all);
        if is_first {
            self.seen.notify_one();
        }
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<RunId, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to write, and to delete what is written about.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.writing.acquire().await.ok()
    }

    /// Forgets what was seen of runs that are about to be deleted.
    pub(super) fn forget(&self, runs: &[RunId]) {
        let mut pending = self.pending();
        for run in runs {
            pending.remove(run);
        }
    }
}

impl Pending {
    fn read(&self) -> Duplicates {
        let recent = self
            .recent
            .iter()
            .map(|(at, kind, source, body)| Duplicate {
                at: *at,
                kind: *kind,
                origin: source.text(),
                body: *body,
            });
        Duplicates {
            counts: self.counts,
            recent: recent.collect(),
        }
    }

    /// Adds what was seen after this.
    fn then(&mut self, later: Self) {
        for (count, more) in self.counts.iter_mut().zip(later.counts) {
            *count += more;
        }
        self.recent.extend(later.recent);
        let over = self.recent.len().saturating_sub(KEPT);
        self.recent.drain(..over);
    }
}

impl Engine {
    /// Returns the duplicates that were seen of a run: how many starts, signals and others asked for it again,
    /// when, from where, and whether they asked for the same.
    ///
    /// They are written at most once a second: a crash may forget those of the last one.
    ///
    /// # Errors
    ///
    /// If there is no such run or the store fails.
    pub async fn duplicates(&self, run: RunId) -> Result<Duplicates, EngineError> {
        of_run(self.shared(), run).await
    }

    /// Returns how many duplicates of one kind this engine has seen since it was opened, of all runs.
    pub fn duplicates_seen(&self, kind: DuplicateKind) -> u64 {
        let counts = &self.shared().duplicates.counts;
        counts[kind as usize].load(Ordering::Relaxed)
    }
}

/// Hands hostile bytes to the readers of its notes; see `hostile`.
#[cfg(feature = "testing")]
pub(super) fn hostile(bytes: &[u8]) {
    let _ = note::decode(bytes);
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn run(n: u64) -> RunId {
        let mut bytes = [7; 16];
        bytes[8..].copy_from_slice(&n.to_be_bytes());
        RunId::from_bytes(bytes)
    }

    fn see(recorder: &Recorder, run: RunId, kind: DuplicateKind, origin: &str) {
        recorder.saw(run, kind, &Source::named(origin), DuplicateBody::Same);
    }

    fn origins(duplicates: &Duplicates) -> Vec<&str> {
        let recent = duplicates.recent().map(|duplicate| &*duplicate.origin);
        recent.collect()
    }

    #[test]
    fn what_could_not_be_written_is_counted_with_what_was_seen_meanwhile() {
        let recorder = Recorder::new(Clock::default());
        for n in 0..KEPT {
            see(
                &recorder,
                run(1),
                DuplicateKind::Start,
                &format!("start {n}"),
            );
        }
        let mut taken = recorder.pending().remove(&run(1)).expect("is there");
        for n in 0..3 {
            see(
                &recorder,
                run(1),
                DuplicateKind::Signal,
                &format!("signal {n}"),
            );
        }
        taken.then(recorder.pending().remove(&run(1)).expect("is there"));
        let read = taken.read();
        assert_eq!(read.count(DuplicateKind::Start), KEPT as u64);
        assert_eq!(read.count(DuplicateKind::Signal), 3);
        assert_eq!(read.recent().len(), KEPT, "the newest");
        assert_eq!(origins(&read)[0], "start 3");
        assert_eq!(origins(&read)[KEPT - 1], "signal 2");
    }

    #[test]
    fn beyond_a_number_of_runs_duplicates_of_others_are_only_counted() {
        let recorder = Recorder::new(Clock::default());
        for n in 0..MAX_PENDING as u64 + 2 {
            see(&recorder, run(n), DuplicateKind::Start, "first");
        }
        see(&recorder, run(0), DuplicateKind::Start, "second");
        let pending = recorder.pending();
        assert_eq!(pending.len(), MAX_PENDING);
        assert_eq!(origins(&pending[&run(0)].read()), ["first", "second"]);
        let counted = recorder.counts[DuplicateKind::Start as usize].load(Ordering::Relaxed);
        assert_eq!(counted, MAX_PENDING as u64 + 3);
    }

    #[test]
    fn one_at_a_time_writes_or_deletes_or_reads_what_was_written() {
        let recorder = Recorder::new(Clock::default());
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(first)) = pin!(recorder.turn()).poll(&mut context) else {
            panic!("nobody has the turn");
        };
        let mut second = pin!(recorder.turn());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(second.poll(&mut context).is_ready(), "it is its turn");
    }
}
