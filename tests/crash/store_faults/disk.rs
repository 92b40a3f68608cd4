//! A disk that keeps what was synced, and of the rest what luck has it.
//!
//! Owns the record of what a child did to its directory, and what a disk would hold of it after
//! a power cut. Never opens a store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::work::Numbers;

/// One thing the child did.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) kind: u8,
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) data: Vec<u8>,
}

/// A file, with what of it is on the disk and what is not yet.
#[derive(Debug, Default, Clone)]
struct Inode {
    synced: Vec<u8>,
    /// Writes and truncations since.
    pending: Vec<(u64, Option<Vec<u8>>)>,
}

impl Inode {
    /// Returns what is there after a power cut.
    fn survive(&self, luck: Luck, coin: &mut Numbers) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for (number, (offset, data)) in self.pending.iter().enumerate() {
            match (luck, data) {
                (Luck::None, _) => break,
                (Luck::Without(lost), _) => {
                    if number != lost {
                        apply(&mut bytes, *offset, data.as_deref());
                    }
                }
                (Luck::Pages(_, in_eight), Some(data)) => {
                    survive_in_pages(&mut bytes, *offset, data, || coin.below(8) < in_eight);
                }
                (Luck::Some(_) | Luck::Pages(..), _) => {
                    if coin.below(2) == 0 {
                        apply(&mut bytes, *offset, data.as_deref());
                    }
                }
            }
        }
        bytes
    }
}

/// Does a part of a write: those of its pages that are lucky. The file has its length in any case.
fn survive_in_pages(
    bytes: &mut Vec<u8>,
    offset: u64,
    data: &[u8],
    mut lucky: impl FnMut() -> bool,
) {
    let begin = usize::try_from(offset).expect("a small file");
    let end = begin + data.len();
    bytes.resize(bytes.len().max(end), 0);
    let mut at = begin;
    while at < end {
        let next = ((at / PAGE + 1) * PAGE).min(end);
        if lucky() {
            bytes[at..next].copy_from_slice(&data[at - begin..next - begin]);
        }
        at = next;
    }
}

/// A disk that keeps only what was synced, names of files and directories included.
#[derive(Debug, Default)]
pub(super) struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    directories: BTreeSet<PathBuf>,
    synced_directories: BTreeSet<PathBuf>,
}

/// What of the unsynced survives.
#[derive(Debug, Clone, Copy)]
pub(super) enum Luck {
    None,
    /// Each write of each file and each change of a name on its own, as this seed has it.
    Some(u64),
    /// Each page of each write on its own, so many in eight: the system writes pages back in any order.
    Pages(u64, u64),
    /// All of it but this one of the writes of each file: the first is number 0.
    Without(usize),
}

/// What the system writes back as one.
const PAGE: usize = 4096;

fn apply(bytes: &mut Vec<u8>, offset: u64, data: Option<&[u8]>) {
    let offset = usize::try_from(offset).expect("a small file");
    match data {
        None => bytes.resize(offset, 0),
        Some(data) => {
            if bytes.len() < offset + data.len() {
                bytes.resize(offset + data.len(), 0);
            }
            bytes[offset..offset + data.len()].copy_from_slice(data);
        }
    }
}

impl Disk {
    fn inode(&mut self, path: &Path) -> Option<&mut Inode> {
        let number = *self.names.get(path)?;
        Some(&mut self.inodes[number])
    }

    pub(super) fn play(&mut self, record: &Record) {
        let path = &record.path;
        match record.kind {
            b'C' => {
                self.names.insert(path.clone(), self.inodes.len());
                self.inodes.push(Inode::default());
            }
            b'W' => {
                let write = (record.offset, Some(record.data.clone()));
                self.inode(path).expect("created").pending.push(write);
            }
            b'T' => {
                let cut = (record.offset, None);
                self.inode(path).expect("created").pending.push(cut);
            }
            b'S' => match self.inode(path) {
                Some(inode) => {
                    for (offset, data) in std::mem::take(&mut inode.pending) {
                        apply(&mut inode.synced, offset, data.as_deref());
                    }
                }
                None => self.sync_names(path),
            },
            b'R' => {
                let to = PathBuf::from(String::from_utf8(record.data.clone()).expect("a path"));
                let number = self.names.remove(path).expect("created");
                self.names.insert(to, number);
            }
            b'U' => {
                self.names.remove(path);
            }
            b'M' => {
                self.directories.insert(path.clone());
            }
            _ => {}
        }
    }

    /// A directory was synced: the names in it are on the disk.
    fn sync_names(&mut self, directory: &Path) {
        let inside = |path: &Path| path.parent() == Some(directory);
        self.synced_names.retain(|path, _| !inside(path));
        let now = self.names.iter().filter(|(path, _)| inside(path));
        let now = now.map(|(path, number)| (path.clone(), *number));
        self.synced_names.extend(now.collect::<Vec<_>>());
        let made = self.directories.iter().filter(|path| inside(path));
        self.synced_directories.extend(made.cloned());
    }

    /// Returns the names that survive: the synced ones, and with luck any of the others,
    /// each on its own. A removal that was not synced may be forgotten.
    fn surviving_names(&self, luck: Luck, coin: &mut Numbers) -> BTreeMap<PathBuf, usize> {
        let mut names = self.synced_names.clone();
        if matches!(luck, Luck::None) {
            return names;
        }
        let both: BTreeSet<&PathBuf> = names.keys().chain(self.names.keys()).collect();
        let both: Vec<PathBuf> = both.into_iter().cloned().collect();
        for path in both {
            if self.names.get(&path) == self.synced_names.get(&path) || coin.below(2) == 0 {
                continue;
            }
            match self.names.get(&path) {
                Some(number) => names.insert(path, *number),
                None => names.remove(&path),
            };
        }
        names
    }

    /// Writes what survives into a directory.
    pub(super) fn survive(&self, from: &Path, to: &Path, luck: Luck) {
        let _ = fs::remove_dir_all(to);
        fs::create_dir_all(to).expect("made");
        let mut coin = Numbers(match luck {
            Luck::None | Luck::Without(_) => 0,
            Luck::Some(seed) | Luck::Pages(seed, _) => seed,
        });
        for path in &self.synced_directories {
            let inside = path.strip_prefix(from).expect("recorded below it");
            fs::create_dir_all(to.join(inside)).expect("made");
        }
        for (path, number) in &self.surviving_names(luck, &mut coin) {
            let parent = path.parent().expect("inside the store");
            if parent != from && !self.synced_directories.contains(parent) {
                continue; // the directory it is in is lost
            }
            let bytes = self.inodes[*number].survive(luck, &mut coin);
            let inside = path.strip_prefix(from).expect("recorded below it");
            fs::write(to.join(inside), bytes).expect("written");
        }
    }
}

/// Reads the shim's log. Its last record may be cut off: threads of the child may be at work when it ends.
pub(super) fn parse(mut rest: &[u8]) -> Vec<Record> {
    std::iter::from_fn(|| next_record(&mut rest)).collect()
}

fn next_record(rest: &mut &[u8]) -> Option<Record> {
    let mut take = |len: usize| -> Option<&[u8]> {
        let (taken, left) = rest.split_at_checked(len)?;
        *rest = left;
        Some(taken)
    };
    let len = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize;
    let kind = take(1)?[0];
    let path_len = len(take(4)?);
    let path = String::from_utf8(take(path_len)?.to_vec()).expect("a path");
    let offset = take(8)?.try_into().expect("eight bytes");
    let data_len = len(take(4)?);
    let data = take(data_len)?.to_vec();
    Some(Record {
        kind,
        path: path.into(),
        offset: u64::from_le_bytes(offset),
        data,
    })
}
