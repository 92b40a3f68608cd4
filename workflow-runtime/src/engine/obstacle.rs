//! What keeps a run from going on until a person has helped, told in two parts.
//!
//! Owns the line between what may be logged and what may not. A report names rules, types, steps and
//! lines; whatever may quote a value (a panic's message, a decoder's complaint, differing inputs) is
//! the detail, which is stored as a payload, behind the payload codec.

use super::Services;
use crate::ids::RunId;
use crate::payload::{PayloadError, Place};
use crate::store::{ParkReason, Parking};

/// Why a run is to be parked.
#[derive(Debug)]
pub(crate) struct Obstacle {
    reason: ParkReason,
    report: String,
    detail: Option<String>,
}

impl Obstacle {
    /// Makes an obstacle whose report says everything.
    pub(crate) fn new(reason: ParkReason, report: String) -> Self {
        Self {
            reason,
            report,
            detail: None,
        }
    }

    /// Adds what may quote a value.
    pub(crate) fn detail(mut self, detail: Option<String>) -> Self {
        self.detail = detail;
        self
    }

    /// Makes the obstacle of a value that cannot cross the journal.
    pub(crate) fn unreadable(what: &str, problem: &PayloadError) -> Self {
        let report = format!("{what}: {}", problem.without_values());
        Self::new(ParkReason::Undecodable, report).detail(Some(problem.to_string()))
    }

    /// Makes the obstacle of a panic in the workflow's own code.
    pub(crate) fn panicked(message: String) -> Self {
        let report = "the workflow's own code panicked (its message: `engine.parked_detail(run)`)\n  \
                      no step was lost; fix the code, deploy, then `engine.resume(run)`";
        Self::new(ParkReason::Panicked, report.to_owned()).detail(Some(message))
    }

    /// Turns it into what is stored.
    pub(crate) fn into_parking(self, services: &Services, run: RunId) -> Parking {
        let payloads = services.payloads.at(Place::parking(run));
        Parking {
            reason: self.reason,
            at: services.clock.now(),
            report: self.report.into(),
            detail: self.detail.and_then(|text| payloads.encode(&text).ok()),
        }
    }
}
