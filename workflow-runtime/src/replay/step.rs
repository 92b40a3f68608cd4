//! A step's outcome on record, as replay holds it until it is delivered.
//!
//! Owns the two forms that it has: in the frame that it was read from, or by itself. Never judges it.

use std::borrow::Cow;

use crate::digest::InputDigest;
use crate::ids::StepId;
use crate::journal::{FramedStep, Outcome, StepCompleted};

/// A step's outcome on record.
#[derive(Debug)]
pub(crate) enum RecordedStep {
    /// Where it was read: nearly always.
    Framed(FramedStep),
    /// By itself: from an export, or of a kind that is rare.
    Whole(Box<StepCompleted>),
}

impl RecordedStep {
    /// The step.
    pub(crate) fn id(&self) -> StepId {
        match self {
            Self::Framed(step) => step.step(),
            Self::Whole(step) => step.step,
        }
    }

    /// Says whether this is the step's name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        match self {
            Self::Framed(step) => step.is_named(name),
            Self::Whole(step) => *step.name == *name,
        }
    }

    /// The digest of its input.
    pub(crate) fn input_digest(&self) -> InputDigest {
        match self {
            Self::Framed(step) => step.input_digest(),
            Self::Whole(step) => step.input_digest,
        }
    }

    /// The whole record, with payloads that may be kept.
    pub(crate) fn whole(&self) -> Cow<'_, StepCompleted> {
        match self {
            Self::Framed(step) => Cow::Owned(step.whole()),
            Self::Whole(step) => Cow::Borrowed(step),
        }
    }

    /// How it ended, for the call that reads it and is done with it.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Framed(step) => step.outcome(),
            Self::Whole(step) => step.outcome.clone(),
        }
    }
}
