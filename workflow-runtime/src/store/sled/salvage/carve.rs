//! Reading a `db` that sled refuses: every message that is still readable, put together as sled would.
//!
//! Owns the walk over sled's file, what is skipped there, and what that makes doubtful. What was written after the
//! newest hole is certain; of a key that was last written before it, nobody knows whether the hole held something newer.
//! Never writes, never decodes a value.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::super::database::{SLED_SEGMENT, io_error};
use super::super::keys;
use super::message::{self, Kind, Message, Page, RED_ZONE, SEGMENT_HEADER};
use crate::store::StoreResult;

/// A value, and where in sled's log it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) value: Vec<u8>,
    pub(super) at: u64,
}

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) offset: u64,
    pub(super) len: u64,
    /// What stands from here on in sled's log was written later than what is missing.
    pub(super) until: u64,
}

/// What can be read of a `db`.
#[derive(Debug, Default)]
pub(super) struct Carved {
    pub(super) entries: BTreeMap<Vec<u8>, Entry>,
    pub(super) holes: Vec<Hole>,
    /// How many flipped bits were put right.
    pub(super) mended: u64,
}

impl Carved {
    /// Says behind what in sled's log everything is certain. 0: all of it is.
    pub(super) fn certain_from(&self) -> u64 {
        self.holes.iter().map(|hole| hole.until).max().unwrap_or(0)
    }
}

/// Reads all that is readable.
pub(super) fn carve(path: &Path) -> StoreResult<Carved> {
    let failed = |error: std::io::Error| io_error("reading", path, &error);
    let file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    let mut carving = Carving::default();
    let slots = carving.slots(&file, len).map_err(failed)?;
    let read = |slot: &Slot| Ok((slot.segment, slot.offset, segment(&file, slot.offset)?));
    let Some((last, others)) = slots.split_last() else {
        return Ok(carving.finish());
    };
    // The newest first: a batch that does not end in it does not count.
    let (number, offset, bytes) = read(last).map_err(failed)?;
    let mut newest = Segment::new(number, offset, bytes);
    newest.scan(true);
    carving.tip = newest.tip();
    for slot in others {
        let (number, offset, bytes) = read(slot).map_err(failed)?;
        let mut segment = Segment::new(number, offset, bytes);
        segment.scan(false);
        carving.apply(&segment);
    }
    carving.apply(&newest);
    Ok(carving.finish())
}

/// Where a segment of sled's log lies in the file.
struct Slot {
    segment: u64,
    offset: u64,
}

fn segment(file: &File, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(SLED_SEGMENT);
    let mut part = vec![0; 64 * 1024];
    while bytes.len() < SLED_SEGMENT {
        let most = part.len().min(SLED_SEGMENT - bytes.len());
        match file.read_at(&mut part[..most], offset + bytes.len() as u64)? {
            0 => break,
            read => bytes.extend_from_slice(&part[..read]),
        }
    }
    Ok(bytes)
}

/// One segment of sled's log, and what is readable in it.
struct Segment {
    number: u64,
    offset: u64,
    bytes: Vec<u8>,
    messages: Vec<(usize, Message)>,
    /// From where to where there is no message.
    holes: Vec<(usize, usize)>,
    mended: u64,
}

impl Segment {
    fn new(number: u64, offset: u64, bytes: Vec<u8>) -> Self {
        Self {
            number,
            offset,
            bytes,
            messages: Vec::new(),
            holes: Vec::new(),
            mended: 0,
        }
    }

    /// Finds all messages. After the last one of the newest segment anything may follow: it was not used yet.
    fn scan(&mut self, is_newest: bool) {
        let mut at = SEGMENT_HEADER;
        while at + RED_ZONE <= SLED_SEGMENT {
            let rest = self.bytes.get_mut(at..).unwrap_or_default();
            let message = Message::read(rest, Some(self.number)).or_else(|| {
                let mended = Message::mend(rest, self.number);
                self.mended += u64::from(mended.is_some());
                mended
            });
            if let Some(message) = message {
                let (end, is_last) = (at + message.len(), message.kind == Kind::Cap);
                self.messages.push((at, message));
                if is_last {
                    return;
                }
                at = end;
                continue;
            }
            let next = (at + 1..self.bytes.len())
                .find(|next| Message::read(&self.bytes[*next..], Some(self.number)).is_some());
            match next {
                Some(next) => {
                    self.holes.push((at, next));
                    at = next;
                }
                None => {
                    if !is_newest {
                        self.holes.push((at, SLED_SEGMENT));
                    }
                    return;
                }
            }
        }
    }

    /// Where in sled's log the last message ends.
    fn tip(&self) -> u64 {
        let last = self.messages.last();
        self.place(last.map_or(0, |(at, message)| at + message.len()))
    }

    fn place(&self, at: usize) -> u64 {
        self.number * SLED_SEGMENT as u64 + at as u64
    }
}

/// A page as of some moment.
struct Current {
    page: Page,
    /// Where in sled's log it was last written as a whole.
    base: u64,
    entries: BTreeMap<Vec<u8>, Entry>,
}

#[derive(Default)]
struct Carving {
    /// Where the newest message ends.
    tip: u64,
    /// Whether a batch was met that is not whole: what follows it does not count.
    torn: bool,
    pages: HashMap<u64, Current>,
    carved: Carved,
}

impl Carving {
    /// Finds the segments, the oldest first.
    fn slots(&mut self, file: &File, len: u64) -> std::io::Result<Vec<Slot>> {
        let mut slots = Vec::new();
        for offset in (0..len).step_by(SLED_SEGMENT) {
            let mut header = [0; SEGMENT_HEADER];
            let read = read_up_to(file, &mut header, offset)?;
            let number = message::segment_number(&header).filter(|_| read == SEGMENT_HEADER);
            if let Some(segment) = number {
                slots.push(Slot { segment, offset });
                continue;
            }
            let bytes = segment(file, offset)?;
            if bytes.iter().all(|byte| *byte == 0) {
                continue; // free
            }
            // Its header is gone: its messages say which one it is.
            let found = (SEGMENT_HEADER..bytes.len())
                .find_map(|at| Message::read(&bytes[at..], None))
                .map(|message| message.segment);
            match found {
                Some(segment) => slots.push(Slot { segment, offset }),
                None => self.hole(offset, bytes.len() as u64, u64::MAX),
            }
        }
        if !len.is_multiple_of(SLED_SEGMENT as u64) && !slots.is_empty() {
            // sled's file ends with its newest segment, which may be short; any other must be whole.
            let newest = slots.iter().max_by_key(|slot| slot.segment);
            let last = len / SLED_SEGMENT as u64 * SLED_SEGMENT as u64;
            if newest.is_some_and(|newest| newest.offset != last) {
                self.hole(len, 0, u64::MAX);
            }
        }
        slots.sort_unstable_by_key(|slot| slot.segment);
        Ok(slots)
    }

    fn hole(&mut self, offset: u64, len: u64, until: u64) {
        self.carved.holes.push(Hole { offset, len, until });
    }

    /// Applies the messages of the next segment.
    fn apply(&mut self, segment: &Segment) {
        self.carved.mended += segment.mended;
        for (from, until) in &segment.holes {
            let len = (until - from) as u64;
            let offset = segment.offset + *from as u64;
            self.hole(offset, len, segment.place(*until));
        }
        for (at, message) in &segment.messages {
            if self.torn {
                return;
            }
            let body = &segment.bytes[at + message.body.start..at + message.body.end];
            let place = segment.place(*at);
            if self.message(message, body, place).is_none() {
                let until = place + message.len() as u64;
                let offset = segment.offset + *at as u64;
                self.hole(offset, message.len() as u64, until);
            }
        }
    }

    /// Applies one message. `None`: it cannot be understood.
    fn message(&mut self, message: &Message, body: &[u8], place: u64) -> Option<()> {
        match message.kind {
            Kind::Cap | Kind::Other => {}
            Kind::Batch => self.torn = message::batch_end(body)? > self.tip,
            Kind::Free => {
                self.pages.remove(&message.page);
            }
            Kind::Node => {
                let mut page = Page::read(body)?;
                let entries = page.entries.take().map(|entries| {
                    let entries = entries.into_iter();
                    let at = place;
                    entries
                        .map(|(key, value)| (key, Entry { value, at }))
                        .collect()
                });
                match entries {
                    Some(entries) => {
                        let base = place;
                        let current = Current {
                            page,
                            base,
                            entries,
                        };
                        self.pages.insert(message.page, current);
                    }
                    None => {
                        self.pages.remove(&message.page);
                    }
                }
            }
            Kind::Link => {
                let Some((key, value)) = message::change(body)? else {
                    return Some(());
                };
                self.change(message.page, key, value, place);
            }
            Kind::Blob => return None,
        }
        Some(())
    }

    fn change(&mut self, page: u64, key: &[u8], value: Option<&[u8]>, at: u64) {
        // Without its page it is older than what the page holds by now, as sled has it.
        let Some(current) = self.pages.get_mut(&page) else {
            return;
        };
        let Some(key) = current.page.full(key) else {
            return;
        };
        // The page may have been written anew in a hole between, with another beginning of its keys.
        let holes = &self.carved.holes;
        let doubtful = holes
            .iter()
            .any(|hole| hole.until > current.base && hole.until <= at);
        let fits = match keys::has_its_length(&key) {
            Some(fits) => fits,
            None => !doubtful,
        };
        if !fits {
            return;
        }
        match value {
            Some(value) => {
                let value = value.to_vec();
                current.entries.insert(key, Entry { value, at });
            }
            None => {
                current.entries.remove(&key);
            }
        }
    }

    /// Puts the pages together. Where two speak of the same keys, which is only so if something is missing, the one that was
    /// written as a whole last counts.
    fn finish(self) -> Carved {
        let mut carved = self.carved;
        let mut pages: Vec<Current> = self.pages.into_values().collect();
        pages.sort_unstable_by_key(|current| current.base);
        for current in pages {
            let Page { low, high, .. } = current.page;
            let end = match high.is_empty() {
                true => Bound::Unbounded,
                false => Bound::Excluded(high.as_slice()),
            };
            if !high.is_empty() && high <= low {
                continue;
            }
            let covered = (Bound::Included(low.as_slice()), end);
            let old = carved.entries.range::<[u8], _>(covered);
            let old: Vec<Vec<u8>> = old.map(|(key, _)| key.clone()).collect();
            for key in old {
                carved.entries.remove(&key);
            }
            carved.entries.extend(current.entries);
        }
        carved
    }
}

fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], offset + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

/// Reads a file whole, or as far as the disk gives it.
pub(super) fn read_file(path: &Path) -> StoreResult<Vec<u8>> {
    let failed = |error: std::io::Error| io_error("reading", path, &error);
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(failed)?;
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
