//! One sample: a contestant, a workload, once.
//!
//! Owns what each workload asks a contestant for and how long it may take. Never repeats and never compares.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::build::Program;
use super::catalogue::{Contestant, Workload};
use super::process::{Said, Task};
use super::servers::{self, Running};
use super::syncs;

/// Runs at once that are tried to find a system's best setting.
pub const SETTINGS: [usize; 4] = [16, 64, 256, 1_024];

/// Runs at once where nothing else is said.
pub const AT_ONCE: usize = 64;

/// How long a rate is measured at least.
const LAST: Duration = Duration::from_secs(1);

/// What a contestant has for a removal, beyond its limit.
const REMOVAL: Duration = Duration::from_secs(130);

const MIB: f64 = 1024.0 * 1024.0;

/// Everything a sample needs.
pub struct Setting<'a> {
    pub contestant: Contestant,
    pub program: &'a Program,
    /// A directory for everything that is left behind.
    pub scratch: &'a Path,
    /// `bench/target`.
    pub target: &'a Path,
    /// Runs at once, where the workload leaves that open.
    pub at_once: usize,
    /// Seconds that W2 may take.
    pub seconds: u64,
    pub pace: Pace,
}

/// How long is taken for what takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Seconds that a turn of W2 may take: a slow system does fewer steps, not longer ones.
    pub turn: u64,
    /// Seconds of W2 for each setting that is tried.
    pub trial: u64,
    /// Seconds for the 10,000 steps of W3 and W4.
    pub long: u64,
    /// Seconds of one system in one of the long workloads, after which it is not asked again.
    pub budget: u64,
    /// Steps of W9, and seconds for them.
    pub fill: u64,
    pub fill_seconds: u64,
}

impl Pace {
    /// Everything in full.
    pub const FULL: Self = Self {
        turn: 15,
        trial: 4,
        long: 90,
        budget: u64::MAX,
        fill: 1_000_000,
        fill_seconds: 600,
    };

    /// What can be had in half an hour.
    pub const SHORT: Self = Self {
        turn: 3,
        trial: 2,
        long: 30,
        budget: 20,
        fill: 1_000_000,
        fill_seconds: 20,
    };
}

/// What came of it.
pub enum Sample {
    Said(Said),
    /// It could not be tried.
    Skipped(String),
}

/// Takes a sample.
pub fn take(workload: Workload, setting: &Setting<'_>) -> Sample {
    let server = match servers::start(setting.contestant.needs, setting.target) {
        Ok(server) => server,
        Err(why) => return Sample::Skipped(why),
    };
    let dir = match tempfile::tempdir_in(setting.scratch) {
        Ok(dir) => dir,
        Err(error) => return Sample::Skipped(error.to_string()),
    };
    let port = match servers::free_port() {
        Ok(port) => port,
        Err(why) => return Sample::Skipped(why),
    };
    let place = At {
        setting,
        server: &server,
        dir: dir.path().to_owned(),
        name: new_name(),
        port,
    };
    Sample::Said(place.measure(workload))
}

/// A name for a schema or a database.
fn new_name() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format!("contest_{}", now.unwrap_or_default().as_nanos())
}

impl Task {
    /// Goes on until the measurement has lasted long enough.
    fn lasting(self) -> Self {
        self.set("at_least_ms", LAST.as_millis())
    }
}

/// A contestant at its place.
struct At<'a> {
    setting: &'a Setting<'a>,
    server: &'a Running,
    dir: PathBuf,
    /// What no other sample in the same server is called.
    name: String,
    port: u16,
}

impl At<'_> {
    fn measure(&self, workload: Workload) -> Said {
        match workload {
            Workload::Syncs => self.syncs(),
            Workload::W1 => self.chains(60, 100).lasting().run(),
            // W7 is what these cost.
            Workload::W2 | Workload::W7 => with_cpu(self.many(AT_ONCE).run()),
            Workload::W2Best => {
                let at_once = self.setting.at_once;
                let mut said = self.many(at_once).set("tuned", true).run();
                said.figures.insert("at_once".into(), at_once as f64);
                with_cpu(said)
            }
            Workload::W3 => self
                .task("long", self.setting.pace.long)
                .set("steps", 10_000)
                .run(),
            Workload::W4Few => self.killed(1_000),
            Workload::W4Many => self.killed(10_000),
            Workload::W5 => self.first_step(),
            Workload::W6 => {
                let task = self.task("asleep", 60).set("at_once", AT_ONCE);
                task.set("runs", 10_000).run()
            }
            Workload::W8 => {
                let task = self.task("duplicates", 30);
                task.set("at_least_ms", LAST.as_millis() * 2).run()
            }
            Workload::W9 => self.fill(),
        }
    }

    /// A task with all that a contestant has to know about its place.
    fn task(&self, name: &'static str, seconds: u64) -> Task {
        let log = self.setting.target.join("contestant.log");
        let limit = Duration::from_secs(seconds);
        let footprint = self.server.footprint.as_ref().unwrap_or(&self.dir);
        let mut task = Task::new(&self.setting.program.path, name, limit, &log)
            .set("mode", self.setting.contestant.mode)
            .set("dir", self.dir.display())
            .set("name", &self.name)
            .set("url", &self.server.url)
            .set("admin", &self.server.admin)
            .set("port", self.port)
            .set("footprint", footprint.display());
        if !self.server.pids.is_empty() {
            let pids: Vec<String> = self.server.pids.iter().map(ToString::to_string).collect();
            task = task.set("servers", pids.join(","));
        }
        task
    }

    fn chains(&self, seconds: u64, steps: u64) -> Task {
        self.task("sequential", seconds).set("steps", steps)
    }

    fn many(&self, at_once: usize) -> Task {
        let task = self
            .task("many", self.setting.seconds)
            .set("at_once", at_once);
        task.set("runs", 1_000).set("steps", 10).lasting()
    }

    /// W4: a process that is killed within a step, and the one after it.
    fn killed(&self, steps: u64) -> Said {
        let held = self.task("hold", self.setting.pace.long);
        let held = held.set("steps", steps);
        let (said, reached) = held.run_until("bodies_before");
        if reached.is_none() {
            let why = said.failed.unwrap_or_else(|| "it ended".into());
            return Said::failure(format!("{steps} steps were not reached: {why}"));
        }
        let resumed = self.task("resume", 60).set("steps", steps);
        let (mut said, reached) = resumed.run_until("bodies_before");
        if let Some(time) = reached {
            said.figures
                .insert("resume_ms".into(), time.as_secs_f64() * 1e3);
            let again = said.figures.remove("bodies_before").unwrap_or_default();
            said.figures.insert("steps_run_again".into(), again);
            if again > 0.0 {
                said.notes.push(format!("{again} recorded steps ran again"));
            }
        }
        said
    }

    /// W5: from before the process to its first step; and what is known about the program.
    fn first_step(&self) -> Said {
        let held = self.task("hold", 60).set("steps", 0);
        let (mut said, reached) = held.run_until("bodies_before");
        said.figures.clear();
        if let Some(time) = reached {
            said.figures
                .insert("first_step_ms".into(), time.as_secs_f64() * 1e3);
        }
        let program = self.setting.program;
        said.figures
            .insert("binary_mib".into(), program.bytes as f64 / MIB);
        let crates = program.crates.map(|crates| crates as f64);
        said.figures
            .extend(crates.map(|crates| ("crates".into(), crates)));
        if let Some(build) = program.build {
            said.figures.insert("build_s".into(), build.wall);
            said.figures.insert("build_cpu_s".into(), build.cpu);
        }
        said
    }

    /// W9: many runs of ten steps, then their removal.
    fn fill(&self) -> Said {
        let pace = self.setting.pace;
        let task = self
            .task("fill", pace.fill_seconds)
            .patient(REMOVAL)
            .set("removal", true)
            .set("tuned", true);
        let task = task.set("at_once", self.setting.at_once).set("steps", 10);
        task.set("runs", pace.fill.div_ceil(10)).run()
    }

    fn syncs(&self) -> Said {
        if !syncs::is_there() {
            return Said::failure("strace is not installed, so syncs were not counted");
        }
        let count = |name: &str, steps| {
            let place = At {
                dir: self.dir.join(name),
                name: format!("{}_{name}", self.name),
                ..*self
            };
            std::fs::create_dir_all(&place.dir).map_err(|error| error.to_string())?;
            syncs::count(
                place.chains(180, steps),
                &self.server.pids,
                self.setting.scratch,
            )
        };
        match (count("short", 1), count("long", 1_001)) {
            (Ok(short), Ok(long)) => {
                let mut said = Said::default();
                let syncs = long.saturating_sub(short) as f64;
                said.figures.insert("syncs_per_1000_steps".into(), syncs);
                said
            }
            (Err(why), _) | (_, Err(why)) => Said::failure(why),
        }
    }
}

/// Adds up a system's processor time: what its server does is done for it.
fn with_cpu(mut said: Said) -> Said {
    let own = said.figures.remove("cpu_us_per_step");
    let servers = said.figures.get("server_cpu_us_per_step").copied();
    if let Some(own) = own {
        said.figures.insert("own_cpu_us_per_step".into(), own);
        let all = own + servers.unwrap_or_default();
        said.figures.insert("cpu_us_per_step".into(), all);
    }
    if let Some(failed) = said
        .figures
        .get("failed_runs")
        .filter(|failed| **failed > 0.0)
    {
        said.notes.push(format!("{failed} runs failed"));
    }
    said
}
