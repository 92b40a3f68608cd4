//! Which line a run belongs to, as its journal says.
//!
//! Owns the one rule; the header of a run in its store says the same. It never reads a store.

use super::{Event, Record};
use crate::ids::RunId;

/// The first run of the line that a run continues, and its place there. A fork of such a run has that record too, and is a
/// line of its own.
pub(crate) fn line_of(run: RunId, records: &[Record]) -> Option<(RunId, u64)> {
    let line = records
        .iter()
        .take(2)
        .find_map(|record| match &record.event {
            Event::RunSucceeds(it) => Some((it.first, it.ordinal)),
            _ => None,
        })?;
    (RunId::of_line(line.0, line.1) == run).then_some(line)
}
