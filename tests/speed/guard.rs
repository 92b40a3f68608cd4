//! The guard against getting slower: instructions of a live step and of a replayed one, against what is on record.
//!
//! Instructions, because they are the same on a busy machine, where times are not. They are counted by callgrind, of a program
//! in the release profile (`main.rs`), and read from its file. The figures on record are in `counts.txt`; new ones are
//! accepted with `WORKFLOW_ACCEPT_COUNTS=1`.
//!
//! Without `valgrind` this does nothing and says so; if `VALGRIND` names one, as `scripts/test` does, it must be there.
//! Owns the counting and the comparison. Never says how long anything takes: `bench/` does.

#![expect(clippy::print_stdout, reason = "what was counted is worth reading")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How far a count may be from the one on record, both ways: fewer are accepted too, or the next change could use them up unseen.
/// Equal builds differ by less than a thousandth, and so do processors; one hash of one block too many is 0.037 of a live step, and has to be
/// seen.
const TOLERANCE: f64 = 0.03;

/// Two lengths of the same run: what both have (a start, an opening, an end) falls out of their difference.
const STEPS: [u64; 2] = [2_000, 6_000];

/// The figures on record.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.txt");

/// A name and what it counts.
type Counts = BTreeMap<String, f64>;

fn valgrind() -> Option<PathBuf> {
    let asked_for = std::env::var_os("VALGRIND");
    let program = PathBuf::from(asked_for.clone().unwrap_or_else(|| "valgrind".into()));
    let version = Command::new(&program).arg("--version").output();
    let is_there = version.is_ok_and(|output| output.status.success());
    assert!(
        is_there || asked_for.is_none(),
        "VALGRIND names {program:?}, which does not run"
    );
    is_there.then_some(program)
}

/// Builds the program that is counted, beside what is being tested, and returns its path.
fn program() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let target = target.expect("it is in the target directory");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--release", "--locked"])
        .args(["--package", "speed", "--bin", "speed", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    let built = built.expect("cargo starts");
    assert!(built.success(), "the program that is counted is not built");
    target.join("release/speed")
}

/// Runs the program under callgrind and counts all instructions of all its threads.
fn instructions(valgrind: &Path, program: &Path, words: &[&str]) -> f64 {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let out = directory.path().join("callgrind.out");
    let mut command = Command::new(valgrind);
    command
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(words);
    let output = command.stdout(Stdio::null()).output();
    let output = output.expect("valgrind starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?} failed:\n{said}");
    let text = std::fs::read_to_string(&out).expect("callgrind writes its file");
    total(&text).expect("callgrind writes a total")
}

/// Reads the total from callgrind's file.
fn total(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok()
}

/// Counts a step: what the longer run has more, divided by the steps it has more.
fn of_a_step(count: impl Fn(u64) -> f64) -> f64 {
    let [short, long] = STEPS;
    (count(long) - count(short)) / (long - short) as f64
}

fn count_all(valgrind: &Path, program: &Path) -> Counts {
    let in_memory = |word: &str| {
        of_a_step(|steps| instructions(valgrind, program, &[word, &steps.to_string()]))
    };
    let replayed = in_memory("replay") - in_memory("reopen");
    let counts = [(LIVE, in_memory("record")), (REPLAYED, replayed)];
    counts
        .map(|(name, count)| (of_this_machine(name), count))
        .into()
}

const LIVE: &str = "live-step";
const REPLAYED: &str = "replayed-step";

/// Another architecture has other instructions, and another compiler makes others: each has figures of its own.
fn of_this_machine(name: &str) -> String {
    format!("{} {} {name}", std::env::consts::ARCH, compiler())
}

/// The compiler's version without its last number.
fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version
        .expect("the compiler that built this is there")
        .stdout;
    let version = String::from_utf8_lossy(&version);
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    let number = number.rsplit_once('.').map_or(number, |(number, _)| number);
    format!("rustc-{number}")
}

/// Reads figures: an architecture, a name and a count in a line; `#` begins a remark.
fn read(text: &str) -> Counts {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, count) = line.rsplit_once(' ').expect("a name and a count");
            (name.to_owned(), count.parse().expect("a count"))
        })
        .collect()
}

fn write(counts: &Counts) -> String {
    let mut text = String::from(
        "# Instructions of a step, counted by callgrind: see guard.rs. Written by WORKFLOW_ACCEPT_COUNTS=1.\n",
    );
    for (name, count) in counts {
        let _ = writeln!(text, "{name} {count:.0}");
    }
    text
}

/// Says what is wrong with a count, if anything is.
fn complaint(name: &str, counted: f64, on_record: f64) -> Option<String> {
    let change = counted / on_record - 1.0;
    let percent = change * 100.0;
    let what = match (change.abs() <= TOLERANCE, change > 0.0) {
        (true, _) => return None,
        (false, true) => "find out what made it slower (callgrind_annotate), or accept it",
        (false, false) => "it is faster: accept that, so that it stays so",
    };
    Some(format!(
        "{name}: {counted:.0} instructions, {on_record:.0} on record ({percent:+.1} %, allowed are {:.0}): {what} with \
         WORKFLOW_ACCEPT_COUNTS=1 cargo test -p speed",
        TOLERANCE * 100.0
    ))
}

#[test]
fn a_step_takes_as_many_instructions_as_are_on_record() {
    let Some(valgrind) = valgrind() else {
        println!(
            "there is no valgrind here, so nothing is counted: install it, or name it with VALGRIND"
        );
        return;
    };
    let counted = count_all(&valgrind, &program());
    let mut on_record = read(&std::fs::read_to_string(RECORD).unwrap_or_default());
    for (name, count) in &counted {
        println!("{name}: {count:.0} instructions");
    }
    if std::env::var_os("WORKFLOW_ACCEPT_COUNTS").is_some() {
        on_record.extend(counted);
        std::fs::write(RECORD, write(&on_record)).expect("the record can be written");
        return;
    }
    let complaints = counted.iter().filter_map(|(name, count)| {
        let Some(known) = on_record.get(name) else {
            println!("{name}: nothing is on record to compare it with");
            return None;
        };
        complaint(name, *count, *known)
    });
    let complaints: Vec<String> = complaints.collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_count_beyond_the_tolerance_is_named_with_the_way_out() {
    assert_eq!(complaint("x86_64 live-step", 102.0, 100.0), None);
    let slower = complaint("x86_64 live-step", 104.0, 100.0).expect("it is slower");
    assert!(slower.contains("+4.0 %") && slower.contains("WORKFLOW_ACCEPT_COUNTS=1"));
    let faster = complaint("x86_64 live-step", 80.0, 100.0).expect("it is faster");
    assert!(faster.contains("it is faster"), "{faster}");
}

#[test]
fn figures_are_read_back_as_they_were_written() {
    let text = "# a remark\n\nx86_64 live-step 15929\n";
    let counts = read(text);
    assert_eq!(counts.get("x86_64 live-step"), Some(&15_929.0));
    assert_eq!(read(&write(&counts)), counts);
}

#[test]
fn every_figure_of_this_guard_is_on_record() {
    let on_record = read(&std::fs::read_to_string(RECORD).expect("there is a record"));
    for name in [LIVE, REPLAYED] {
        let of_any = |known: &String| known.starts_with("x86_64 ") && known.ends_with(name);
        assert!(on_record.keys().any(of_any), "{name}");
    }
}

#[test]
fn the_total_is_read_from_the_file_that_callgrind_writes() {
    let text = "# callgrind format\nevents: Ir\nfn=(1) main\n3 7\n\ntotals: 32898660\n";
    assert_eq!(total(text), Some(32_898_660.0));
    assert_eq!(total("events: Ir\n"), None);
}
