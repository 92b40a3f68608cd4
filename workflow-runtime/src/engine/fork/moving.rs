//! Bringing copied records to their new run: what is bound to the old one is opened and bound anew.
//!
//! Owns which payloads of a record belong to a run rather than to a step. It never frames a record and never writes.

use bytes::Bytes;

use crate::engine::EngineError;
use crate::engine::prepared::input_place;
use crate::ids::RunId;
use crate::journal::Event;
use crate::payload::{PayloadError, Payloads, Place};

/// Brings payloads that are bound to a run to another one. Those of steps are bound to their ids, which stay.
pub(super) struct Moving<'a> {
    pub(super) payloads: &'a Payloads,
    /// The run that had them, and the first one of its line.
    pub(super) from: (RunId, RunId),
    pub(super) to: RunId,
}

impl Moving<'_> {
    /// The record with its payloads brought over; `None` if it can stay as it is.
    pub(super) fn event(&self, event: &Event) -> Result<Option<Event>, EngineError> {
        if !self.payloads.binds() {
            return Ok(None);
        }
        let (origin, first) = self.from;
        let mut event = event.clone();
        let moved = match &mut event {
            Event::RunStarted(started) => {
                let from = input_place(self.payloads, origin, started);
                self.payload(from, Place::run_input(self.to), &mut started.input)
            }
            Event::Checkpoint(checkpoint) => {
                let (from, to) = (Place::checkpoint(origin), Place::checkpoint(self.to));
                let input = self.payload(from, to, &mut checkpoint.input);
                input.and_then(|()| self.signals(first, &mut checkpoint.signals))
            }
            Event::RunSucceeds(succeeds) => self.signals(first, &mut succeeds.signals),
            Event::SignalReceived(signal) => self.payload(
                Place::signal(first),
                Place::signal(self.to),
                &mut signal.payload,
            ),
            _ => return Ok(None),
        };
        match moved {
            Ok(()) => Ok(Some(event)),
            Err(problem) => Err(EngineError::Payload {
                what: "record to be copied",
                run: origin,
                problem,
            }),
        }
    }

    fn signals(
        &self,
        first: RunId,
        unread: &mut [(Box<str>, Vec<Bytes>)],
    ) -> Result<(), PayloadError> {
        let mut payloads = unread.iter_mut().flat_map(|(_, payloads)| payloads);
        payloads.try_for_each(|payload| {
            self.payload(Place::signal(first), Place::signal(self.to), payload)
        })
    }

    fn payload(&self, from: Place, to: Place, payload: &mut Bytes) -> Result<(), PayloadError> {
        *payload = self.payloads.at(to).moved_from(from, payload)?;
        Ok(())
    }
}
