//! The work that every system in the comparison does, written once.
//!
//! A contestant is a small program: it implements [`System`] for its engine and calls [`main`]. The
//! runner (`bench -- all`) starts it with a task and settings as arguments, and reads one JSON line per figure from its standard
//! output ([`say`]). So that systems compare, everything but the calls into the engine is here: the step's body
//! ([`work`]), the workloads, what is counted and how. What a run costs beside a start, its steps and its end is nobody's but
//! the engine's.
//!
//! Never measures the disk's floor, never starts a server, never compares: that is the runner's.

#![forbid(unsafe_code)]

mod arguments;
mod body;
mod measure;
mod say;
mod tasks;

use std::error::Error;
use std::future::Future;

pub use arguments::Place;
pub use body::{asleep, work};
pub use measure::family;

/// Why a system could not do what it was asked for.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What came of removing the runs that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// All of them are gone, as far as a caller can see.
    Done,
    /// The system has no call for it.
    NotOffered(&'static str),
}

/// A durable workflow engine, as far as the workloads need one.
///
/// A *chain* of N steps starts from 0 and hands the number on: `x = step(x)`, where the step's body is
/// [`work`]. Its result is N.
pub trait System: Send + Sync + Sized + 'static {
    /// Opens the store at a place, new or left behind by a process that was killed, and resumes what is unfinished there.
    fn open(place: &Place) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Starts a chain, under a key if there is one, and waits for its result.
    fn chain(
        &self,
        key: Option<String>,
        steps: u64,
    ) -> impl Future<Output = Result<u64, Failure>> + Send;

    /// Starts a run that calls [`asleep`] and then sleeps for a day. Does not wait for it.
    fn fall_asleep(&self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Removes every run that has ended, by the system's own means.
    fn remove_ended(&self) -> impl Future<Output = Result<Removal, Failure>> + Send;
}

/// Does the task that the arguments name, and ends the process.
///
/// Without an orderly end of the engine: none is measured, and they take differently long.
pub fn main<S: System>() -> ! {
    let code = match arguments::read(std::env::args().skip(1)) {
        Ok((task, place)) => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .expect("a runtime can be made");
            let done = runtime.block_on(tasks::perform::<S>(task, place));
            if let Err(failure) = done {
                say::failed(&failure.to_string());
            }
            0
        }
        Err(mistake) => {
            eprintln!("{mistake}");
            2
        }
    };
    std::process::exit(code)
}
