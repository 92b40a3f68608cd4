//! The record kinds by their names in a file, and the payloads and texts in each of them.
//!
//! Owns one list of kinds; a kind that is missing here does not compile. It never decodes a payload.

use bytes::Bytes;

use super::coded::Whose;
use super::from_fields;
use super::json::Json;
use super::to_fields::{self, FieldError, MarkedPayload, Marks};
use crate::journal::{End, Event, Outcome};

macro_rules! kinds {
    ($($name:literal $variant:ident)*) => {
        /// The name of a record's kind.
        pub(super) fn name(event: &Event) -> &'static str {
            match event {
                $(Event::$variant(_) => $name,)*
            }
        }

        /// The fields of a record.
        pub(super) fn to_json(event: &Event, marks: &Marks) -> Result<Json<'static>, FieldError> {
            match event {
                $(Event::$variant(fields) => to_fields::to_json(fields, marks),)*
            }
        }

        /// A record from its kind and fields, and where something was taken out of which payload.
        pub(super) fn from_json(
            kind: &str,
            fields: Json<'_>,
        ) -> Result<(Event, Vec<MarkedPayload>), FieldError> {
            match kind {
                $($name => {
                    let (fields, marks) = from_fields::from_json(fields)?;
                    Ok((Event::$variant(fields), marks))
                })*
                other => {
                    let shown: String = other.chars().take(64).collect();
                    Err(FieldError(format!(
                        "`{shown}` is no kind of record that this release knows: upgrade workflow-runtime"
                    )))
                }
            }
        }
    };
}

kinds! {
    "run_started" RunStarted
    "step_completed" StepCompleted
    "attempt_failed" AttemptFailed
    "step_intent" StepIntent
    "timer_set" TimerSet
    "timer_fired" TimerFired
    "signal_received" SignalReceived
    "child_started" ChildStarted
    "child_finished" ChildFinished
    "cancel_requested" CancelRequested
    "run_recovered" RunRecovered
    "run_closing" RunClosing
    "checkpoint" Checkpoint
    "undo_carried" UndoCarried
    "stale_outcome_discarded" StaleOutcomeDiscarded
    "run_reopened" RunReopened
    "patch_marker" PatchMarker
    "run_forked" RunForked
    "run_succeeds" RunSucceeds
    "message_pushed" MessagePushed
    "run_completed" RunCompleted
    "run_failed" RunFailed
    "run_aborted" RunAborted
    "run_cancelled" RunCancelled
    "run_continued" RunContinued
}

/// Something in a record that may say what nobody else is to read.
pub(super) enum Part<'a> {
    /// A payload, and whose it is.
    Payload(&'a mut Bytes, Whose),
    /// The key of a run or signal.
    Key(&'a mut Box<str>),
    /// Why somebody ended or cancelled the run.
    Reason(&'a mut Box<str>),
}

/// Shows every payload, key and reason of a record, with the name of what it belongs to and which part of that
/// it is. Payloads come in the order in which they are in the record.
pub(super) fn parts(event: &mut Event, see: &mut dyn FnMut(&str, &str, Part<'_>)) {
    match event {
        Event::RunStarted(it) => {
            let name = it.workflow.clone();
            if let Some(key) = &mut it.key {
                see(&name, "key", Part::Key(key));
            }
            let whose = Whose::RunInput(it.input_digest);
            see(&name, "input", Part::Payload(&mut it.input, whose));
        }
        Event::StepCompleted(it) => {
            if let Some(input) = &mut it.input {
                let whose = Whose::StepInput(it.step);
                see(&it.name, "input", Part::Payload(input, whose));
            }
            let whose = Whose::StepOutcome(it.step);
            outcome(&it.name, whose, &mut it.outcome, see);
        }
        Event::AttemptFailed(it) => {
            let whose = Whose::StepOutcome(it.step);
            outcome(&it.name, whose, &mut it.failure, see);
        }
        Event::StepIntent(it) => {
            if let Some(input) = &mut it.input {
                let whose = Whose::StepInput(it.step);
                see(&it.name, "input", Part::Payload(input, whose));
            }
        }
        Event::SignalReceived(it) => {
            if let Some(key) = &mut it.key {
                see(&it.name, "key", Part::Key(key));
            }
            let part = Part::Payload(&mut it.payload, Whose::Signal);
            see(&it.name, "signal", part);
        }
        Event::ChildStarted(it) => {
            if let Some(input) = &mut it.input {
                let whose = Whose::CallInput(it.input_digest.strict);
                see(&it.workflow, "input", Part::Payload(input, whose));
            }
        }
        Event::ChildFinished(it) => end("child", Whose::ChildEnd(it.child), &mut it.end, see),
        Event::CancelRequested(it) => see("run", "reason", Part::Reason(&mut it.reason)),
        Event::RunClosing(it) => {
            end("run", Whose::RunEnd, &mut it.cause, see);
            for undo in &mut it.undo {
                if let Some(input) = &mut undo.input {
                    let whose = Whose::StepInput(undo.step);
                    see(&undo.name, "input", Part::Payload(input, whose));
                }
            }
        }
        Event::Checkpoint(it) => {
            let part = Part::Payload(&mut it.input, Whose::Checkpoint);
            see("checkpoint", "input", part);
            signals(&mut it.signals, see);
        }
        Event::UndoCarried(it) => {
            for step in &mut it.steps {
                let whose = Whose::StepInput(step.step);
                see(&step.name, "input", Part::Payload(&mut step.input, whose));
                if let Some(output) = &mut step.output {
                    let whose = Whose::StepOutcome(step.step);
                    see(&step.name, "output", Part::Payload(output, whose));
                }
            }
        }
        Event::RunSucceeds(it) => signals(&mut it.signals, see),
        Event::RunCompleted(it) => {
            let part = Part::Payload(&mut it.output, Whose::RunEnd);
            see("run", "output", part);
        }
        Event::RunFailed(it) => outcome("run", Whose::RunEnd, &mut it.failure, see),
        Event::RunAborted(it) => see("run", "reason", Part::Reason(&mut it.reason)),
        Event::RunCancelled(it) => see("run", "reason", Part::Reason(&mut it.reason)),
        Event::TimerSet(_)
        | Event::TimerFired(_)
        | Event::RunRecovered(_)
        | Event::StaleOutcomeDiscarded(_)
        | Event::RunReopened(_)
        | Event::PatchMarker(_)
        | Event::RunForked(_)
        | Event::MessagePushed(_)
        | Event::RunContinued(_) => {}
    }
}

type See<'a> = &'a mut dyn FnMut(&str, &str, Part<'_>);

fn outcome(name: &str, whose: Whose, outcome: &mut Outcome, see: See<'_>) {
    match outcome {
        Outcome::Ok(payload) | Outcome::AlreadyDone(payload) => {
            see(name, "output", Part::Payload(payload, whose));
        }
        Outcome::Err(payload) | Outcome::Broken(payload) => {
            see(name, "error", Part::Payload(payload, whose));
        }
        Outcome::Interrupted(_) => {}
    }
}

fn end(name: &str, whose: Whose, end: &mut End, see: See<'_>) {
    match end {
        End::Completed(payload) => see(name, "output", Part::Payload(payload, whose)),
        End::Failed(failure) => outcome(name, whose, failure, see),
        End::Aborted(aborted) => see(name, "reason", Part::Reason(&mut aborted.reason)),
        End::Cancelled(cancelled) => see(name, "reason", Part::Reason(&mut cancelled.reason)),
        End::Continued(_) => {}
    }
}

fn signals(signals: &mut [(Box<str>, Vec<Bytes>)], see: See<'_>) {
    for (name, payloads) in signals {
        for payload in payloads {
            see(name, "signal", Part::Payload(payload, Whose::Signal));
        }
    }
}
