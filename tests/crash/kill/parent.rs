//! The one who kills: starts a child, hears what it was told, kills it, starts the next.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use workflow_runtime::RunId;

use crate::child::{Line, Transferred};

pub(crate) const CHILD_DIR: &str = "KILL_TEST_DIR";
pub(crate) const CHILD_FIRST: &str = "KILL_TEST_FIRST";
pub(crate) const CHILD_UNTIL: &str = "KILL_TEST_UNTIL";

/// A child that is not done after so long is stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// The latest kill after the start of a process: it finds the opening of the store, and replay.
const EARLY: Duration = Duration::from_millis(60);

/// The latest kill after the engine is open: it finds runs at every stage.
const LATE: Duration = Duration::from_millis(300);

/// What the children were told. Whatever is in here must be true for ever.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) started: BTreeMap<u64, RunId>,
    pub(crate) finished: BTreeMap<u64, Transferred>,
    /// Parcels of errands, by number.
    pub(crate) sent: BTreeSet<(u64, u64)>,
    pub(crate) delivered: BTreeSet<u64>,
}

impl Told {
    fn hear(&mut self, line: Line) {
        match line {
            Line::Ready => {}
            Line::Started(number, run) => {
                let first = *self.started.entry(number).or_insert(run);
                assert_eq!(first, run, "transfer {number} became another run");
            }
            Line::Finished(number, result) => {
                let first = *self.finished.entry(number).or_insert(result);
                assert_eq!(first, result, "the result of transfer {number} changed");
            }
            Line::Sent(number, parcel, new) => {
                let first = self.sent.insert((number, parcel));
                assert!(first || !new, "parcel {number}/{parcel} was forgotten");
            }
            Line::Delivered(number) => {
                self.delivered.insert(number);
            }
            Line::Trouble(trouble) => panic!("a child is in trouble: {trouble}"),
        }
    }

    /// The first transfer whose result nobody was told.
    fn first_unfinished(&self) -> u64 {
        (0..)
            .find(|number| !self.finished.contains_key(number))
            .expect("finitely many finished")
    }

    /// One after the last transfer that anybody was told of.
    fn end(&self) -> u64 {
        self.started
            .last_key_value()
            .map_or(1, |(last, _)| last + 1)
    }
}

/// Kills child after child, then lets one finish what they began.
pub(crate) fn kill_and_restart(dir: &Path, kills: u64, seed: u64) -> Told {
    let mut told = Told::default();
    let mut random = Random(seed);
    for kill in 0..kills {
        let (mut process, lines) = Process::spawn(dir, told.first_unfinished(), None);
        if kill % 4 == 3 {
            listen(&mut told, &lines, random.up_to(EARLY));
        } else {
            wait_until_ready(&mut told, &lines);
            listen(&mut told, &lines, random.up_to(LATE));
        }
        process.kill();
        // What it said before it died was said.
        lines.iter().for_each(|line| told.hear(line));
    }
    let (mut process, lines) = Process::spawn(dir, told.first_unfinished(), Some(told.end()));
    let deadline = Instant::now() + PATIENCE;
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        told.hear(line);
    }
    assert!(Instant::now() < deadline, "the last child is stuck");
    let status = process.0.wait().expect("it can be waited for");
    assert!(status.success(), "the last child: {status}");
    told
}

fn wait_until_ready(told: &mut Told, lines: &Receiver<Line>) {
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(Line::Ready) => return,
            Ok(line) => told.hear(line),
            Err(problem) => panic!("a child did not open its engine: {problem}"),
        }
    }
}

/// Hears what is said for a while.
fn listen(told: &mut Told, lines: &Receiver<Line>, time: Duration) {
    let end = Instant::now() + time;
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => told.hear(line),
            Err(RecvTimeoutError::Timeout) => return,
            Err(RecvTimeoutError::Disconnected) => panic!("a child ended by itself"),
        }
    }
}

/// A child that does not outlive the test.
struct Process(Child);

impl Process {
    fn spawn(dir: &Path, first: u64, until: Option<u64>) -> (Self, Receiver<Line>) {
        let mut command = Command::new(std::env::current_exe().expect("a test knows itself"));
        command
            .args(["--exact", "child_entry", "--nocapture"])
            .env(CHILD_DIR, dir)
            .env(CHILD_FIRST, first.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        match until {
            Some(until) => command.env(CHILD_UNTIL, until.to_string()),
            None => command.env_remove(CHILD_UNTIL),
        };
        let mut child = command.spawn().expect("the child starts");
        let stdout = child.stdout.take().expect("it was asked for");
        let (said, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines
                .filter_map(|line| Line::parse(&line))
                .try_for_each(|line| said.send(line))
        });
        (Self(child), lines)
    }

    /// Kills it with SIGKILL. It must not have ended by itself.
    fn kill(&mut self) {
        self.0.kill().expect("it can be killed");
        let status = self.0.wait().expect("it can be waited for");
        assert_eq!(status.code(), None, "it ended by itself: {status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// SplitMix64: the same moments for the same seed.
struct Random(u64);

impl Random {
    fn up_to(&mut self, longest: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let micros = u64::try_from(longest.as_micros()).expect("a short while");
        Duration::from_micros(mixed % micros)
    }
}
