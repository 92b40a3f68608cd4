//! This engine beside others: the same work, the same machine, one run.
//!
//! `-- all` builds what is missing, measures everything in rounds in which the systems take turns, and writes
//! `bench/results/`. Contestants are processes of their own (`bench/rivals/`) that do the workloads of
//! `bench/contest`; what is here starts them, and never does any of the work.

mod build;
mod catalogue;
mod conclude;
mod options;
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
use options::Options;
use report::{About, Line};
use rounds::Rounds;
use sample::Pace;

/// The folder of this crate.
const BENCH: &str = env!("CARGO_MANIFEST_DIR");

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

/// Measures everybody, or what the words select: `all [--only durare,W2]`. Adds to the results that there are.
///
/// # Errors
///
/// Words that are not understood, or results that cannot be read or written.
pub fn all(words: &[&str], scratch: &Path) -> Result<(), String> {
    let mut options = Options::parse(words)?;
    let results = Path::new(BENCH).join("results");
    let earlier = match options.is_fresh {
        true => Vec::new(),
        false => report::earlier(&results)?,
    };
    if options.only_missing {
        options.selection = report::missing(options.selection, &earlier);
        if options.selection.workloads.is_empty() {
            eprintln!("nothing is missing in {}", results.display());
            return report::write(&earlier, &results);
        }
    }
    let long_repeats = options.repeats;
    contest(options, long_repeats, earlier, scratch, &results)
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
    let options = Options {
        selection,
        repeats: 3,
        pace: Pace::SHORT,
        only_missing: false,
        is_fresh: true,
    };
    contest(options, 1, Vec::new(), scratch, &results)
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
    options: Options,
    long_repeats: usize,
    earlier: Vec<Line>,
    scratch: &Path,
    results: &Path,
) -> Result<(), String> {
    let repeats = options.repeats;
    let rounds = Rounds {
        selection: options.selection,
        repeats,
        long_repeats,
        pace: options.pace,
        bench: Path::new(BENCH).to_owned(),
        scratch: scratch.to_owned(),
    };
    let mut lines = earlier;
    let mut written = Ok(());
    let (mut began, mut load_before) = (Instant::now(), load());
    rounds.run(|figures| {
        let about = about(scratch, repeats, load_before, began);
        lines.push(Line::About { about });
        lines.extend(figures.into_iter().map(Line::Figure));
        written = report::write(&lines, results);
        (began, load_before) = (Instant::now(), load());
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
        // Without what a builder of kernels adds.
        kernel: output("uname", &["-sr"])
            .split('-')
            .next()
            .unwrap_or_default()
            .to_owned(),
        filesystem: filesystem(scratch),
        rustc: output("rustc", &["--version"]),
        repeats,
        load_before,
        load_after: load(),
        seconds: began.elapsed().as_secs(),
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
