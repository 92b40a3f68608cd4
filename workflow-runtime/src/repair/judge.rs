//! One run: how far its journal is whole, and in which state it may go into a new store.
//!
//! Owns the rule that no run goes on of which something may be missing. Decodes records, never a payload. Pure.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;

use super::report::{Fate, SalvagedRun};
use crate::clock::wall_clock;
use crate::ids::RunId;
use crate::journal::{AuditKey, Chain, Event, body_of};
use crate::store::sled::salvage::{FoundRun, Saved};
use crate::store::{EndKind, Origin, ParkReason, Parking, RunEnd, RunHeader, RunState};

/// Records below this number are never forgotten.
const ALWAYS_KEPT: u64 = 2;

/// A run that can go into the new store.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) saved: Saved,
    pub(super) fate: Fate,
    pub(super) why: Option<String>,
}

/// A journal as far as it is whole.
struct Verified {
    frames: Vec<Bytes>,
    /// The number behind the last of them.
    until: u64,
    kept_from: u64,
    /// Whether its chain could not be checked, for want of the key.
    unchecked: bool,
}

/// Judges one run. `None`: nothing says that there was one. An error says why it cannot be saved.
pub(super) fn judge(
    run: RunId,
    found: &FoundRun,
    key: Option<&AuditKey>,
) -> Option<Result<(Judged, SalvagedRun), String>> {
    let verified = verify(run, found, key);
    let Some(mut header) = found
        .header
        .clone()
        .or_else(|| rebuilt(run, found, &verified))
    else {
        return Some(Err(match verified.frames.is_empty() {
            true => "only its name was found".to_owned(),
            false => "its header is lost, and its first record does not say what it is".to_owned(),
        }));
    };
    if let Some(end) = last_end(&verified)
        && header.end().is_none()
    {
        header.state = RunState::Ended(end);
    }
    let (fate, why) = fate(found, &header, &verified);
    let missing = found.letters.next - found.letters.taken - found.letters.waiting.len() as u64;
    let records = verified.until;
    let state = header.state.kind();
    let saved = Saved {
        header,
        frames: verified.frames,
        kept_from: verified.kept_from,
        taken: found.letters.taken,
        letters: found.letters.waiting.values().cloned().collect(),
    };
    let mut judged = Judged { saved, fate, why };
    if missing > 0 {
        judged.doubt(format!("{missing} letters that it was sent are lost"));
    }
    if verified.unchecked {
        // By the store's own checks alone nothing goes on: a first record that is damaged looks the same.
        judged.doubt("its chain was not checked, for want of the audit key".to_owned());
    }
    let report = SalvagedRun {
        run,
        workflow: judged.saved.header.workflow.clone(),
        records,
        was: state,
        fate: judged.fate,
        why: judged.why.clone(),
        unchecked: verified.unchecked,
    };
    Some(Ok((judged, report)))
}

/// Follows the chain as far as it goes.
fn verify(run: RunId, found: &FoundRun, key: Option<&AuditKey>) -> Verified {
    let mut chain = Chain::new(run, key.cloned());
    let mut verified = Verified {
        frames: Vec::new(),
        until: 0,
        kept_from: 0,
        unchecked: false,
    };
    while let Some(frame) = found.frames.get(&verified.until) {
        if verified.until == ALWAYS_KEPT && found.kept_from > ALWAYS_KEPT {
            break;
        }
        if !verified.take(&mut chain, frame, key.is_none()) {
            return verified;
        }
    }
    if found.kept_from > ALWAYS_KEPT && verified.until == ALWAYS_KEPT {
        // Behind what was forgotten the chain goes on with a record that nothing can be compared with.
        let mut behind = (found.kept_from..).map_while(|seq| found.frames.get(&seq));
        let Some(first) = behind.next() else {
            return verified;
        };
        chain.skip_to(found.kept_from, first);
        verified.kept_from = found.kept_from;
        verified.frames.push(first.clone());
        verified.until = found.kept_from + 1;
        for frame in behind {
            if !verified.take(&mut chain, frame, false) {
                break;
            }
        }
    }
    verified
}

impl Verified {
    /// Takes the next frame, if it is the next one.
    fn take(&mut self, chain: &mut Chain, frame: &Bytes, keyless: bool) -> bool {
        if !self.unchecked && chain.open(frame).is_err() {
            // The first record of a chain whose key was not given looks like this too.
            self.unchecked = self.until == 0 && keyless && body_of(frame).is_some();
            if !self.unchecked {
                return false;
            }
        }
        self.frames.push(frame.clone());
        self.until += 1;
        true
    }

    fn events(&self) -> impl DoubleEndedIterator<Item = Event> {
        self.frames.iter().filter_map(event)
    }
}

fn event(frame: &Bytes) -> Option<Event> {
    let (_, event) = Event::decode(body_of(frame)?).ok()?;
    Some(event)
}

/// Says how a journal ends, if its last record is an end.
fn last_end(verified: &Verified) -> Option<RunEnd> {
    let body = body_of(verified.frames.last()?)?;
    let (at, event) = Event::decode(body).ok()?;
    let kind = match event {
        Event::RunCompleted(_) => EndKind::Completed,
        Event::RunFailed(_) => EndKind::Failed,
        Event::RunAborted(_) => EndKind::Aborted,
        Event::RunCancelled(_) => EndKind::Cancelled,
        Event::RunContinued(_) => EndKind::Continued,
        _ => return None,
    };
    Some(RunEnd { kind, at })
}

/// Makes a header from the journal, if only that is left.
fn rebuilt(run: RunId, found: &FoundRun, verified: &Verified) -> Option<RunHeader> {
    let Event::RunStarted(started) = event(verified.frames.first()?)? else {
        return None;
    };
    let mut origin = started.parent.map(|parent| Origin::Child(parent.run));
    for event in verified.events() {
        match event {
            Event::RunSucceeds(line) => origin = Some(Origin::Continued(line.first)),
            Event::RunForked(forked) => origin = Some(Origin::Forked(forked.origin)),
            _ => {}
        }
    }
    Some(RunHeader {
        run,
        namespace: started.namespace.clone(),
        workflow: started.workflow.clone(),
        version: started.version,
        key: started.key.clone(),
        input_digest: started.input_digest,
        created_at: found.created_at?,
        origin,
        state: RunState::Active,
    })
}

fn fate(found: &FoundRun, header: &RunHeader, verified: &Verified) -> (Fate, Option<String>) {
    let end = header.end().map(|end| end.kind);
    let last = last_end(verified).map(|end| end.kind);
    if verified.until < found.until || verified.frames.is_empty() {
        let next = verified.until;
        return (Fate::Cut, Some(format!("record {next} is lost")));
    }
    if end.is_some() && end != last && !verified.unchecked {
        let next = verified.until;
        return (
            Fate::Cut,
            Some(format!("record {next} is lost: the run has ended")),
        );
    }
    // Nothing comes after an end but that of a failed run, which may have been taken up again.
    let is_final = end.is_some_and(|kind| kind != EndKind::Failed);
    if is_final || (!found.may_be_older && found.header.is_some()) {
        return (Fate::Whole, None);
    }
    let why = "what is damaged may have held later records of it";
    (Fate::AsFarAsSeen, Some(why.to_owned()))
}

impl Judged {
    /// Takes note of something that is missing.
    pub(super) fn doubt(&mut self, why: String) {
        if self.fate == Fate::Whole {
            self.fate = Fate::AsFarAsSeen;
            self.why = Some(why);
        }
    }

    /// Finds a child that it waits for and that is not there.
    pub(super) fn missing_child(&self, there: &BTreeSet<RunId>) -> Option<RunId> {
        if self.saved.header.end().is_some() {
            return None;
        }
        let mut open = BTreeSet::new();
        for event in self.saved.frames.iter().filter_map(event) {
            match event {
                Event::ChildStarted(child) => {
                    open.insert(child.child);
                }
                Event::ChildFinished(child) => {
                    open.remove(&child.child);
                }
                _ => {}
            }
        }
        open.into_iter().find(|child| !there.contains(child))
    }

    /// Parks a run that must not simply go on.
    pub(super) fn park_if_needed(&mut self) {
        let header = &mut self.saved.header;
        if self.fate == Fate::Whole || header.end().is_some() {
            return;
        }
        let why = self.why.as_deref().unwrap_or_default();
        let before = match &header.state {
            RunState::Parked(parking) => format!(" (it was parked: {})", parking.report),
            _ => String::new(),
        };
        let report = format!(
            "{} was salvaged from a damaged store: {why}. A step whose outcome is lost would run again, under the same step \
             id. Look at what it did outside, and resume it if that may happen{before}",
            header.run
        );
        header.state = RunState::Parked(Parking {
            reason: ParkReason::Salvaged,
            at: wall_clock(),
            report: report.into(),
            detail: None,
        });
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future of the store on this thread.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}
