//! Which tests there are, how long each takes, and which mutants it reaches.
//!
//! Owns the running of test binaries, and the measurement of each test, which is kept by the binary's name: a binary that was
//! built anew is measured anew. It never switches a mutant on by itself.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How many processes run at once.
pub(crate) const WORKERS: usize = 2;

/// A test that alone takes longer than this is left out: there are others.
const TOO_LONG: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) binary: PathBuf,
    pub(crate) time: Duration,
    pub(crate) reaches: HashSet<u32>,
}

pub(crate) enum Ended {
    Passed,
    Failed(String),
    TimedOut,
}

/// Runs tests of one binary, until one fails.
pub(crate) fn run(
    output: &Path,
    worker: usize,
    binary: &Path,
    names: &[&str],
    limit: Duration,
    environment: &[(&str, String)],
) -> Ended {
    let scratch = output.join(format!("scratch-{worker}"));
    let _ = fs::create_dir_all(&scratch);
    let package = if binary.to_string_lossy().contains("workflow_runtime-") {
        "workflow-runtime"
    } else {
        "tests"
    };
    let directory = output.join("tree").join(package);
    let mut child = Command::new(binary)
        .args(["--exact", "--test-threads=4"])
        .args(names)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .env("TMPDIR", &scratch)
        .env("CARGO_MANIFEST_DIR", &directory)
        .env("INSTA_UPDATE", "no")
        .env("PROPTEST_FAILURE_PERSISTENCE", "off")
        .current_dir(&directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("a test binary can be started");
    let (lines, heard) = mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
    std::thread::spawn(move || {
        for line in stdout.split(b'\n').map_while(Result::ok) {
            let _ = lines.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    let deadline = Instant::now() + limit;
    let mut complete = false;
    let ended = loop {
        match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if line.starts_with("test ") && line.contains("... FAILED") => {
                break Ended::Failed(
                    line.split_whitespace()
                        .nth(1)
                        .unwrap_or_default()
                        .to_owned(),
                );
            }
            Ok(line) => complete |= line.starts_with("test result: ok"),
            Err(RecvTimeoutError::Timeout) => break Ended::TimedOut,
            Err(RecvTimeoutError::Disconnected) if complete => break Ended::Passed,
            Err(RecvTimeoutError::Disconnected) => {
                break Ended::Failed("(the process died)".into());
            }
        }
    };
    // What a test started goes with it.
    let group = format!("-{}", child.id());
    let _ = Command::new("kill")
        .args(["-KILL", "--", &group])
        .stderr(Stdio::null())
        .status();
    let _ = child.wait();
    let _ = fs::remove_dir_all(&scratch);
    ended
}

/// Runs every test by itself once, or reads what that gave before.
pub(crate) fn measure(
    output: &Path,
    binaries: &[(String, PathBuf)],
    filter: &str,
) -> Result<Vec<Test>, String> {
    let mut all = Vec::new();
    for (name, binary) in binaries {
        let stem = binary
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        let changed = fs::metadata(binary)
            .and_then(|about| about.modified())
            .map_err(|error| error.to_string())?;
        let kept = output.join(format!(
            "tests-{stem}-{}.tsv",
            filter.replace([',', ':'], "-")
        ));
        let fresh = fs::metadata(&kept)
            .and_then(|about| about.modified())
            .is_ok_and(|written| written > changed);
        if !fresh {
            let began = Instant::now();
            let lines = measure_one(output, binary, filter)?;
            fs::write(&kept, lines.join("\n")).map_err(|error| error.to_string())?;
            println!(
                "{name}: {} tests measured in {} s",
                lines.len(),
                began.elapsed().as_secs()
            );
        }
        let text = fs::read_to_string(&kept).map_err(|error| error.to_string())?;
        for line in text.lines() {
            let mut fields = line.split('\t');
            let name = fields.next().unwrap_or_default().to_owned();
            let time = fields
                .next()
                .and_then(|time| time.parse().ok())
                .unwrap_or(0);
            let reaches = fields
                .next()
                .unwrap_or_default()
                .split(',')
                .filter_map(|id| id.parse().ok())
                .collect();
            all.push(Test {
                name,
                binary: binary.clone(),
                time: Duration::from_millis(time),
                reaches,
            });
        }
    }
    Ok(all)
}

fn measure_one(output: &Path, binary: &Path, filter: &str) -> Result<Vec<String>, String> {
    let listed = Command::new(binary)
        .args(["--list", "--format", "terse"])
        .output()
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let wanted = |name: &&str| filter.split(',').any(|part| name.contains(part));
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    let waiting = Mutex::new(names.filter(wanted));
    let lines = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (waiting, lines) = (&waiting, &lines);
            scope.spawn(move || {
                loop {
                    let next = waiting.lock().expect("no panic").next();
                    let Some(name) = next else { break };
                    let file = output.join(format!("reached-{worker}"));
                    let _ = fs::remove_file(&file);
                    let environment = [("MUTANTS_REACHED", file.display().to_string())];
                    let began = Instant::now();
                    let ended = run(output, worker, binary, &[name], TOO_LONG, &environment);
                    if !matches!(ended, Ended::Passed) {
                        println!("left out, it does not pass by itself: {name}");
                        continue;
                    }
                    let ids: Vec<String> = fs::read_to_string(&file)
                        .unwrap_or_default()
                        .lines()
                        .map(str::to_owned)
                        .collect();
                    let line =
                        format!("{name}\t{}\t{}", began.elapsed().as_millis(), ids.join(","));
                    lines
                        .lock()
                        .expect("no panic")
                        .insert(name.to_owned(), line);
                }
            });
        }
    });
    Ok(lines
        .into_inner()
        .expect("no panic")
        .into_values()
        .collect())
}

/// All mutants that any test reaches.
pub(crate) fn reached(tests: &[Test]) -> HashSet<u32> {
    tests
        .iter()
        .flat_map(|test| test.reaches.iter().copied())
        .collect()
}
