//! Power cuts where sled is most at risk: while it begins segments of its file.
//!
//! sled says in the header of a segment up to where its log is stable. When it opens, it looks for torn writes from the
//! segment on in which that lies, and it uses segments again by it. But it never syncs: what it calls stable is what it wrote.
//! Owns the check that this never misleads it, and cuts where most is not synced. Never opens sled.

use std::collections::BTreeMap;

use super::cut::{Luck, Recording, cuts};
use super::disk::Record;

/// The size of sled's segments.
const SEGMENT: u64 = 1024 * 1024;

/// What sled leaves free at the end of a segment, because no message may begin there.
const RED_ZONE: u64 = 32;

/// How many syncs are cut before, unless the variable `STORE_CUTS` says more.
const WORST: usize = 5;

/// A task in which sled is made to collect each time that it is opened, because its file may hardly be longer than that of the
/// log: the first round of a process comes soon.
const COLLECTING: &str = "tell 5 250 3000 small";

/// How the survivors of a cut are chosen.
const LUCKS: [fn(u64) -> Luck; 6] = [
    |_| Luck::Without(0),
    |_| Luck::Without(1),
    |_| Luck::Without(2),
    Luck::Some,
    |seed| Luck::Pages(seed, 4),
    |seed| Luck::Pages(seed, 7),
];

/// What the header of a segment says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    /// The log position at which the segment begins.
    begins: u64,
    /// The last position of the log that is stable; -1 if none is.
    stable: i64,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
            Some(i64::from_le_bytes(bytes) ^ i64::MAX)
        };
        let header = Self {
            begins: u64::try_from(number(4)?).ok()?,
            stable: number(12)?,
        };
        header.begins.is_multiple_of(SEGMENT).then_some(header)
    }

    /// Says whether sled would look for torn writes behind where they may be. It does so from the beginning of the segment
    /// on in which the stable position lies: that beginning has to be synced, and what is not synced lies behind it.
    fn misleads(&self, synced: u64) -> bool {
        u64::try_from(self.stable).is_ok_and(|stable| stable / SEGMENT * SEGMENT >= synced)
    }
}

/// What of sled's log was written, and what of that was synced.
#[derive(Debug, Default)]
struct Followed {
    /// Where in its log each segment of the file begins, and how far it is filled.
    segments: BTreeMap<u64, (u64, u64)>,
    /// How far segments were filled since the last sync, and which were begun.
    filled: BTreeMap<u64, u64>,
    begun: Vec<(u64, Header)>,
    /// The log position behind all that is synced.
    synced: u64,
}

/// What happened between two syncs of sled's file.
#[derive(Debug)]
struct Window {
    /// The record of the sync that ended it.
    at: usize,
    /// How many segments were begun.
    begun: usize,
    /// How many of them were used before.
    again: usize,
    /// Bytes of log.
    len: u64,
    /// Headers that mislead sled if they survive, and what was written before them does not.
    wrong: Vec<Header>,
}

impl Followed {
    fn write(&mut self, record: &Record) {
        if record.data.iter().all(|byte| *byte == 0) {
            return; // what is free is wiped when sled opens
        }
        let segment = record.offset / SEGMENT;
        let within = record.offset % SEGMENT;
        let filled = self.filled.entry(segment).or_default();
        *filled = (*filled).max(within + record.data.len() as u64);
        if within == 0
            && let Some(header) = Header::read(&record.data)
        {
            self.begun.push((segment, header));
        }
    }

    fn sync(&mut self, at: usize) -> Window {
        let before = self.synced;
        let wrong = self.begun.iter().map(|(_, header)| *header);
        let wrong = wrong.filter(|header| header.misleads(before)).collect();
        let begun = std::mem::take(&mut self.begun);
        let again = begun
            .iter()
            .filter(|(segment, _)| self.segments.contains_key(segment));
        let again = again.count();
        for (segment, header) in &begun {
            self.segments.insert(*segment, (header.begins, 0));
        }
        for (segment, filled) in std::mem::take(&mut self.filled) {
            if let Some((_, end)) = self.segments.get_mut(&segment) {
                *end = (*end).max(filled);
            }
        }
        let ends = self.segments.values().map(|(begins, filled)| {
            let full = SEGMENT - filled <= RED_ZONE;
            begins + if full { SEGMENT } else { *filled }
        });
        self.synced = ends.max().unwrap_or(0);
        Window {
            at,
            begun: begun.len(),
            again,
            len: self.synced.saturating_sub(before),
            wrong,
        }
    }
}

/// Follows a recording, and returns what happened between the syncs of sled's file.
fn windows(recording: &Recording) -> Vec<Window> {
    let database = recording.store.join("db");
    let mut followed = Followed::default();
    let mut windows = Vec::new();
    for (at, record) in recording.records.iter().enumerate() {
        match record.kind {
            _ if record.path != database => {}
            b'W' => followed.write(record),
            b'S' => windows.push(followed.sync(at)),
            _ => {}
        }
    }
    windows
}

/// Cuts the power right before syncs of sled's file, where most segments were begun since the last one.
async fn expect_kept_at_the_worst(task: &str) {
    let worst = |window: &Window| (window.wrong.len(), window.begun, window.len);
    expect_kept(task, &Recording::of(task), worst).await;
}

/// Cuts the power right before those syncs of sled's file that are the worst.
async fn expect_kept<K: Ord>(task: &str, recording: &Recording, worst: impl Fn(&Window) -> K) {
    let mut windows = windows(recording);
    windows.sort_by_key(|window| std::cmp::Reverse(worst(window)));
    windows.truncate(cuts(WORST));
    let lucks = |at: usize| {
        let numbered = LUCKS.iter().enumerate();
        let lucks =
            numbered.map(|(number, luck)| luck(seed() ^ (at * LUCKS.len() + number) as u64));
        lucks.collect()
    };
    let what = format!("{task}, seed {}, {windows:?}", seed());
    let moments: Vec<usize> = windows.iter().map(|window| window.at - 1).collect();
    recording.expect_kept(&what, moments, lucks).await;
}

/// Returns what another run of these tests has else, if `STORE_SEED` says so.
fn seed() -> u64 {
    let seed = std::env::var("STORE_SEED").ok();
    seed.and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

#[test]
fn sled_looks_for_torn_writes_from_a_synced_segment_on() {
    // Of all that goes to sled notes are the longest.
    for task in ["tell 2 60 30000", "tell 3 90 20000", COLLECTING] {
        let windows = windows(&Recording::of(task));
        let begun: usize = windows.iter().map(|window| window.begun).sum();
        assert!(begun > 2, "`{task}` begins segments: {windows:?}");
        let wrong: Vec<&Window> = windows.iter().filter(|w| !w.wrong.is_empty()).collect();
        assert!(wrong.is_empty(), "`{task}`: {wrong:#?}");
    }
}

/// Where the variable `STORE_TASK` says so, of another task.
#[tokio::test]
async fn a_power_cut_while_sled_begins_segments_loses_nothing() {
    let task = std::env::var("STORE_TASK");
    expect_kept_at_the_worst(task.as_deref().unwrap_or("tell 2 90 30000")).await;
}

/// Segments of which little is needed are emptied and used again: the power is cut where that was just done.
#[tokio::test]
async fn a_power_cut_while_sled_collects_loses_nothing() {
    let recording = Recording::of(COLLECTING);
    let windows = windows(&recording);
    let again: usize = windows.iter().map(|window| window.again).sum();
    assert!(again >= WORST, "segments are used again: {again}");
    let worst = |window: &Window| (window.wrong.len(), window.again, window.begun, window.len);
    expect_kept(COLLECTING, &recording, worst).await;
}

/// What a killed process wrote is in the system's memory, and all that it left is read from there. sled takes that for
/// stable, and wipes segments by it.
#[tokio::test]
async fn a_power_cut_while_the_store_of_a_killed_process_is_opened_loses_nothing() {
    let mut recording = Recording::new();
    let killed = recording
        .child("grow 1 160 30000 sync")
        .env("FAIL_FILE", "/db")
        .env("KILL_BEFORE_WRITE", "12")
        .status()
        .expect("the child starts");
    assert!(!killed.success(), "it was killed");
    recording.read();
    let begun = recording.records.len();
    recording.go_on("grow 1 1 30000 sync");
    let database = recording.store.join("db");
    let mut changes = recording.which(|record| record.path == database && record.kind != b'C');
    changes.retain(|at| *at >= begun);
    assert_eq!(
        changes.first().map(|at| recording.records[*at].kind),
        Some(b'S'),
        "what is there is synced before sled changes anything"
    );
    changes.truncate(WORST);
    let lucks = |at| vec![Luck::Without(0), Luck::Some(at as u64)];
    recording
        .expect_kept("opened after a kill", changes, lucks)
        .await;
}
