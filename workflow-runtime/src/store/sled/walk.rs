//! Walks over the records of the database, in the order of their keys.
//!
//! Owns how pieces become records again, and records of the annex are fetched. Never interprets one, never writes.

use bytes::Bytes;

use super::annex::Pointer;
use super::database::{Database, corrupt, describe};
use super::keys;
use crate::store::{StoreError, StoreResult};

/// The key of a piece, and where in the annex its record lies, if it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) key: Vec<u8>,
    pub(super) pointer: Option<Pointer>,
}

impl Held {
    pub(super) fn new(key: &[u8], value: &[u8]) -> Self {
        let is_first = keys::split_piece(key).is_some_and(|(_, number)| number == 0);
        Self {
            key: key.to_vec(),
            pointer: is_first.then(|| Pointer::decode(value)).flatten(),
        }
    }
}

/// A record of a scan.
#[derive(Debug)]
pub(super) enum Scanned {
    /// All its pieces are there.
    Whole {
        name: Vec<u8>,
        record: Bytes,
        pieces: u16,
    },
    /// Some of it is missing.
    Broken { name: Vec<u8>, wrong: String },
}

impl Database {
    /// Scans the records whose names begin with `prefix` and are before `end`, backwards.
    pub(super) fn scan_back(&self, prefix: &[u8], end: &[u8]) -> Scan<'_> {
        Scan {
            database: self,
            iter: self.sled.range(prefix.to_vec()..end.to_vec()),
            prefix: prefix.to_vec(),
            ahead: None,
            backwards: true,
            done: false,
        }
    }

    /// Scans the records whose names begin with `prefix`, from `start` on.
    pub(super) fn scan(&self, prefix: &[u8], start: &[u8]) -> Scan<'_> {
        Scan {
            database: self,
            iter: self.sled.range(start.to_vec()..),
            prefix: prefix.to_vec(),
            ahead: None,
            backwards: false,
            done: false,
        }
    }

    /// Walks over what points to the annex, of one kind of key.
    pub(super) fn pointers(&self, prefix: u8) -> impl Iterator<Item = StoreResult<Pointer>> + '_ {
        let mut iter = self.sled.scan_prefix([prefix]);
        let mut next = move || loop {
            let next = self.call(&describe(&[prefix]), || iter.next().transpose())?;
            let Some((key, value)) = next else {
                return Ok(None);
            };
            if let Some(pointer) = Held::new(&key, &value).pointer {
                return Ok(Some(pointer));
            }
        };
        std::iter::from_fn(move || next().transpose())
    }
}

/// Records in the order of their keys.
pub(super) struct Scan<'a> {
    database: &'a Database,
    iter: sled::Iter,
    prefix: Vec<u8>,
    ahead: Option<(sled::IVec, sled::IVec)>,
    backwards: bool,
    done: bool,
}

impl Scan<'_> {
    fn entry(&mut self) -> StoreResult<Option<(sled::IVec, sled::IVec)>> {
        if let Some(entry) = self.ahead.take() {
            return Ok(Some(entry));
        }
        let (iter, backwards) = (&mut self.iter, self.backwards);
        let place = describe(&self.prefix);
        let next = self.database.call(&place, || match backwards {
            true => iter.next_back().transpose(),
            false => iter.next().transpose(),
        })?;
        Ok(next.filter(|(key, _)| key.starts_with(&self.prefix)))
    }

    fn record(&mut self) -> StoreResult<Option<Scanned>> {
        let Some((key, value)) = self.entry()? else {
            return Ok(None);
        };
        let (name, first) = keys::split_piece(&key)
            .ok_or_else(|| corrupt(describe(&key), "the key is too short"))?;
        let mut pieces = vec![(first, value)];
        while let Some((next, value)) = self.entry()? {
            match keys::split_piece(&next) {
                Some((other, number)) if other == name => pieces.push((number, value)),
                _ => {
                    self.ahead = Some((next, value));
                    break;
                }
            }
        }
        if self.backwards {
            pieces.reverse();
        }
        let name = name.to_vec();
        let joined = match pieces.first() {
            Some((0, first)) if Pointer::decode(first).is_some() => {
                let fetched = self.database.fetch(&name, first.clone());
                match fetched.map(|record| Some((record?, 1))) {
                    Err(StoreError::Corrupt { detail, .. }) => {
                        let wrong = detail;
                        return Ok(Some(Scanned::Broken { name, wrong }));
                    }
                    fetched => fetched?,
                }
            }
            _ => join(&pieces),
        };
        Ok(Some(match joined {
            Some((record, pieces)) => Scanned::Whole {
                name,
                record,
                pieces,
            },
            None => Scanned::Broken {
                name,
                wrong: "pieces of it are missing".to_owned(),
            },
        }))
    }
}

/// Puts the pieces of a record together, and returns how many it has. Pieces past the count
/// are left over from a longer record.
fn join(pieces: &[(u16, sled::IVec)]) -> Option<(Bytes, u16)> {
    let (0, first) = pieces.first()? else {
        return None;
    };
    let (count, head) = keys::first_piece(first)?;
    let mut record = head.to_vec();
    for number in 1..count {
        let (found, piece) = pieces.get(usize::from(number))?;
        if *found != number {
            return None;
        }
        record.extend_from_slice(piece);
    }
    Some((record.into(), count))
}

impl Iterator for Scan<'_> {
    type Item = StoreResult<Scanned>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.record();
        self.done = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}
