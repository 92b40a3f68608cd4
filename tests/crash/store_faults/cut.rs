//! Power cuts: the one walk over a recording of a child, with cuts at chosen moments.
//!
//! A preloaded shim (`shim.c`) records every write and every sync of a child that works on a store. Owns the recording, what survives
//! of it at a moment, and the look at what survived. Never chooses moments: `power`, `reuse`, `annex` and `compaction` do.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use workflow_runtime::store::Store;
use workflow_runtime::store::sled::{SledOptions, SledStore};

use super::child;
use super::disk::{Disk, Part, Record, parse, shim};
use super::said::Said;
use super::story;
use super::work::{self, Look, Numbers, look};

/// What of the unsynced survives.
#[derive(Debug, Clone, Copy)]
pub(super) enum Luck {
    None,
    /// Each write of each file and each change of a name on its own, as this seed has it.
    Some(u64),
    /// Each page of each write on its own, so many in eight.
    Pages(u64, u64),
    /// All changes of names, and nothing else.
    Names,
    /// All of it but this one of the writes of each file: the first is number 0.
    Without(usize),
}

impl Luck {
    /// Writes what survives on a disk into a directory.
    fn survive(self, disk: &Disk, from: &Path, to: &Path) {
        let mut coin = Numbers(match self {
            Self::None | Self::Names | Self::Without(_) => 0,
            Self::Some(seed) | Self::Pages(seed, _) => seed,
        });
        disk.survive(from, to, &mut |part| match (self, part) {
            (Self::None, _) => false,
            (Self::Names, part) => matches!(part, Part::Name),
            (Self::Without(lost), Part::Write(number)) => number != lost,
            (Self::Pages(_, in_eight), Part::Page) => coin.below(8) < in_eight,
            (Self::Pages(..), Part::Write(_)) | (Self::Some(_) | Self::Without(_), Part::Page) => {
                false
            }
            (_, Part::Name) | (Self::Some(_), Part::Write(_)) => coin.below(2) == 0,
        });
    }
}

/// What became of a store after a power cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Kept,
    Lost(String),
}

/// A power cut, and what became of the store.
#[derive(Debug)]
pub(super) struct Cut {
    /// The last record that was before it.
    after: usize,
    luck: Luck,
    outcome: Outcome,
}

/// What children did to a store.
#[derive(Debug)]
pub(super) struct Recording {
    directory: TempDir,
    /// Where their store is.
    pub(super) store: PathBuf,
    pub(super) records: Vec<Record>,
}

impl Recording {
    /// Begins with a new directory, in which nothing was done yet.
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self {
            store: directory.path().join("store"),
            directory,
            records: Vec::new(),
        }
    }

    /// Records a child at work.
    pub(super) fn of(task: &str) -> Self {
        let mut recording = Self::new();
        recording.go_on(task);
        recording
    }

    /// Records another child that goes on with the store.
    pub(super) fn go_on(&mut self, task: &str) {
        let status = self.child(task).status().expect("the child starts");
        assert!(status.success(), "the child failed at `{task}`");
        self.read();
    }

    /// Prepares a child whose work is recorded, behind that of earlier ones.
    pub(super) fn child(&self, task: &str) -> Command {
        let mut command = child::command(task, &self.store);
        command
            .env("LD_PRELOAD", shim(self.directory.path()))
            .env("SHIM_LOG", self.directory.path().join("log"))
            .stdout(std::process::Stdio::null());
        command
    }

    /// Reads what was recorded.
    pub(super) fn read(&mut self) {
        let bytes = fs::read(self.directory.path().join("log")).expect("the shim wrote a log");
        self.records = parse(&bytes);
    }

    /// Returns the records that are meant.
    pub(super) fn which(&self, is_meant: impl Fn(&Record) -> bool) -> Vec<usize> {
        let all = 0..self.records.len();
        all.filter(|at| is_meant(&self.records[*at])).collect()
    }

    /// Cuts the power right after each of these records, once with each luck, and returns what became of the store.
    pub(super) async fn cut(
        &self,
        moments: impl IntoIterator<Item = usize>,
        lucks: impl Fn(usize) -> Vec<Luck>,
    ) -> Vec<Cut> {
        let moments: BTreeSet<usize> = moments.into_iter().collect();
        let after = self.directory.path().join("after");
        let mut disk = Disk::default();
        let mut said = String::new();
        let mut cuts = Vec::new();
        for (at, record) in self.records.iter().enumerate() {
            if record.kind == b'A' {
                said.push_str(&String::from_utf8_lossy(&record.data));
            }
            disk.play(record);
            if !moments.contains(&at) {
                continue;
            }
            let said = Said::of(&said);
            for luck in lucks(at) {
                luck.survive(&disk, &self.store, &after);
                cuts.push(Cut {
                    after: at,
                    luck,
                    outcome: examine(&after, &said).await,
                });
            }
        }
        cuts
    }

    /// The same, and expects that nothing is lost. Returns how often the power was cut.
    pub(super) async fn expect_kept(
        &self,
        what: &str,
        moments: impl IntoIterator<Item = usize>,
        lucks: impl Fn(usize) -> Vec<Luck>,
    ) -> usize {
        let cuts = self.cut(moments, lucks).await;
        let lost = cuts.iter().filter(|cut| !cut.is_kept());
        let lost: Vec<String> = lost.map(Cut::text).collect();
        assert!(lost.is_empty(), "`{what}`, power cuts: {lost:#?}");
        cuts.len()
    }
}

impl Cut {
    /// Says when it was and what became of the store.
    pub(super) fn text(&self) -> String {
        let Self {
            after,
            luck,
            outcome,
        } = self;
        format!("after record {after}, {luck:?}: {outcome:?}")
    }

    pub(super) fn is_kept(&self) -> bool {
        self.outcome == Outcome::Kept
    }
}

/// Opens a store and looks whether all is there that was acknowledged.
pub(super) async fn examine(path: &Path, said: &Said) -> Outcome {
    let store = match SledStore::open(path, SledOptions::default()) {
        Ok(store) => store,
        Err(error) if said.is_empty() => {
            // Nobody was told of anything; but a crash must not make a directory unusable.
            return Outcome::Lost(format!("nothing was acknowledged, and yet: {error}"));
        }
        Err(error) => return Outcome::Lost(error.to_string()),
    };
    for run in &said.acknowledged {
        match look(&store, *run).await {
            Look::Sound => {}
            Look::Wrong => panic!("wrong data in {run:?}"),
            other => return Outcome::Lost(format!("{other:?}: {run:?}")),
        }
    }
    for told in &said.told {
        match story::look(&store, *told).await {
            Look::Sound => {}
            Look::Wrong => panic!("wrong data in {told:?}"),
            other => return Outcome::Lost(format!("{other:?}: {told:?}")),
        }
    }
    for n in &said.gone {
        if !matches!(store.header(work::id(*n)).await, Ok(None)) {
            return Outcome::Lost(format!("run {n} was deleted, and is back"));
        }
    }
    if let Err(error) = store.check().await {
        return Outcome::Lost(error.to_string());
    }
    Outcome::Kept
}

/// Returns how many cuts the variable `STORE_CUTS` asks for.
pub(super) fn cuts(usual: usize) -> usize {
    let cuts = std::env::var("STORE_CUTS").ok();
    cuts.and_then(|cuts| cuts.parse().ok()).unwrap_or(usual)
}

/// Returns some of these, spread evenly, the last one included.
pub(super) fn spread(all: &[usize], most: usize) -> Vec<usize> {
    let most = most.min(all.len());
    (1..=most).map(|i| all[i * all.len() / most - 1]).collect()
}
