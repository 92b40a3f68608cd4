//! The journal: what happened in a run, in order, for ever.
//!
//! Owns the reading of a run's frames back into verified, typed records. The files tell the
//! story: `kinds` and `record` what can be said, `draft` and `room` how it is written, `chain` and `links` what holds it together,
//! `framed` how replay reads it, `timeline` how it is shown to a person. It never writes to a store and never decodes a user's payload.

mod chain;
mod draft;
mod framed;
mod kinds;
mod line;
mod links;
mod record;
mod room;
mod timeline;

use bytes::Bytes;

use crate::ids::RunId;
use crate::store::{KeptJournal, RunHeader, RunState};

pub(crate) use chain::{AuditKey, Chain};
pub(crate) use draft::{Companion, Draft, Effect, Source, StepCompletedParts, StepIntentParts};
use framed::{Body, FromBody};
pub(crate) use framed::{Entry, FramedStep, Says};
pub use kinds::{
    AttemptFailed, CancelRequested, CarriedChild, CarriedUndo, Checkpoint, ChildFinished,
    ChildStarted, Closing, End, MessagePushed, Outcome, Parent, PatchMarker, RunAborted,
    RunCancelled, RunCompleted, RunContinued, RunFailed, RunForked, RunRecovered, RunReopened,
    RunStarted, RunSucceeds, SignalReceived, StaleOutcomeDiscarded, StepCompleted, StepIntent,
    TimerFired, TimerSet, UndoCarried, UndoStep,
};
pub(crate) use line::line_of;
pub(crate) use links::Links;
use links::Share;
pub use record::{Event, Record};

/// Says which record of which run cannot be trusted or read, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the journal of {run} is damaged: {problem}")]
pub struct JournalError {
    run: RunId,
    problem: String,
    newer: bool,
}

impl JournalError {
    /// The run whose journal it is.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Says whether the journal is intact but written by a newer release.
    pub fn is_newer(&self) -> bool {
        self.newer
    }
}

/// One run's journal, verified and decoded.
///
/// Printing it gives a timeline for people.
#[derive(Debug, Clone)]
pub struct Journal {
    header: RunHeader,
    records: Vec<Record>,
}

impl Journal {
    pub(crate) fn new(header: RunHeader, records: Vec<Record>) -> Self {
        Self { header, records }
    }

    /// The run's header.
    pub fn header(&self) -> &RunHeader {
        &self.header
    }

    /// The records, in order. A run that begins anew with checkpoints forgets old ones: then the number behind the second is
    /// not the next one.
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

/// Checks what a chain alone cannot see: that nothing is missing at its ends.
///
/// A journal begins with its start, and that of a run that has ended ends with its end.
pub(crate) fn check_ends(header: &RunHeader, records: &[Record]) -> Result<(), JournalError> {
    let first = records.first().map(|record| &record.event);
    let last = records.last().map(|record| &record.event);
    let has_ended = matches!(header.state, RunState::Ended(_));
    let ends = last.is_some_and(Event::is_end);
    let problem = if !matches!(first, Some(Event::RunStarted(_))) {
        "record 0 is not the start of the run".to_owned()
    } else if has_ended && !ends {
        let next = records.last().map_or(0, |last| last.seq + 1);
        format!("record {next} is missing: the run has ended")
    } else {
        return Ok(());
    };
    Err(JournalError {
        run: header.run,
        problem,
        newer: false,
    })
}

/// Returns the body of a frame of this release's format, unchecked.
pub(crate) fn body_of(frame: &Bytes) -> Option<&[u8]> {
    let body = frame.get(1..frame.len().checked_sub(chain::LINK_LEN)?)?;
    (frame[0] == chain::FORMAT_VERSION).then_some(body)
}

/// Reads what a frame says without its chain, to show it.
#[cfg(feature = "testing")]
pub(crate) fn peek(frame: &Bytes) -> Option<Event> {
    let body = frame.get(1..frame.len().checked_sub(chain::LINK_LEN)?)?;
    Event::decode(body).ok().map(|(_, event)| event)
}

/// Verifies a journal from its beginning and decodes it, record by record.
pub(crate) struct Reader<'a> {
    run: RunId,
    chain: Chain,
    frames: std::slice::Iter<'a, Bytes>,
    /// Behind which record frames are left out, and up to which.
    left_out: Option<LeftOut>,
    /// Who else checks links, and what is known of those at hand; none if the reader does it alone.
    shared: Option<(&'a Links<'a>, Share)>,
}

/// Frames that a reader is not given.
struct LeftOut {
    behind: u64,
    until: u64,
    /// Whether they are gone: only a checkpoint is a reason for that.
    forgotten: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(run: RunId, key: Option<AuditKey>, frames: &'a [Bytes]) -> Self {
        Self {
            run,
            chain: Chain::new(run, key),
            frames: frames.iter(),
            left_out: None,
            shared: None,
        }
    }

    /// Shares the work with others. For a journal that nothing is left out of.
    pub(crate) fn share_with(&mut self, links: &'a Links<'a>) {
        self.shared = Some((links, Share::Own(0)));
    }

    /// Reads on as replay does.
    pub(crate) fn entries(&mut self) -> impl Iterator<Item = Result<Entry, JournalError>> {
        std::iter::from_fn(|| self.read_next())
    }

    /// Reads frames of which those between the first one and the one of this sequence number are left out.
    /// The link of that one is taken as it is.
    pub(crate) fn leaving_out(mut self, until: u64) -> Self {
        self.left_out = (until > 1).then_some(LeftOut {
            behind: 1,
            until,
            forgotten: false,
        });
        self
    }

    /// Reads a journal as far as it is kept. The link of the last record that was forgotten is taken as it is; what
    /// comes behind it must be a checkpoint.
    pub(crate) fn of(run: RunId, key: Option<AuditKey>, kept: &'a KeptJournal) -> Self {
        let mut reader = Self::new(run, key, &kept.frames);
        reader.left_out = (kept.kept_from > 0).then_some(LeftOut {
            behind: 2,
            until: kept.kept_from,
            forgotten: true,
        });
        reader
    }

    /// Reads frames of which the first one has this sequence number and is not looked at: its link is taken as
    /// it is.
    pub(crate) fn behind(run: RunId, key: Option<AuditKey>, seq: u64, frames: &'a [Bytes]) -> Self {
        let mut reader = Self::new(run, key, frames);
        if let Some(first) = reader.frames.next() {
            reader.chain.skip_to(seq, first);
        }
        reader
    }

    /// The chain as far as it was read, ready for the next record.
    pub(crate) fn into_chain(self) -> Chain {
        self.chain
    }

    /// Checks the link of the next frame, unless somebody has, and returns the frame's body.
    fn open<'f>(&mut self, frame: &'f Bytes) -> Result<&'f [u8], chain::ChainError> {
        let at = self.chain.next_seq();
        if let Some((links, share)) = &mut self.shared {
            if matches!(share, Share::Own(until) if at >= *until as u64) {
                *share = links.next_share();
            }
            if matches!(share, Share::Checked(until) if at < *until as u64) {
                return Ok(self.chain.pass(frame));
            }
        }
        self.chain.open(frame)
    }

    fn read<T: FromBody>(&mut self, frame: &Bytes) -> Result<T, JournalError> {
        let run = self.run;
        let seq = self.chain.next_seq();
        let bytes = self.open(frame).map_err(|error| JournalError {
            run,
            newer: matches!(error, chain::ChainError::Format { .. }),
            problem: error.to_string(),
        })?;
        T::from_body(seq, Body { frame, bytes }).map_err(|error| JournalError {
            run,
            newer: matches!(error, record::RecordError::Newer { .. }),
            problem: format!("record {seq}: {error}"),
        })
    }

    fn read_next<T: FromBody>(&mut self) -> Option<Result<T, JournalError>> {
        let seq = self.chain.next_seq();
        let left_out = self.left_out.take_if(|left_out| left_out.behind == seq);
        let Some(LeftOut {
            until, forgotten, ..
        }) = left_out
        else {
            let frame = self.frames.next()?;
            return Some(self.read(frame));
        };
        self.chain.skip_to(until, self.frames.next()?);
        let frame = self.frames.next()?;
        let record: Result<T, _> = self.read(frame);
        Some(match record {
            Ok(record) if forgotten && !record.is_checkpoint() => Err(JournalError {
                run: self.run,
                problem: format!(
                    "records 2 to {until} are missing, and record {} is no checkpoint that made them superfluous",
                    record.seq()
                ),
                newer: false,
            }),
            record => record,
        })
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Record, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_next()
    }
}
