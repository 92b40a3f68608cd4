//! Reading the annex of a store that may be damaged.
//!
//! Owns the search for records that are still readable, the mending of a single flipped bit in one that sled points to, and
//! what takes the place of a pointer. A record says itself under which key it belongs, so that it is found without sled.
//! Never writes, never decodes a record.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::annex::{self, Entry, Pointer};
use super::super::database::describe;
use super::super::keys;
use super::carve::{self, Carved, read_file};
use crate::store::StoreResult;

/// Records up to this many bytes are searched for a single flipped bit. It takes one hash of all of it for each of its bits.
const MAX_MENDED: usize = 32 * 1024;

/// How much of a file is hashed in vain, in lengths of the file: whatever looks like a record and is none costs a hash of all that it
/// claims to have. A file that nobody made so on purpose has a few such places.
const IN_VAIN: usize = 64;

/// What stands before a record that is one piece in sled.
const ONE_PIECE: [u8; 2] = [0, 1];

/// Lengths of the names of segments and of letters.
const NAMES: [(u8, u16); 2] = [(keys::SEGMENT, 1 + 8 + 16 + 8), (keys::MAIL, 1 + 16 + 8)];

/// What can be read of an annex.
#[derive(Debug, Default)]
pub(super) struct Annexes {
    files: BTreeMap<u64, Vec<u8>>,
    /// Where the newest record of each name lies: archive, file, offset.
    newest: BTreeMap<Vec<u8>, (u64, u64, usize)>,
    /// Bytes that are no record: file, from, until.
    holes: Vec<(u64, usize, usize)>,
    pub(super) mended: u64,
    /// What is lost, by place.
    pub(super) damage: Vec<String>,
}

impl Annexes {
    /// Reads the annex of a store. Nothing is an error but an operating system that does not read.
    pub(super) fn read(store: &Path) -> StoreResult<Self> {
        let directory = annex::directory(store);
        let mut annexes = Self::default();
        for number in annex::list(&directory)? {
            let bytes = read_file(&annex::file_path(&directory, number))?;
            annexes.walk(number, &bytes);
            annexes.files.insert(number, bytes);
        }
        Ok(annexes)
    }

    /// Finds all records of a file.
    fn walk(&mut self, file: u64, bytes: &[u8]) {
        let mut search = Search {
            left: bytes.len().saturating_mul(IN_VAIN),
        };
        let mut at = 0;
        while at < bytes.len() {
            let Some(entry) = search.read(&bytes[at..]) else {
                let next = search.next(bytes, at + 1);
                self.holes.push((file, at, next));
                at = next;
                continue;
            };
            let place = (entry.archive, file, at);
            at += entry.len;
            let newest = self.newest.entry(entry.name.to_vec()).or_insert(place);
            *newest = place.max(*newest);
        }
    }

    /// Puts records where sled points to them. If sled lost something (`is_sound` is false), records that nothing points to
    /// are taken too: what pointed there may be what is lost.
    pub(super) fn resolve(&mut self, carved: &mut Carved, is_sound: bool) {
        let mut lost = Vec::new();
        for (key, entry) in &mut carved.entries {
            let Some((name, 0)) = keys::split_piece(key) else {
                continue;
            };
            let Some(pointer) = Pointer::decode(&entry.value) else {
                continue;
            };
            match self.find(name, &pointer, is_sound) {
                Some(record) => entry.value = [&ONE_PIECE[..], &record].concat(),
                None => lost.push(key.clone()),
            }
        }
        for key in lost {
            carved.entries.remove(&key);
            let name = keys::split_piece(&key).map_or(&key[..], |(name, _)| name);
            let damage = format!("{}: its bytes in the annex are lost", describe(name));
            self.damage.push(damage);
        }
        if is_sound {
            return;
        }
        for (file, from, until) in &self.holes {
            let damage = format!(
                "file {file} of the annex: {} bytes at {from} cannot be read",
                until - from
            );
            self.damage.push(damage);
        }
        for (name, (_, file, at)) in &self.newest {
            let Ok(entry) = Entry::read(&self.files[file][*at..]) else {
                continue;
            };
            let value = || [&ONE_PIECE[..], entry.record].concat();
            let key = keys::first_key(name);
            let found = carved.entries.entry(key);
            found.or_insert_with(|| carve::Entry {
                value: value(),
                at: 0,
            });
        }
    }

    /// Finds the record that a pointer means.
    fn find(&mut self, name: &[u8], pointer: &Pointer, is_sound: bool) -> Option<Vec<u8>> {
        if let Some(found) = self.at(name, pointer) {
            return Some(found);
        }
        if let Some(mended) = self.mend(name, pointer) {
            self.mended += 1;
            return Some(mended);
        }
        // It may have been moved: then sled's pointer is an old one.
        let (_, file, at) = self.newest.get(name)?;
        let entry = Entry::read(&self.files[file][*at..]).ok()?;
        (pointer.fits(&entry) || !is_sound).then(|| entry.record.to_vec())
    }

    fn at(&self, name: &[u8], pointer: &Pointer) -> Option<Vec<u8>> {
        let bytes = self.files.get(&pointer.file)?;
        meant(bytes.get(pointer.offset as usize..)?, name, pointer)
    }

    /// Puts a record right, if a single flipped bit is what is wrong.
    fn mend(&self, name: &[u8], pointer: &Pointer) -> Option<Vec<u8>> {
        let (from, len) = (pointer.offset as usize, pointer.len as usize);
        let bytes = self.files.get(&pointer.file)?;
        let mut bytes = bytes.get(from..from + len)?.to_vec();
        if len > MAX_MENDED || !pointer.is_near(name, &bytes) {
            return None;
        }
        for bit in 0..8 * len {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Some(record) = meant(&bytes, name, pointer) {
                return Some(record);
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }
}

/// Returns the record that `bytes` begin with, if it is the one that is meant.
fn meant(bytes: &[u8], name: &[u8], pointer: &Pointer) -> Option<Vec<u8>> {
    let entry = Entry::read(bytes).ok()?;
    (entry.name == name && pointer.fits(&entry)).then(|| entry.record.to_vec())
}

/// The search for records, with an end.
struct Search {
    /// How many more bytes are hashed in vain.
    left: usize,
}

impl Search {
    /// Reads the record that `bytes` begin with, if there is one.
    fn read<'a>(&mut self, bytes: &'a [u8]) -> Option<Entry<'a>> {
        let claimed = bytes.first_chunk::<4>()?;
        let claimed = u32::from_le_bytes(*claimed) as usize;
        if claimed > bytes.len() || claimed > self.left {
            return None;
        }
        let read = Entry::read(bytes).ok();
        if read.is_none() {
            self.left -= claimed;
        }
        read
    }

    /// Finds where the next record begins, from some place on. Looks at its name before it is hashed.
    fn next(&mut self, bytes: &[u8], from: usize) -> usize {
        let is_named = |bytes: &[u8]| {
            NAMES.iter().any(|(kind, len)| {
                let [low, high] = len.to_le_bytes();
                bytes.get(28..31) == Some(&[low, high, *kind][..])
            })
        };
        let mut places = from..bytes.len();
        let found = places.find(|at| is_named(&bytes[*at..]) && self.read(&bytes[*at..]).is_some());
        found.unwrap_or(bytes.len())
    }
}

/// Hands hostile bytes to the search for records; see `hostile`.
#[cfg(feature = "testing")]
pub(in super::super) fn hostile_annex(pointer: &Pointer, file: &[u8]) {
    let mut annexes = Annexes::default();
    annexes.walk(pointer.file, file);
    annexes.files.insert(pointer.file, file.to_vec());
    let name = keys::Key::letter(crate::ids::RunId::from_bytes([7; 16]), 1);
    let mut carved = Carved::default();
    let entry = carve::Entry {
        value: pointer.encode(),
        at: 0,
    };
    carved.entries.insert(name.piece(0), entry);
    annexes.resolve(&mut carved, false);
}
