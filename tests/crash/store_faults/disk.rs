//! What a preloaded recorder saw a process do to a directory, and what a disk would hold of it after a power cut.
//!
//! Owns the recorder (`shim.c`), its log, and a disk that keeps synced bytes and whatever else it is told to. It knows
//! nothing of stores: the tests of the store and the battery put theirs on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The recorder's source.
const SHIM: &str = include_str!("../shim.c");

/// One thing the child did.
#[derive(Debug)]
pub(crate) struct Record {
    /// What it did; `A` is a line on standard output.
    pub(crate) kind: u8,
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) data: Vec<u8>,
}

/// A file, with what of it is on the disk and what is not yet.
#[derive(Debug, Default, Clone)]
struct Inode {
    synced: Vec<u8>,
    /// Writes and truncations since.
    pending: Vec<(u64, Option<Vec<u8>>)>,
}

/// What may survive by luck.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    /// A change of a name.
    Name,
    /// A write to a file or a cut of it, the first since its sync being number 0.
    Write(usize),
    /// A page of a write: the system writes pages back in any order.
    Page,
}

/// What the system writes back as one.
const PAGE: usize = 4096;

/// A disk that keeps only what was synced, names of files and directories included.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    directories: BTreeSet<PathBuf>,
    synced_directories: BTreeSet<PathBuf>,
}

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

/// Does a part of a write: those of its pages that are lucky. With any of them the file has its length.
fn apply_pages(
    bytes: &mut Vec<u8>,
    offset: u64,
    data: &[u8],
    is_lucky: &mut dyn FnMut(Part) -> bool,
) {
    let begin = usize::try_from(offset).expect("a small file");
    let end = begin + data.len();
    let mut at = begin;
    while at < end {
        let next = ((at / PAGE + 1) * PAGE).min(end);
        if is_lucky(Part::Page) {
            bytes.resize(bytes.len().max(end), 0);
            bytes[at..next].copy_from_slice(&data[at - begin..next - begin]);
        }
        at = next;
    }
}

impl Disk {
    fn inode(&mut self, path: &Path) -> Option<&mut Inode> {
        let number = *self.names.get(path)?;
        Some(&mut self.inodes[number])
    }

    /// Does to the disk what was recorded.
    pub(crate) fn play(&mut self, record: &Record) {
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

    /// Returns the names that survive: the synced ones, and any of the others that are lucky,
    /// each on its own. A removal that was not synced may be forgotten.
    fn surviving_names(&self, is_lucky: &mut dyn FnMut(Part) -> bool) -> BTreeMap<PathBuf, usize> {
        let mut names = self.synced_names.clone();
        let both: BTreeSet<&PathBuf> = names.keys().chain(self.names.keys()).collect();
        let both: Vec<PathBuf> = both.into_iter().cloned().collect();
        for path in both {
            if self.names.get(&path) == self.synced_names.get(&path) || !is_lucky(Part::Name) {
                continue;
            }
            match self.names.get(&path) {
                Some(number) => names.insert(path, *number),
                None => names.remove(&path),
            };
        }
        names
    }

    /// Writes what survives into a directory: what was synced, and of the rest each write of each file and each change
    /// of a name that is lucky. Of a write that is not, pages may be.
    pub(crate) fn survive(&self, from: &Path, to: &Path, is_lucky: &mut dyn FnMut(Part) -> bool) {
        let _ = fs::remove_dir_all(to);
        fs::create_dir_all(to).expect("made");
        for path in &self.synced_directories {
            let inside = path.strip_prefix(from).expect("recorded below it");
            fs::create_dir_all(to.join(inside)).expect("made");
        }
        for (path, number) in &self.surviving_names(is_lucky) {
            let parent = path.parent().expect("inside the store");
            if parent != from && !self.synced_directories.contains(parent) {
                continue; // the directory it is in is lost
            }
            let inode = &self.inodes[*number];
            let mut bytes = inode.synced.clone();
            for (write, (offset, data)) in inode.pending.iter().enumerate() {
                if is_lucky(Part::Write(write)) {
                    apply(&mut bytes, *offset, data.as_deref());
                } else if let Some(data) = data {
                    apply_pages(&mut bytes, *offset, data, is_lucky);
                }
            }
            let inside = path.strip_prefix(from).expect("recorded below it");
            fs::write(to.join(inside), bytes).expect("written");
        }
    }
}

/// Compiles the recorder, to be preloaded.
pub(crate) fn shim(directory: &Path) -> PathBuf {
    let library = directory.join("shim.so");
    let mut compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-x", "c", "-o"])
        .arg(&library)
        .args(["-", "-ldl", "-lpthread"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test needs a C compiler called `cc` (on Debian: apt install gcc)");
    let mut source = compiler.stdin.take().expect("piped");
    source.write_all(SHIM.as_bytes()).expect("it reads");
    drop(source);
    let output = compiler.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "the shim does not compile:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    library
}

/// Reads the shim's log. Its last record may be cut off: threads of the child may be at work when it ends.
pub(crate) fn parse(mut rest: &[u8]) -> Vec<Record> {
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
