//! Runs that sleep in the log: what they leave there, and what memory keeps of them.
//!
//! Owns the record with which a run falls asleep (its header and all its frames, so that nothing older of the log is needed
//! for it), the table of where these records lie, and reading one back. A run that sleeps here is in neither the table of
//! runs nor the database; most are woken before the log is so long that they have to move there. Never writes, and never
//! decides who may sleep here: that is `group`.

use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::bytes::{Malformed, Reader, put_bytes};
use super::database::{corrupt, io_error};
use super::log;
use super::mailbox::Mailbox;
use super::segment::{Stored, unpack};
use super::table::Live;
use crate::clock::Timestamp;
use crate::hashing::HashContext;
use crate::id_map::IdMap;
use crate::ids::RunId;
use crate::store::{RunPosition, RunState, Sleeper, StoreResult};

/// The most bytes of frames with which a run sleeps in the log. They are written there once more, and read as a whole when it
/// is woken; the log has room for tens of thousands of a few hundred bytes.
pub(super) const MAX_BYTES: usize = 4 * 1024;

/// Bytes of the hash that a record begins with.
const HASH: usize = 16;

static RECORD: HashContext = HashContext::new("workflow-runtime 2026-11 store sleep");

/// Where the record of a sleeping run lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The commit whose block holds it.
    pub(super) commit: u64,
    /// Where it begins in the block's file.
    pub(super) at: u32,
    pub(super) len: u32,
}

/// What a run left in the log when it fell asleep.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slumber {
    pub(super) stored: Stored,
    pub(super) frames: Vec<Bytes>,
}

impl Slumber {
    /// Describes a run that falls asleep now, as of a commit.
    pub(super) fn of(live: &Live, wake_at: Option<Timestamp>, as_of: u64) -> Self {
        let mut header = live.header.clone();
        header.state = RunState::Asleep { wake_at };
        let mailbox = live.mailbox.as_ref();
        Self {
            stored: Stored {
                header,
                as_of,
                frames: live.committed(),
                kept_from: 0,
                taken: mailbox.map_or(0, |mail| mail.taken),
                next_letter: mailbox.map_or(0, |mail| mail.next),
            },
            frames: live.frames().map(|frame| frame.bytes.clone()).collect(),
        }
    }

    pub(super) fn run(&self) -> RunId {
        self.stored.header.run
    }

    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        match self.stored.header.state {
            RunState::Asleep { wake_at } => wake_at,
            _ => None,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HASH];
        put_bytes(&mut out, &self.stored.encode());
        for frame in &self.frames {
            put_bytes(&mut out, frame);
        }
        let hash = hash_of(&out[HASH..]);
        out[..HASH].copy_from_slice(&hash);
        out
    }

    pub(super) fn decode(record: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        let hash: [u8; HASH] = reader.array()?;
        if hash != hash_of(&record[HASH..]) {
            return Err("its hash is wrong");
        }
        let stored = Stored::decode(reader.bytes()?)?;
        let frames = unpack(&record.slice(record.len() - reader.len()..))?;
        let sleeps = matches!(stored.header.state, RunState::Asleep { .. });
        let is_whole = !frames.is_empty() && stored.frames == frames.len() as u64;
        if !sleeps || !is_whole || stored.kept_from > 0 {
            return Err("it is not of a run that fell asleep with all its records");
        }
        Ok(Self { stored, frames })
    }

    /// Makes it a run in memory that sleeps, all of which is in the block of a commit.
    pub(super) fn into_live(self, commit: u64) -> Live {
        let Stored {
            header,
            frames: next_seq,
            taken,
            next_letter,
            ..
        } = self.stored;
        let mut live = Live::new(header);
        live.next_seq = next_seq;
        for frame in self.frames {
            live.push(frame, commit);
        }
        if next_letter > 0 {
            live.mailbox = Some(Box::new(Mailbox::new(taken, next_letter)));
        }
        live
    }
}

fn hash_of(bytes: &[u8]) -> [u8; HASH] {
    *RECORD.hash(bytes).first_chunk().expect("it is longer")
}

/// Reads the record of a run. `first` is the commit that its file begins with. `None`: the file is gone.
pub(super) fn read(
    store: &Path,
    first: u64,
    place: Place,
    run: RunId,
) -> StoreResult<Option<Slumber>> {
    let path = log::file_path(&log::directory(store), first);
    let failed = |error: std::io::Error| io_error("reading", &path, &error);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut record = vec![0; place.len as usize];
    let wrong = |wrong| {
        let what = format!("the record of {run}, which sleeps in {}", path.display());
        corrupt(what, wrong)
    };
    match file.read_exact_at(&mut record, u64::from(place.at)) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            return Err(wrong("the file ends before it"));
        }
        Err(error) => return Err(failed(error)),
    }
    let slumber = Slumber::decode(&record.into()).map_err(wrong)?;
    match slumber.run() == run {
        true => Ok(Some(slumber)),
        false => Err(wrong("it is of another run")),
    }
}

/// What memory keeps of a run that sleeps in the log. There may be tens of thousands of them: 40 bytes each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doze {
    pub(super) created_at: Timestamp,
    pub(super) place: Place,
    /// If it has a time.
    wake_at: Timestamp,
    has_time: bool,
    namespace: u32,
}

const _: () = assert!(size_of::<Doze>() == 40);

/// The runs that sleep in the log.
#[derive(Debug, Default)]
pub(super) struct Dozing {
    runs: IdMap<RunId, Doze>,
    /// Those that they are in, each once.
    namespaces: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

/// A place in the order of waking: those without a time come last.
pub(super) type Turn = (bool, Timestamp, RunId);

impl Dozing {
    pub(super) fn contains(&self, run: RunId) -> bool {
        self.runs.contains_key(&run)
    }

    /// Returns where the record of a run lies.
    pub(super) fn place(&self, run: RunId) -> Option<Place> {
        self.runs.get(&run).map(|doze| doze.place)
    }

    pub(super) fn namespace(&self, doze: &Doze) -> &str {
        &self.namespaces[doze.namespace as usize]
    }

    /// Enters a run.
    pub(super) fn insert(
        &mut self,
        at: RunPosition,
        namespace: &str,
        wake_at: Option<Timestamp>,
        place: Place,
    ) {
        let doze = Doze {
            created_at: at.created_at,
            place,
            wake_at: wake_at.unwrap_or_default(),
            has_time: wake_at.is_some(),
            namespace: self.number(namespace),
        };
        self.runs.insert(at.run, doze);
    }

    fn number(&mut self, namespace: &str) -> u32 {
        if let Some(number) = self.numbers.get(namespace) {
            return *number;
        }
        let number = u32::try_from(self.namespaces.len()).expect("far fewer than runs");
        let name: Arc<str> = namespace.into();
        self.namespaces.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        number
    }

    pub(super) fn remove(&mut self, run: RunId) {
        self.runs.remove(&run);
        if self.runs.is_empty() {
            // Tenants come and go.
            self.namespaces.clear();
            self.numbers.clear();
        }
    }

    /// Returns the first so many in the order of waking, behind a place of it.
    pub(super) fn next(&self, after: Option<Turn>, limit: usize) -> Vec<Sleeper> {
        let turns = self.runs.iter().map(|(run, doze)| {
            let wake_at = doze.wake_at();
            (wake_at.is_none(), wake_at.unwrap_or_default(), *run)
        });
        let is_behind = |turn: &Turn| after.is_none_or(|after| *turn > after);
        let mut turns: Vec<Turn> = turns.filter(is_behind).collect();
        if turns.len() > limit && limit > 0 {
            turns.select_nth_unstable(limit - 1);
        }
        turns.truncate(limit);
        let sleepers = turns.into_iter().map(|(_, _, run)| Sleeper {
            wake_at: self.runs[&run].wake_at(),
            run,
            namespace: self.namespace(&self.runs[&run]).into(),
        });
        sleepers.collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RunId, &Doze)> {
        self.runs.iter().map(|(run, doze)| (*run, doze))
    }
}

impl Doze {
    fn wake_at(&self) -> Option<Timestamp> {
        self.has_time.then_some(self.wake_at)
    }
}

#[cfg(test)]
mod tests;
