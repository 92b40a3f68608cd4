//! Power cuts on real files: only what was synced survives, or that and some of the rest.
//!
//! A preloaded recorder writes down what a process does to its store. The directory is rebuilt from it as a disk would hold
//! it at some moments, and everything that was acknowledged by then goes on to its end.

use std::fs;

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::disk::{self, Disk, Part};
use super::scratch;
use super::told::Told;
use crate::chance::Chance;

/// At how many moments of one recording the power is cut. Each time three disks are looked at: the one that kept only
/// what was synced, and two luckier ones.
const MOMENTS: usize = 5;

/// How many transfers of which size are recorded.
const WORK: [(u64, u64); 7] = [
    (40, 0),
    (40, 200),
    (40, 4_096),
    (40, 8_192),
    (150, 30_000),
    (60, 65_536),
    (8, 2_000_000),
];

/// What of the unsynced survives.
enum Luck {
    Nothing,
    /// Half of the names and writes, and of the pages of the other writes.
    Half(Chance),
    /// All but this one of the writes of each file.
    AllBut(usize),
}

impl Luck {
    fn keeps(&mut self, part: Part) -> bool {
        match (self, part) {
            (Self::Nothing, _) | (Self::AllBut(_), Part::Page) => false,
            (Self::Half(coin), _) => coin.once_in(2),
            (Self::AllBut(lost), Part::Write(number)) => number != *lost,
            (Self::AllBut(_), Part::Name) => true,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing of the rest",
            Self::Half(_) => "half of the rest",
            Self::AllBut(_) => "all but one write",
        }
    }
}

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let directory = scratch::directory();
    let (store, log) = (directory.path().join("store"), directory.path().join("log"));
    let (transfers, size) = WORK[usize::try_from(seed).expect("small") % WORK.len()];
    let [until, size] = [transfers, size].map(|number| number.to_string());
    let dir = store.to_string_lossy();
    let mut command = child::command(&["work", &dir, "0", &until, "8", &size]);
    command
        .env("LD_PRELOAD", disk::shim(directory.path()))
        .env("STORE_DIR", &store)
        .env("SHIM_LOG", &log);
    let mut process = Process::start(command);
    let (_, status) = process.hear_out(PATIENCE);
    let mut case = Case::default();
    case.holds(status.is_some_and(|status| status.success()), || {
        format!("14: the recorded process: {status:?}")
    });
    let records = disk::parse(&fs::read(&log).unwrap_or_default());
    let _ = fs::remove_dir_all(&store);
    let _ = fs::remove_file(&log);
    // Right after acknowledgements and in between.
    let said: Vec<usize> = (0..records.len())
        .filter(|at| records[*at].kind == b'A')
        .collect();
    let mut moments: Vec<usize> = (0..MOMENTS)
        .map(|moment| match moment % 2 {
            0 if !said.is_empty() => chance.one_of(&said),
            _ => usize::try_from(chance.below(records.len() as u64)).expect("an index"),
        })
        .collect();
    moments.sort_unstable();
    let after = directory.path().join("after");
    let (mut disk, mut told) = (Disk::default(), Told::default());
    for (at, record) in records.iter().enumerate() {
        if record.kind == b'A' {
            told.hear_text(&String::from_utf8_lossy(&record.data));
        }
        disk.play(record);
        for _ in moments.iter().filter(|moment| **moment == at) {
            let lucks = [
                Luck::Nothing,
                Luck::Half(chance.fork()),
                Luck::AllBut(usize::try_from(chance.below(3)).expect("small")),
            ];
            for mut luck in lucks {
                disk.survive(&store, &after, &mut |part| luck.keeps(part));
                let mut told = told.clone();
                scratch::finish(&after, &mut told);
                case.count += 1;
                case.violations.extend(told.violations.iter().map(|what| {
                    let rest = luck.name();
                    format!("cut after record {at}, {rest} survives: {what}")
                }));
            }
        }
    }
    case.trace = format!(
        "{until} transfers of {size} bytes, {} records",
        records.len()
    );
    case
}
