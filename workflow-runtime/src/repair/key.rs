//! The audit key that a repair is given: whether it can be the one of the journals.
//!
//! Owns the refusal of a key that fits nothing. With it, every journal would be cut before its first record. Pure.

use super::RepairOptions;
use crate::ids::RunId;
use crate::journal::{AuditKey, Chain, body_of};
use crate::store::sled::salvage::{Found, FoundRun};

/// Says why the key cannot be right: it fits the first record of no journal. `None`: it fits one, or nothing can be told.
pub(super) fn refuses(found: &Found, options: &RepairOptions) -> Option<String> {
    let key = options.audit_key.as_ref()?;
    let fits = |key: Option<&AuditKey>, run: &RunId, parts: &FoundRun| {
        let first = parts.frames.get(&0);
        first.is_some_and(|frame| Chain::new(*run, key.cloned()).open(frame).is_ok())
    };
    let has_first = |parts: &FoundRun| parts.frames.get(&0).is_some_and(|it| body_of(it).is_some());
    let journals: Vec<_> = found.runs.iter().filter(|(_, it)| has_first(it)).collect();
    if journals.is_empty() || journals.iter().any(|(run, it)| fits(Some(key), run, it)) {
        return None;
    }
    let count = journals.len();
    let keyless = journals.iter().filter(|(run, it)| fits(None, run, it));
    Some(match keyless.count() == count {
        true => "they have no audit key: repair without one".to_owned(),
        false => format!(
            "it fits none of the {count} that have a first record; give the key of the engine that wrote them, or none: then \
             they are put together by the store's own checks, and what has not ended is parked"
        ),
    })
}
