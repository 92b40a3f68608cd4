//! What one archive writes into the database.
//!
//! Owns the writes that move runs from the log to segments, and the census that goes with
//! them. Pure: it never touches the database, the archiver does.

use super::database::Write;
use super::keys::{Key, cut};
use super::ledger::{Batch, Moving};
use super::segment::{Archive, EndedRun, LiveRun, live_member, pack};
use super::table::LiveEntry;

/// The writes of one archive.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Segments: they may be written before the rest, and twice.
    pub(super) segments: Vec<Write>,
    /// All that must change in one batch.
    pub(super) atomic: Vec<Write>,
}

impl Plan {
    /// Plans an archive. The batch's entries are the new ones afterwards.
    pub(super) fn new(batch: &mut Batch, archive: &mut Archive) -> Self {
        let mut plan = Self::default();
        archive.number += 1;
        archive.as_of = batch.as_of;
        archive.log_from = batch.log_from;
        for moving in &mut batch.moving {
            plan.archive(moving, archive);
        }
        put(&mut plan.atomic, &Key::archive(), &archive.encode());
        plan
    }

    /// Moves all committed frames of one run to segments.
    fn archive(&mut self, moving: &mut Moving, archive: &mut Archive) {
        let header = &moving.header;
        let run = header.run;
        let as_of = archive.as_of;
        let archived = moving.archived + moving.frames.len() as u64;
        for (key, record) in pack(header.position(), moving.archived, &moving.frames) {
            put(&mut self.segments, &key, &record);
        }
        let old = moving.entry.take();
        if let Some(old) = old {
            let member = live_member(run, old.as_of, old.archived);
            archive.live.remove(member);
        }
        let mut pieces = 0;
        if moving.ended {
            archive.ended += 1;
            let ended = EndedRun::encode(header, archived);
            put(&mut self.atomic, &Key::header(header.position()), &ended);
            let created = header.created_at.as_micros().to_le_bytes();
            put(&mut self.atomic, &Key::run(run), &created);
        } else {
            archive.live.add(live_member(run, as_of, archived));
            let record = LiveRun::encode(header, as_of, archived);
            pieces = put(&mut self.atomic, &Key::live(run), &record);
            moving.entry = Some(LiveEntry {
                as_of,
                archived,
                pieces,
            });
        }
        for number in pieces..old.map_or(0, |old| old.pieces) {
            self.atomic.push((Key::live(run).piece(number), None));
        }
    }
}

/// Adds the pieces of a record to some writes, and returns how many there are.
pub(super) fn put(writes: &mut Vec<Write>, key: &Key, record: &[u8]) -> u16 {
    let mut count = 0;
    for piece in cut(record) {
        writes.push((key.piece(count), Some(piece)));
        count += 1;
    }
    count
}
