//! This program, started again as the process to which something is done.
//!
//! Owns how children are started, heard and ended, and what they do. It never judges: that is for whoever started them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use workflow_runtime::{Engine, Health};

use super::workload::{self, Line, World, transfer};
use super::{hostile, poison, sized, soak};

/// A child that is not done after so long is stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What makes this program a child.
const MARK: &str = "--child";

/// Does the task of a child, if these are the arguments of one.
pub(crate) fn answer(words: &[String]) -> bool {
    let Some((MARK, words)) = words.split_first().map(|(first, rest)| (&**first, rest)) else {
        return false;
    };
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    let number = |word: &str| word.parse::<u64>().expect("the parent gives numbers");
    match words[..] {
        ["work", dir, first, until, at_once, size] => {
            let until = if until == "-" {
                u64::MAX
            } else {
                number(until)
            };
            let work = Work {
                numbers: number(first)..until,
                at_once: number(at_once) as usize,
                size: number(size),
            };
            runtime().block_on(work.done_in(Path::new(dir), || {}));
        }
        ["starve", dir, after] => starve(Path::new(dir), number(after)),
        ["hold", dir] => hold(Path::new(dir)),
        ["poison", kind, dir] => runtime().block_on(poison::live(kind, Path::new(dir))),
        ["sized", kind, size, dir] => sized::live(kind, number(size), Path::new(dir)),
        ["soak", dir, first, rate, leak] => {
            let rate = rate.parse().expect("the parent gives numbers");
            soak::live(Path::new(dir), number(first), rate, leak);
        }
        ["hostile", seed] => hostile::live(number(seed)),
        _ => panic!("no task is called {words:?}"),
    }
    true
}

/// Prepares to start this program as a child.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(this_program());
    command.arg(MARK).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null());
    command
}

/// Prepares the same behind another program, which sets a limit and becomes it.
pub(crate) fn command_behind(program: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).arg(this_program()).arg(MARK);
    command.args(words).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn this_program() -> std::path::PathBuf {
    std::env::current_exe().expect("a program knows where it is")
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_time().build();
    runtime.expect("a runtime can be made")
}

/// A process that does not outlive whoever started it.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts it, and begins to hear what it says.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("a child starts");
        let output = child.stdout.take().expect("piped");
        let (say, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output
                .read_until(b'\n', &mut line)
                .is_ok_and(|read| read > 0)
            {
                let text = String::from_utf8_lossy(&line).into_owned();
                if say.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Self { child, lines }
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says something to a process that listens. One that is gone does not.
    pub(crate) fn tell(&mut self, text: &str) {
        if let Some(input) = &mut self.child.stdin {
            let _ = input.write_all(text.as_bytes());
        }
    }

    /// Gives what it says next, if that is before the deadline.
    pub(crate) fn next_line(&self, deadline: Instant) -> Option<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).ok()
    }

    /// Hears it until it ends or the time is over; what else it said, and how it ended if it did.
    pub(crate) fn hear_out(&mut self, patience: Duration) -> (String, Option<ExitStatus>) {
        let deadline = Instant::now() + patience;
        let mut said = String::new();
        while let Some(line) = self.next_line(deadline) {
            said.push_str(&line);
        }
        // Its output is closed, so that it ends right away, unless it is stuck.
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return (said, Some(status));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        (said, None)
    }

    /// Kills it as `kill -9` does; what it said until then.
    pub(crate) fn kill(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.lines.iter().collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Set where the disk refuses once and works again: then the process goes on.
pub(crate) const REOPENS: &str = "REOPENS";

/// Transfers to be done.
struct Work {
    numbers: std::ops::Range<u64>,
    at_once: usize,
    size: u64,
}

impl Work {
    /// Does them until they are done, the store stops, or somebody kills the process.
    async fn done_in(self, dir: &Path, when_open: impl FnOnce()) {
        let builder = workload::engine().resource(World::Outside);
        let engine = match builder.open(dir).await {
            Ok(engine) => engine,
            Err(error) => return Line::Stopped(error.to_string()).say(),
        };
        Line::Ready.say();
        when_open();
        let numbers = self.numbers.clone();
        let slots = Arc::new(Semaphore::new(self.at_once));
        let mut tasks = JoinSet::new();
        for number in self.numbers {
            let slot = slots.clone().acquire_owned().await.expect("never closed");
            if engine.failure().is_some() {
                break;
            }
            let (engine, size) = (engine.clone(), self.size);
            tasks.spawn(async move {
                let done = workload::one(&engine, number, size, &|line| line.say()).await;
                if let Err(error) = done
                    && engine.failure().is_none()
                {
                    Line::Trouble(format!("transfer {number}: {error}")).say();
                }
                drop(slot);
            });
        }
        tasks.join_all().await;
        match engine.failure() {
            Some(reason) => {
                keep_to_it(&engine, &reason).await;
                if std::env::var_os(REOPENS).is_some() {
                    go_on(engine, numbers, self.size).await;
                }
            }
            None => {
                if let Err(error) = engine.shutdown().await {
                    Line::Stopped(error.to_string()).say();
                }
            }
        }
    }
}

/// Reopens the engine in the process whose disk refused something, and has everything done to its end.
async fn go_on(engine: Engine, numbers: std::ops::Range<u64>, size: u64) {
    let mended = match engine.reopen().await {
        Ok(mended) => mended,
        Err(error) => return Line::Trouble(format!("19: it does not reopen: {error}")).say(),
    };
    if mended.health() != Health::Running || mended.metrics().store_failed {
        Line::Trouble(format!("19: reopened, it is {}", mended.health())).say();
    }
    for number in numbers {
        if let Err(error) = workload::one(&mended, number, size, &|line| line.say()).await {
            Line::Trouble(format!("transfer {number}, reopened: {error}")).say();
        }
    }
    if let Err(error) = mended.shutdown().await {
        Line::Trouble(format!("16: reopened, it does not close: {error}")).say();
    }
}

/// After an error of the disk nothing is acknowledged any more.
async fn keep_to_it(engine: &Engine, reason: &str) {
    let is_said =
        matches!(engine.health(), Health::StoreFailed(failure) if failure.error == reason);
    if !is_said || !engine.metrics().store_failed {
        Line::Trouble(format!("19: after {reason}: it is {}", engine.health())).say();
    }
    let started = engine.start(transfer(u64::MAX, 0)).key("late").await;
    if let Ok(run) = started {
        let late = format!("19: after {reason}: {} was acknowledged", run.id());
        Line::Trouble(late).say();
    }
    Line::Stopped(reason.to_owned()).say();
}

/// Takes every descriptor that the process may have away once the store is open, and works on.
fn starve(dir: &Path, after: u64) {
    let work = Work {
        numbers: 0..200,
        at_once: 8,
        size: 40_000,
    };
    let mut taken = Vec::new();
    runtime().block_on(work.done_in(dir, move || {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(after));
            while let Ok(file) = std::fs::File::open("/dev/null") {
                taken.push(file);
            }
            std::thread::park();
        });
    }));
}

/// Holds the store until the parent says something.
fn hold(dir: &Path) {
    let runtime = runtime();
    let engine = runtime.block_on(
        workload::engine()
            .resource(World::Outside)
            .open(dir)
            .into_future(),
    );
    let _engine = engine.expect("the store opens");
    Line::Ready.say();
    let _ = std::io::stdin().read(&mut [0]);
}
