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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::journal::{PatchMarker, RunSucceeds};

    #[test]
    fn a_run_is_of_a_line_if_its_second_record_says_so_and_its_id_is_of_that_place() {
        let first = RunId::from_bytes([1; 16]);
        let record = |seq, event| Record {
            seq,
            time: Timestamp::default(),
            event,
        };
        let other = |seq| record(seq, Event::PatchMarker(PatchMarker { name: "p".into() }));
        let succeeds = |seq| {
            let succeeds = RunSucceeds {
                first,
                ordinal: 3,
                previous: first,
                signals: Vec::new(),
                children: Vec::new(),
                tokens: Vec::new(),
            };
            record(seq, Event::RunSucceeds(succeeds))
        };
        let third = RunId::of_line(first, 3);
        assert_eq!(line_of(third, &[other(0), succeeds(1)]), Some((first, 3)));
        let fork = RunId::from_bytes([2; 16]);
        assert_eq!(line_of(fork, &[other(0), succeeds(1)]), None);
        assert_eq!(line_of(third, &[other(0), other(1), succeeds(2)]), None);
        assert_eq!(line_of(third, &[other(0)]), None);
    }
}
