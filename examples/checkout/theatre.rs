//! The stage: one process after the other handles the order, and two of them are killed.
//!
//! The parent starts this program again as a child, with a hidden argument, and listens to what it
//! says on its standard output. On a cue it kills the child with SIGKILL: nothing is flushed,
//! no destructor runs, exactly as when the kernel or an operator does it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, SystemTime};

use workflow_runtime::journal::Event;
use workflow_runtime::{Engine, Error, Result, ResultExt as _, get_step_metadata};

use super::{Confirmation, Order, handle, open, report};

/// The hidden argument.
const CHILD: &str = "--child";

/// A child that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a child looks whether its run has gone to sleep.
const GLANCE: Duration = Duration::from_millis(10);

const USAGE: &str = "usage: checkout [--keep]    (--keep: do not remove the files it makes)";

pub(crate) fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        [] => perform(false),
        ["--keep"] => perform(true),
        [CHILD, dir] => block_on(child(Path::new(dir))).map(|()| ExitCode::SUCCESS),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("the demonstration failed: {error:#}");
        ExitCode::FAILURE
    })
}

fn order() -> Order {
    Order {
        number: "order-1001".into(),
        customer: "ada@example.org".into(),
        item: "brass kettle".into(),
        cents: 4250,
    }
}

fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Runtime::new()?.block_on(future)
}

// ------------------------------------------------------------------------------- the child

/// Handles the order, as every process of this story does. It knows nothing of the others.
async fn child(dir: &Path) -> Result<()> {
    let engine = open(dir).await?;
    tokio::spawn(cue_the_sleep(engine.clone()));
    let confirmation = handle(&engine, order()).await?;
    Line::Confirmed(confirmation.to_string()).say();
    engine.shutdown().await?;
    Ok(())
}

/// Tells the parent when the run has gone to sleep, durably.
async fn cue_the_sleep(engine: Engine) -> Result<()> {
    loop {
        for run in engine.runs().await?.runs {
            let journal = engine.journal(run.run).await?;
            if let Some(Event::TimerSet(_)) = journal.records().last().map(|last| &last.event) {
                Line::cue(Cue::Asleep);
                return Ok(());
            }
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// What a child says to its parent: one line each.
pub(crate) enum Line {
    /// The body of a step is being executed.
    Executes {
        step: String,
        attempt: String,
        what: String,
    },
    /// A moment that the parent may be waiting for.
    Cue(Cue),
    /// The workflow has returned.
    Confirmed(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cue {
    /// The card is charged, and the answer is on its way.
    Charged,
    /// The run sleeps.
    Asleep,
}

impl Line {
    /// Says that the current step's body is being executed, and what it did.
    pub(crate) fn executes(what: String) {
        let step = get_step_metadata();
        let line = Self::Executes {
            step: step.step_name.to_owned(),
            attempt: step.attempt.to_string(),
            what,
        };
        line.say();
    }

    pub(crate) fn cue(cue: Cue) {
        Self::Cue(cue).say();
    }

    fn say(&self) {
        match self {
            Self::Executes {
                step,
                attempt,
                what,
            } => println!("executes\t{step}\t{attempt}\t{what}"),
            Self::Cue(Cue::Charged) => println!("charged"),
            Self::Cue(Cue::Asleep) => println!("asleep"),
            Self::Confirmed(confirmation) => println!("confirmed\t{confirmation}"),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split('\t').collect();
        Some(match words[..] {
            ["executes", step, attempt, what] => Self::Executes {
                step: step.to_owned(),
                attempt: attempt.to_owned(),
                what: what.to_owned(),
            },
            ["charged"] => Self::Cue(Cue::Charged),
            ["asleep"] => Self::Cue(Cue::Asleep),
            ["confirmed", confirmation] => Self::Confirmed(confirmation.to_owned()),
            _ => return None,
        })
    }
}

impl std::fmt::Display for Confirmation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { receipt, parcel } = self;
        write!(f, "paid with receipt {}, parcel {parcel}", receipt.number)
    }
}

// ------------------------------------------------------------------------------ the parent

/// What the parent saw of one process.
pub(crate) struct Seen {
    pub(crate) spawned_at: SystemTime,
    /// The steps whose bodies it executed, in order.
    pub(crate) executed: Vec<String>,
    pub(crate) confirmed: Option<String>,
}

/// Plays the whole story and reports on it.
fn perform(keep: bool) -> Result<ExitCode> {
    let mut dir = tempfile::Builder::new().prefix("checkout-").tempdir()?;
    println!("One order, three processes. The first two are killed with SIGKILL, without warning.");
    let path = dir.path();
    let seen = [
        act(1, path, Some(Cue::Charged))?,
        act(2, path, Some(Cue::Asleep))?,
        act(3, path, None)?,
    ];
    let right = block_on(async {
        let engine = open(path).await?;
        // Once more the same key, in this process: the recorded result, and no step is executed.
        let confirmation = handle(&engine, order()).await?;
        let right = report::show(&engine, path, &seen, &order(), &confirmation).await?;
        engine.shutdown().await?;
        Ok(right)
    })?;
    if keep || !right {
        dir.disable_cleanup(true);
        println!("\nkept: {}", dir.path().display());
    }
    Ok(match right {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs one process, to its end or until it gives the cue to be killed.
fn act(number: usize, dir: &Path, kill_on: Option<Cue>) -> Result<Seen> {
    let mut seen = Seen {
        spawned_at: SystemTime::now(),
        executed: Vec::new(),
        confirmed: None,
    };
    let (mut process, lines) = Process::spawn(dir)?;
    let task = match number {
        1 => "is given the order",
        _ => "opens the same store, which resumes the order",
    };
    println!("\nprocess {number} (pid {}) {task}", process.0.id());
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(Line::Executes {
                step,
                attempt,
                what,
            }) => {
                let attempt = match attempt.as_str() {
                    "1" => String::new(),
                    later => format!("attempt {later}: "),
                };
                println!("  {step:<15} {attempt}{what}");
                seen.executed.push(step);
            }
            Ok(Line::Cue(cue)) if Some(cue) == kill_on => {
                process.0.kill()?;
                let status = process.0.wait()?;
                if status.code().is_some() {
                    return Err(ended_by_itself(number, status));
                }
                println!("  {:<15} {}", "✗ SIGKILL", cue.meaning());
                return Ok(seen);
            }
            Ok(Line::Cue(_)) => {}
            Ok(Line::Confirmed(confirmation)) => {
                println!("  {:<15} {confirmation}", "✓ done");
                seen.confirmed = Some(confirmation);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(Error::new(format!("process {number} is stuck")));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = process.0.wait()?;
    match kill_on {
        None if status.success() => Ok(seen),
        _ => Err(ended_by_itself(number, status)),
    }
}

fn ended_by_itself(number: usize, status: ExitStatus) -> Error {
    Error::new(format!("process {number} ended by itself: {status}"))
}

impl Cue {
    fn meaning(self) -> &'static str {
        match self {
            Self::Charged => "the card is charged, and no journal says so yet",
            Self::Asleep => "while the run sleeps",
        }
    }
}

/// A child process that does not outlive its parent's interest in it.
struct Process(Child);

impl Process {
    fn spawn(dir: &Path) -> Result<(Self, Receiver<Line>)> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(CHILD)
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("the child process did not start")?;
        let stdout = child.stdout.take().expect("it was asked for");
        let (said, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(|line| line.ok());
            lines
                .filter_map(|line| Line::parse(&line))
                .try_for_each(|line| said.send(line))
        });
        Ok((Self(child), lines))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has usually ended; if not, something went wrong before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
