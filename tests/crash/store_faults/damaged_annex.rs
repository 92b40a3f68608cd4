//! Damage in files of the annex: the record that it hit is named, and all others are there, can be read, and the store goes on.
//!
//! Owns the damage. What is done about it is in `tests/repair`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use workflow_runtime::store::sled::SledStore;
use workflow_runtime::store::{Creation, Store, StoreError};

use super::cut::spread;
use super::damage::{copy, furnish, open, stories};
use super::lying::{Lying, lying};
use super::story;
use super::work::{Expected, Look, ending, id, look, new_run};

/// What is zeroed at once.
const PAGE: usize = 4096;

/// How many records are hit by a flipped bit each, and how often a file is cut.
const RECORDS: usize = 24;
const CUTS: usize = 6;

/// The run that is created behind the damage, and the length of its frames: too long for the log alone.
const LATER: u64 = 7_000;
const LATER_LEN: usize = 20_000;

#[derive(Debug, Clone, Copy)]
enum Damage {
    Flip(usize),
    Zero(usize),
    Cut(usize),
    Missing,
}

impl Damage {
    /// Does it to a file, and says what it hit.
    fn hit(self, path: &Path, lying: &[Lying]) -> Vec<Lying> {
        let mut bytes = fs::read(path).expect("readable");
        let (from, until) = match self {
            Self::Flip(at) => (at, at + 1),
            Self::Zero(at) => (at, at + PAGE),
            Self::Cut(at) => (at, usize::MAX),
            Self::Missing => (0, usize::MAX),
        };
        match self {
            Self::Flip(at) => bytes[at] ^= 1 << (at % 8),
            Self::Zero(at) => {
                let end = bytes.len().min(until);
                bytes[at..end].fill(0);
            }
            Self::Cut(at) => bytes.truncate(at),
            Self::Missing => {}
        }
        fs::write(path, bytes).expect("written");
        if matches!(self, Self::Missing) {
            fs::remove_file(path).expect("removed");
        }
        let hit = lying.iter();
        let hit = hit.filter(|one| one.at.start < until && from < one.at.end);
        hit.cloned().collect()
    }
}

/// A store in an annex of one file.
struct Furnished {
    path: PathBuf,
    runs: Vec<Expected>,
    lying: Vec<Lying>,
}

fn annex_file(store: &Path) -> PathBuf {
    store.join("annex/00000000000000000000.annex")
}

/// Looks at everything in a damaged store. Returns how many runs cannot be read: each says which record it is, and that one was
/// hit.
async fn look_around(store: &SledStore, furnished: &Furnished, hit: &[Lying], what: &str) -> usize {
    let places: BTreeSet<&str> = hit.iter().map(|one| &*one.place).collect();
    let told = stories();
    let mut refused = 0;
    let all = furnished.runs.iter().map(|run| run.n);
    for n in all.chain(told.iter().map(|told| told.n)) {
        let found = match furnished.runs.iter().find(|run| run.n == n) {
            Some(run) => look(store, *run).await,
            None => {
                let told = told.iter().find(|told| told.n == n);
                story::look(store, *told.expect("one of both")).await
            }
        };
        match found {
            Look::Sound => continue,
            Look::Refused => refused += 1,
            other => panic!("{what}: {other:?} in run {n}"),
        }
        let journal = store.journal(id(n)).await.err();
        let mail = store.mail(id(n), 0).await.err();
        for error in journal.into_iter().chain(mail) {
            let StoreError::Corrupt { place, .. } = &error else {
                panic!("{what}: {error}");
            };
            let mut hit = hit.iter();
            let is_named = hit.any(|one| one.place == *place && one.run == id(n));
            assert!(is_named, "{what}: run {n}: {error}");
        }
    }
    match store.check().await {
        Ok(()) => assert_eq!(refused, 0, "{what}: the check found nothing"),
        Err(StoreError::Corrupt { place, .. }) => {
            assert!(places.contains(&*place), "{what}: the check says {place}");
        }
        Err(other) => panic!("{what}: {other}"),
    }
    refused
}

/// Damages a copy, looks at it, and goes on with it. Returns whether anybody noticed.
async fn damage(furnished: &Furnished, path: &Path, damage: Damage) -> bool {
    let what = format!("{damage:?}");
    let _ = fs::remove_dir_all(path);
    copy(&furnished.path, path);
    let hit = damage.hit(&annex_file(path), &furnished.lying);
    let store = match open(path) {
        Ok(store) => store,
        // A letter waits for a run that is in memory: it is read when the store is opened.
        Err(StoreError::Corrupt { place, .. }) => {
            let is_named = hit.iter().any(|one| one.place == place);
            assert!(is_named && place.contains("letter"), "{what}: {place}");
            return true;
        }
        Err(other) => panic!("{what}: {other}"),
    };
    let noticed = look_around(&store, furnished, &hit, &what).await > 0;
    // The store goes on, and what is new is archived.
    let created = store.create(new_run(LATER, LATER_LEN)).await;
    let Creation::Created(epoch) = created.expect("created") else {
        panic!("{what}: {LATER} is taken");
    };
    let ended = store.append(ending(LATER, epoch, 1, LATER_LEN)).await;
    ended.expect("ended");
    store.close().await.expect("nothing has failed");
    let store = open(path).unwrap_or_else(|error| panic!("{what}: {error}"));
    let later = Expected {
        n: LATER,
        frames: 2,
        len: LATER_LEN,
    };
    assert_eq!(look(&store, later).await, Look::Sound, "{what}");
    let again = look_around(&store, furnished, &hit, &what).await > 0;
    assert_eq!(again, noticed, "{what}: it is as damaged as before");
    noticed
}

#[tokio::test]
async fn damage_in_the_annex_is_named_by_run_and_record_and_hits_nobody_else() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("sound");
    let runs = furnish(&path).await;
    let bytes = fs::read(annex_file(&path)).expect("an annex of one file");
    let furnished = Furnished {
        path,
        runs,
        lying: lying(&bytes),
    };
    let all: Vec<usize> = (0..furnished.lying.len()).collect();
    assert!(all.len() > RECORDS, "{}", all.len());
    let mut damages = vec![Damage::Missing];
    for (number, at) in spread(&all, RECORDS).into_iter().enumerate() {
        let at = furnished.lying[at].at.clone();
        // In the length, in the hash, in the name, and anywhere in the record.
        let inside = [0, 9, 40, at.len() / 2][number % 4];
        damages.push(Damage::Flip(at.start + inside.min(at.len() - 1)));
    }
    damages.extend((0..bytes.len()).step_by(PAGE).map(Damage::Zero));
    damages.extend((0..CUTS).map(|part| Damage::Cut(bytes.len() * part / CUTS)));
    let mut noticed = 0;
    let copy = directory.path().join("copy");
    for one in &damages {
        noticed += usize::from(damage(&furnished, &copy, *one).await);
    }
    assert!(
        noticed * 2 > damages.len(),
        "{noticed} of {}",
        damages.len()
    );
}
