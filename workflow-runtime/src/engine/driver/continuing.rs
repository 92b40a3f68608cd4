//! Continuing: the run ends, and a new one of the same workflow goes on in its place.
//!
//! Owns the one write that makes a line longer: the end of this run, the next run with what it is left, the note
//! that leads to it, and the tokens that it holds from then on. The store forwards the letters. It comes to
//! that as to a checkpoint: when nothing of the old run is on its way any more.

use bytes::Bytes;

use super::{Driver, Next, Stage};
use crate::engine::notes;
use crate::engine::prepared::{EncodedCall, Naming, Prepared};
use crate::error::Error;
use crate::ids::RunId;
use crate::journal::{Draft, End, Event, Outcome, RunContinued, RunSucceeds};
use crate::store::{Changes, Newest, NoteChange, Origin, RunState};

/// The most bytes of signals that go with a line: half of what a store takes in one write.
const MOST_UNREAD: usize = 32 * 1024 * 1024;

impl Driver {
    /// Ends the run and creates the one that continues it.
    pub(super) fn continue_as_new(&mut self, call: &EncodedCall) -> Next {
        self.write_outbox(None);
        let core = self.core.clone();
        if core.unread_bytes() > MOST_UNREAD {
            return self.too_much_unread();
        }
        let (first, before) = core.line();
        let newest = Newest {
            run: RunId::of_line(first, before + 1),
            ordinal: before + 1,
        };
        let naming = Naming::continued(
            newest.run,
            core.identity().key.as_deref(),
            self.generation,
            self.parent.as_deref().copied(),
        );
        let at = self.core.services.clock.now().max(self.writer.last_time);
        let mut next = Prepared::at(at, &core.services, call, naming, RunState::Active);
        // With something to undo it would not have come here.
        let (_, left) = core.begin_anew(0, Bytes::new(), (0, 0));
        let mut notes: Vec<_> = left
            .tokens
            .iter()
            .map(|token| NoteChange {
                key: notes::token(&core.services.namespace, token),
                value: Some(Bytes::copy_from_slice(newest.run.as_bytes())),
            })
            .collect();
        notes.push(NoteChange {
            key: Newest::key(first),
            value: Some(newest.encode()),
        });
        let succeeds = Event::RunSucceeds(RunSucceeds {
            first,
            ordinal: newest.ordinal,
            previous: core.run(),
            signals: left.signals,
            children: left.children,
            tokens: left.tokens,
        });
        next.new.header.origin = Some(Origin::Continued(first));
        next.new
            .rest
            .push(Draft::of(&succeeds).seal(at, &mut next.chain));
        let continued = RunContinued {
            first,
            next: newest.run,
            ordinal: newest.ordinal,
        };
        self.end_continued(continued, next, notes);
        Next::Again
    }

    /// The run fails rather than go on without its signals, or with more than a store takes.
    fn too_much_unread(&mut self) -> Next {
        let error = Error::fatal(format!(
            "continue_as_new(..) with {} bytes of signals that were not taken, {MOST_UNREAD} are the most: take \
             them first",
            self.core.unread_bytes()
        ));
        let payload = self.core.end_payloads().encode(&error);
        self.give_up(End::Failed(Outcome::Broken(payload.unwrap_or_default())));
        Next::Again
    }

    /// One append, whatever its size: half of it would be two runs, or none.
    fn end_continued(
        &mut self,
        continued: RunContinued,
        next: Prepared,
        mut notes: Vec<NoteChange>,
    ) {
        let unmarked = self.marked.take();
        notes.extend(unmarked.as_ref().map(|unmarked| unmarked.removal()));
        let changes = Changes {
            create: vec![next.new],
            notes,
            ..Changes::default()
        };
        self.drafts.push(Draft::of(&Event::RunContinued(continued)));
        let changes = Some(Box::new(changes));
        let commit = self
            .writer
            .append(&mut self.drafts, changes, true, unmarked);
        self.expect_commit(commit);
        self.stage = Stage::Ending;
        self.end = Some(End::Continued(continued));
    }
}
