//! A contestant as a process: its arguments, what it says, when it says it, how it is ended.
//!
//! Owns the runner's half of the protocol. Never waits without a limit, and leaves no child behind.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// What a process has beyond its own limit, for opening, settling and saying so.
const GRACE: Duration = Duration::from_secs(60);

/// One line of a contestant.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Line {
    metric: Option<String>,
    value: Option<f64>,
    note: Option<String>,
    not_offered: Option<String>,
    failed: Option<String>,
}

/// All that a contestant said.
#[derive(Debug, Default)]
pub struct Said {
    pub figures: BTreeMap<String, f64>,
    pub notes: Vec<String>,
    pub not_offered: Option<String>,
    pub failed: Option<String>,
}

impl Said {
    /// Something that went wrong before or beside the contestant.
    pub fn failure(why: impl Into<String>) -> Self {
        Self {
            failed: Some(why.into()),
            ..Self::default()
        }
    }

    fn take(&mut self, text: &str) {
        let Ok(line) = serde_json::from_str::<Line>(text) else {
            // A library that logs to standard output.
            return;
        };
        if let (Some(metric), Some(value)) = (line.metric, line.value) {
            self.figures.insert(metric, value);
        }
        self.notes.extend(line.note);
        self.not_offered = self.not_offered.take().or(line.not_offered);
        self.failed = self.failed.take().or(line.failed);
    }
}

/// A program with a task.
#[derive(Debug, Clone)]
pub struct Task {
    program: PathBuf,
    task: &'static str,
    settings: Vec<(&'static str, String)>,
    limit: Duration,
    /// Where standard error goes.
    log: PathBuf,
    /// What the program is run under, if anything.
    under: Vec<String>,
}

impl Task {
    pub fn new(program: &Path, task: &'static str, limit: Duration, log: &Path) -> Self {
        let limit_ms = limit.as_millis().to_string();
        Self {
            program: program.to_owned(),
            task,
            settings: vec![("limit_ms", limit_ms)],
            limit,
            log: log.to_owned(),
            under: Vec::new(),
        }
    }

    /// Sets a setting.
    pub fn set(mut self, name: &'static str, value: impl ToString) -> Self {
        self.settings.push((name, value.to_string()));
        self
    }

    /// Waits so much longer than the limit that the program is told.
    pub fn patient(mut self, more: Duration) -> Self {
        self.limit += more;
        self
    }

    /// Runs the program under another, which is given it and its arguments.
    pub fn under(mut self, words: Vec<String>) -> Self {
        self.under = words;
        self
    }

    fn spawn(&self) -> std::io::Result<(Child, Instant)> {
        let words = self.under.iter().map(Into::into);
        let mut words = words.chain([self.program.clone().into_os_string()]);
        let mut command = Command::new(words.next().expect("there is the program"));
        command.args(words).arg(self.task);
        for (name, value) in &self.settings {
            command.arg(format!("{name}={value}"));
        }
        let log = File::create(&self.log)?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let began = Instant::now();
        Ok((command.spawn()?, began))
    }

    /// Runs to the end, or until the time is up.
    pub fn run(&self) -> Said {
        self.listen(|_| false).0
    }

    /// Runs until a figure is said, then kills the process. Returns when that was, from before the start of the process.
    pub fn run_until(&self, metric: &str) -> (Said, Option<Duration>) {
        self.listen(|said| said.figures.contains_key(metric))
    }

    fn listen(&self, enough: impl Fn(&Said) -> bool) -> (Said, Option<Duration>) {
        let (mut child, began) = match self.spawn() {
            Ok(spawned) => spawned,
            Err(error) => {
                let program = self.program.display();
                return (
                    Said::failure(format!("{program} does not start: {error}")),
                    None,
                );
            }
        };
        let lines = lines_of(&mut child);
        let mut said = Said::default();
        let reached = loop {
            let left = (self.limit + GRACE).saturating_sub(began.elapsed());
            match lines.recv_timeout(left) {
                Ok((text, at)) => {
                    said.take(&text);
                    if enough(&said) {
                        break Some(at - began);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break None,
                Err(RecvTimeoutError::Timeout) => {
                    said.failed = Some(format!("timed out after {:?}", self.limit + GRACE));
                    break None;
                }
            }
        };
        if reached.is_none() && said.failed.is_none() && !ended_well(&mut child) {
            said.failed = Some(format!("it crashed: {}", last_words(&self.log)));
        }
        // SIGKILL: what is measured afterwards is a restart after a crash. Harmless if it has ended.
        let _ = child.kill();
        let _ = child.wait();
        (said, reached)
    }
}

/// Says whether a child that has closed its output ends by itself, and with success.
fn ended_well(child: &mut Child) -> bool {
    let began = Instant::now();
    while began.elapsed() < GRACE {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => return false,
        }
    }
    false
}

/// Reads a child's standard output as it comes.
fn lines_of(child: &mut Child) -> mpsc::Receiver<(String, Instant)> {
    let out = child.stdout.take().expect("it is piped");
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if send.send((line, Instant::now())).is_err() {
                return;
            }
        }
    });
    lines
}

/// The line of a log that says most about an end: a panic's, or the last.
fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let after_panic = lines
        .clone()
        .skip_while(|line| !line.contains("panicked at"))
        .nth(1);
    let words = after_panic.or_else(|| lines.next_back());
    words
        .unwrap_or("without a word")
        .chars()
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, log: &Path) -> Task {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        Task::new(Path::new("unused"), "task", Duration::from_secs(30), log).under(words)
    }

    #[test]
    fn what_a_contestant_says_is_taken_line_by_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let script = r#"echo '{"metric":"a","value":1.5}'; echo '{"note":"slow"}'; echo '{"not_offered":"no"}'"#;
        let said = shell(script, &dir.path().join("log")).run();
        assert_eq!(said.figures.get("a"), Some(&1.5));
        assert_eq!(said.notes, ["slow"]);
        assert_eq!(said.not_offered.as_deref(), Some("no"));
        assert_eq!(said.failed, None);
    }

    #[test]
    fn a_crash_is_written_down_with_its_last_words() {
        let dir = tempfile::tempdir().expect("a directory");
        let script =
            "echo \"thread panicked at x.rs:1:\" >&2; echo no disk >&2; echo bye >&2; exit 101";
        let said = shell(script, &dir.path().join("log")).run();
        assert_eq!(said.failed.as_deref(), Some("it crashed: no disk"));
    }

    #[test]
    fn a_process_is_killed_when_it_has_said_enough() {
        let dir = tempfile::tempdir().expect("a directory");
        let script = r#"echo '{"metric":"here","value":3}'; exec sleep 1000"#;
        let began = Instant::now();
        let (said, reached) = shell(script, &dir.path().join("log")).run_until("here");
        assert!(reached.is_some() && said.failed.is_none());
        assert!(began.elapsed() < Duration::from_secs(25), "it did not wait");
    }
}
