//! This engine beside others: the same work, the same machine, one run.
//!
//! `-- all` builds what is missing, measures everything in rounds in which the systems take turns, and writes
//! `bench/results/`. Contestants are processes of their own (`bench/rivals/`) that do the workloads of
//! `bench/contest`; what is here starts them, and never does any of the work.

mod build;
mod catalogue;
mod conclude;
mod process;
mod progress;
mod report;
mod rounds;
mod sample;
mod servers;
mod syncs;

use std::path::Path;
use std::time::Instant;

use catalogue::{OWN, Selection, Workload};
use report::{About, Line};
use rounds::Rounds;

/// The folder of this crate.
const BENCH: &str = env!("CARGO_MANIFEST_DIR");

/// Steps of W9.
const FILL: u64 = 1_000_000;

/// Workloads that are short enough for two minutes in all.
const QUICK: [Workload; 8] = [
    Workload::Syncs,
    Workload::W1,
    Workload::W2,
    Workload::W3,
    Workload::W4Few,
    Workload::W5,
    Workload::W7,
    Workload::W8,
];

/// Measures everybody, or what the words select: `all [--only durare,W2]`.
///
/// # Errors
///
/// Words that are not understood, or results that cannot be written.
pub fn all(words: &[&str], scratch: &Path) -> Result<(), String> {
    let selection = match words {
        [] => Selection::all(),
        ["--only", words] => Selection::only(words)?,
        _ => return Err("usage: bench all [--only SYSTEM,…,WORKLOAD,…]".into()),
    };
    let results = Path::new(BENCH).join("results");
    let repeats = setting("BENCH_REPEATS", 5)?;
    contest(selection, repeats, scratch, &results)
}

/// Measures this engine and the floor, within two minutes.
///
/// # Errors
///
/// If the results cannot be written.
pub fn quick(scratch: &Path) -> Result<(), String> {
    let mut selection = Selection::only(OWN)?;
    selection.workloads = QUICK.to_vec();
    let results = Path::new(BENCH).join("results/quick");
    contest(selection, setting("BENCH_REPEATS", 3)?, scratch, &results)
}

/// Writes the table and the charts of JSON lines anew.
///
/// # Errors
///
/// If the file cannot be read, or the results cannot be written.
pub fn report(file: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let lines = report::read(&text).map_err(|why| format!("{file}: {why}"))?;
    let results = Path::new(file).parent().unwrap_or_else(|| Path::new("."));
    report::write(&lines, results)
}

fn contest(
    selection: Selection,
    repeats: usize,
    scratch: &Path,
    results: &Path,
) -> Result<(), String> {
    let (began, load_before) = (Instant::now(), load());
    let rounds = Rounds {
        selection,
        repeats,
        long_repeats: setting("BENCH_LONG_REPEATS", repeats)?,
        fill: setting("BENCH_FILL_STEPS", FILL)?,
        bench: Path::new(BENCH).to_owned(),
        scratch: scratch.to_owned(),
    };
    let mut lines = Vec::new();
    let mut written = Ok(());
    rounds.run(|figures| {
        let about = about(scratch, repeats, load_before, began);
        let figures = figures.iter().cloned().map(Line::Figure);
        lines = std::iter::once(Line::About { about })
            .chain(figures)
            .collect();
        written = report::write(&lines, results);
    });
    written?;
    println!("{}", report::markdown(&lines));
    eprintln!("written to {}", results.display());
    Ok(())
}

fn about(scratch: &Path, repeats: usize, load_before: f64, began: Instant) -> About {
    About {
        date: output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        kernel: output("uname", &["-sr"]),
        filesystem: filesystem(scratch),
        rustc: output("rustc", &["--version"]),
        repeats,
        load_before,
        load_after: load(),
        seconds: began.elapsed().as_secs(),
    }
}

/// A number from the environment.
fn setting<N: std::str::FromStr>(name: &str, default: N) -> Result<N, String> {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .map_err(|_| format!("{name}={text:?} is no number")),
        Err(_) => Ok(default),
    }
}

/// What a small command says; nothing if there is none such.
fn output(program: &str, words: &[&str]) -> String {
    let output = std::process::Command::new(program).args(words).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default()
}

fn filesystem(dir: &Path) -> String {
    let dir = dir.display().to_string();
    let text = output("stat", &["-f", "-c", "%T", &dir]);
    // What `stat` calls all of its kind.
    text.replace("ext2/ext3", "ext4")
}

/// How many processes wanted a processor in the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}
