//! What the runner asks a contestant for: a task, then settings as `name=value`.
//!
//! Owns the list of both. Never guesses: an unknown one is a mistake, so that a runner and a contestant of
//! different builds do not misunderstand each other.

use std::path::PathBuf;
use std::time::Duration;

/// What a contestant can be asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// W1: chains, one after the other.
    Sequential,
    /// W2 and W7: many chains, some at once.
    Many,
    /// W3: one long chain.
    Long,
    /// W4 and W5: a chain up to a step that is begun and never ends.
    Hold,
    /// W4: the same after a kill.
    Resume,
    /// W6: runs that sleep.
    Asleep,
    /// W8: starts under a key that has a run.
    Duplicates,
    /// W9: many steps, then their removal.
    Fill,
}

const TASKS: [(&str, Task); 8] = [
    ("sequential", Task::Sequential),
    ("many", Task::Many),
    ("long", Task::Long),
    ("hold", Task::Hold),
    ("resume", Task::Resume),
    ("asleep", Task::Asleep),
    ("duplicates", Task::Duplicates),
    ("fill", Task::Fill),
];

/// Where a contestant works, and how much.
#[derive(Debug, Clone)]
pub struct Place {
    /// The variant of the system, of which each names its own.
    pub mode: String,
    /// A directory for the store. The same one is given to a process that resumes.
    pub dir: PathBuf,
    /// A name for what lives in a server instead: a database, a schema.
    pub name: String,
    /// Where the system's server listens; empty without one.
    pub url: String,
    /// Where the server is told what there is, if that is elsewhere.
    pub admin: String,
    /// The port on which a system that is called by its server listens.
    pub port: u16,
    /// Another process was killed here: what it left is to go on.
    pub resuming: bool,
    /// Settings for throughput are wanted, rather than the defaults.
    pub tuned: bool,
    /// Ended runs are to be removable: what a system needs to know when it is opened.
    pub removal: bool,
    pub(crate) servers: Vec<u32>,
    pub(crate) footprint: PathBuf,
    pub(crate) runs: u64,
    pub(crate) steps: u64,
    pub(crate) at_once: usize,
    pub(crate) limit: Duration,
    /// How long a task that may go on does so.
    pub(crate) at_least: Duration,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            mode: String::new(),
            dir: PathBuf::new(),
            name: "contest".into(),
            url: String::new(),
            admin: String::new(),
            port: 0,
            resuming: false,
            tuned: false,
            removal: false,
            servers: Vec::new(),
            footprint: PathBuf::new(),
            runs: 1,
            steps: 1,
            at_once: 1,
            limit: Duration::from_secs(60),
            at_least: Duration::ZERO,
        }
    }
}

/// Reads what the runner wrote.
pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<(Task, Place), String> {
    let mut arguments = arguments;
    let task = arguments.next().unwrap_or_default();
    let known = TASKS.iter().find(|(name, _)| *name == task);
    let Some((_, task)) = known else {
        let names = TASKS.map(|(name, _)| name).join(", ");
        return Err(format!("no task {task:?}: there are {names}"));
    };
    let mut place = Place {
        resuming: *task == Task::Resume,
        ..Place::default()
    };
    for argument in arguments {
        let Some((name, value)) = argument.split_once('=') else {
            return Err(format!("{argument:?} is no setting: name=value is"));
        };
        set(&mut place, name, value).map_err(|why| format!("{argument:?}: {why}"))?;
    }
    Ok((*task, place))
}

fn set(place: &mut Place, name: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<u64>().map_err(|error| error.to_string());
    match name {
        "mode" => place.mode = value.into(),
        "dir" => place.dir = value.into(),
        "name" => place.name = value.into(),
        "url" => place.url = value.into(),
        "admin" => place.admin = value.into(),
        "port" => place.port = u16::try_from(number()?).map_err(|error| error.to_string())?,
        "tuned" => place.tuned = value == "true",
        "removal" => place.removal = value == "true",
        "footprint" => place.footprint = value.into(),
        "runs" => place.runs = number()?,
        "steps" => place.steps = number()?,
        "at_once" => place.at_once = usize::try_from(number()?).unwrap_or(usize::MAX),
        "limit_ms" => place.limit = Duration::from_millis(number()?),
        "at_least_ms" => place.at_least = Duration::from_millis(number()?),
        "servers" => {
            let pids = value.split(',').map(str::parse);
            let pids: Result<_, std::num::ParseIntError> = pids.collect();
            place.servers = pids.map_err(|error| error.to_string())?;
        }
        _ => return Err("no such setting".into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<(Task, Place), String> {
        read(words.iter().map(ToString::to_string))
    }

    #[test]
    fn a_task_and_its_settings_are_read() {
        let words = [
            "many",
            "mode=file",
            "runs=1000",
            "servers=7,8",
            "limit_ms=1500",
        ];
        let (task, place) = of(&words).expect("they are known");
        assert_eq!(task, Task::Many);
        assert_eq!((place.mode.as_str(), place.runs), ("file", 1000));
        assert_eq!(place.servers, [7, 8]);
        assert_eq!(place.limit, Duration::from_millis(1500));
    }

    #[test]
    fn what_is_unknown_is_a_mistake() {
        assert!(of(&["most"]).is_err());
        assert!(of(&["many", "runs=few"]).is_err());
        assert!(of(&["many", "run=1"]).is_err());
        assert!(of(&["many", "runs"]).is_err());
    }
}
