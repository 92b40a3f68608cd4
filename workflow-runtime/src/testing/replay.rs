//! Replaying recorded journals: does today's code still fit what yesterday's did?
//!
//! Owns the way from a file or a folder to a verdict. The replay is the engine's own, on an engine that is made for one
//! journal and on a thread of its own, so that it works in `#[test]` and `#[tokio::test]` alike. No step, timer or
//! child begins, and nothing is written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::replay_judge::{Unfit, judge};
use super::replay_report::{ReplayFailure, ReplayFailureKind, ReplayFailures, Replayed};
use crate::call::Workflow;
use crate::engine::verify::Unreplayed;
use crate::engine::{Engine, EngineBuilder};
use crate::export::JournalFile;
use crate::store::ParkReason;

/// Replays a journal file with the code of a workflow, without running a step, and says how that went.
///
/// A workflow that calls child workflows needs those registered too: use a [`Replayer`].
///
/// # Errors
///
/// If the file cannot be read, or the code does not fit it: the report is what a run would be parked with.
pub fn replay<W: Workflow>(path: impl AsRef<Path>) -> Result<Replayed, ReplayFailure> {
    Replayer::new().register::<W>().file(path)
}

/// Fails the test unless the code of a workflow fits a journal file.
///
/// ```no_run
/// # use workflow_runtime::{Result, step, workflow};
/// # #[step(effect = "read")] async fn look() -> Result<u32> { Ok(1) }
/// # #[workflow] async fn checkout() -> Result<u32> { look().await }
/// #[test]
/// fn checkout_still_fits_what_it_recorded() {
///     workflow_runtime::testing::assert_replays::<checkout>("tests/journals/checkout.journal.json");
/// }
/// ```
///
/// # Panics
///
/// With the report, if it does not.
#[track_caller]
pub fn assert_replays<W: Workflow>(path: impl AsRef<Path>) -> Replayed {
    match replay::<W>(path) {
        Ok(replayed) => replayed,
        Err(failure) => panic!("{failure}"),
    }
}

type Setup = Arc<dyn Fn(EngineBuilder) -> EngineBuilder + Send + Sync>;

/// Replays journal files of several workflows.
///
/// ```no_run
/// # use workflow_runtime::{Result, step, workflow};
/// # #[step(effect = "read")] async fn look() -> Result<u32> { Ok(1) }
/// # #[workflow] async fn checkout() -> Result<u32> { look().await }
/// # #[workflow] async fn refund() -> Result<u32> { look().await }
/// use workflow_runtime::testing::Replayer;
///
/// #[test]
/// fn all_that_was_recorded_still_fits() {
///     Replayer::new()
///         .register::<checkout>()
///         .register::<refund>()
///         .assert_dir("tests/journals");
/// }
/// ```
#[derive(Clone, Default)]
#[must_use = "nothing is replayed until it is given a file or a folder"]
pub struct Replayer {
    setup: Vec<Setup>,
}

impl Replayer {
    /// Makes one that knows no workflow yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a workflow: one whose journals are replayed, an old version of it, or a child that one calls.
    pub fn register<W: Workflow>(self) -> Self {
        self.configure(EngineBuilder::register::<W>)
    }

    /// Sets everything else that an engine can be told, as it is where the journals come from:
    /// `register_step`, `payload_limit`. The namespace is the journal's. A file that is
    /// [coded](JournalFile::is_coded) is opened with the `payload_codec`; for others it does not matter.
    pub fn configure(
        mut self,
        change: impl Fn(EngineBuilder) -> EngineBuilder + Send + Sync + 'static,
    ) -> Self {
        self.setup.push(Arc::new(change));
        self
    }

    /// Replays a file.
    ///
    /// # Errors
    ///
    /// As [`replay`].
    pub fn file(&self, path: impl AsRef<Path>) -> Result<Replayed, ReplayFailure> {
        let path = path.as_ref();
        on_a_thread(|| self.one(path))
    }

    /// Replays a journal that was read before, or exported just now.
    ///
    /// # Errors
    ///
    /// As [`replay`].
    pub fn journal(&self, journal: &JournalFile) -> Result<Replayed, ReplayFailure> {
        on_a_thread(|| self.drive(journal, None))
    }

    /// Replays all journal files (`.journal.json`, `.journal`) of a folder, in the order of their names.
    ///
    /// # Errors
    ///
    /// All files that cannot be read or do not fit; also if the folder cannot be read or has no journal file, because a
    /// test that replays nothing shows nothing.
    pub fn dir(&self, path: impl AsRef<Path>) -> Result<Vec<Replayed>, ReplayFailures> {
        let path = path.as_ref();
        let files = match files_of(path) {
            Ok(files) => files,
            Err(failure) => return Err(ReplayFailures::new(1, vec![failure])),
        };
        on_a_thread(|| {
            let (mut replayed, mut failures) = (Vec::new(), Vec::new());
            for file in &files {
                match self.one(file) {
                    Ok(one) => replayed.push(one),
                    Err(failure) => failures.push(failure),
                }
            }
            match failures.is_empty() {
                true => Ok(replayed),
                false => Err(ReplayFailures::new(files.len(), failures)),
            }
        })
    }

    /// Fails the test unless all journal files of a folder fit.
    ///
    /// # Panics
    ///
    /// With the reports of all that do not; also if there is none.
    #[track_caller]
    pub fn assert_dir(&self, path: impl AsRef<Path>) -> Vec<Replayed> {
        match self.dir(path) {
            Ok(replayed) => replayed,
            Err(failures) => panic!("{failures}"),
        }
    }

    fn one(&self, path: &Path) -> Result<Replayed, ReplayFailure> {
        let journal =
            JournalFile::read(path).map_err(|error| ReplayFailure::unreadable(path, &error))?;
        self.drive(&journal, Some(path))
    }

    fn drive(&self, journal: &JournalFile, path: Option<&Path>) -> Result<Replayed, ReplayFailure> {
        let failed = |kind, report: String| ReplayFailure::of(journal, path, kind, report);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.map_err(|error| {
            let report = format!("no thread can be had to replay it on: {error}");
            failed(ReplayFailureKind::Other, report)
        })?;
        runtime.block_on(async {
            let mut builder = Engine::builder();
            for change in &self.setup {
                builder = change(builder);
            }
            let codec = builder.take_codec();
            let journal = journal.clone().opened_by(codec.as_deref());
            let journal = &journal
                .map_err(|error| failed(ReplayFailureKind::Undecodable, error.to_string()))?;
            let opened = builder
                .namespace(journal.namespace())
                .open_in_memory()
                .await;
            let engine =
                opened.map_err(|error| failed(ReplayFailureKind::Other, error.to_string()))?;
            let records = journal.records_to_replay();
            let replay = engine.verify_journal(journal.run(), records).await;
            let replay = replay.map_err(|unreplayed| match unreplayed {
                Unreplayed::Parked {
                    reason,
                    report,
                    detail,
                } => failed(kind_of(reason), report).detail(detail),
                Unreplayed::Store(error) => failed(ReplayFailureKind::Other, error.to_string()),
            })?;
            let steps = replay.steps;
            match judge(&engine, replay) {
                Ok((stopped, warnings)) => {
                    Ok(Replayed::new(journal, path, steps, stopped, warnings))
                }
                Err(Unfit { report, detail }) => {
                    Err(failed(ReplayFailureKind::Diverged, report).detail(detail))
                }
            }
        })
    }
}

/// Runs it on a thread of its own: there, a runtime can be waited for.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, ReplayFailure> {
    let read = || {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if JournalFile::is_named(&path) {
                files.push(path);
            }
        }
        files.sort();
        Ok::<_, std::io::Error>(files)
    };
    let problem = match read() {
        Ok(files) if !files.is_empty() => return Ok(files),
        Ok(_) => "there is no `.journal.json` or `.journal` file in it, so nothing is shown by replaying it: export a \
                  run with `engine.export(run).await?.write(..)`, or name the right folder"
            .to_owned(),
        Err(error) => format!(
            "the folder cannot be read: {error}; paths are relative to the package's folder in `cargo test`"
        ),
    };
    Err(ReplayFailure::in_folder(folder, problem))
}

fn kind_of(reason: ParkReason) -> ReplayFailureKind {
    match reason {
        ParkReason::Diverged => ReplayFailureKind::Diverged,
        ParkReason::Undecodable | ParkReason::Corrupt => ReplayFailureKind::Undecodable,
        ParkReason::Unregistered => ReplayFailureKind::Unregistered,
        ParkReason::Panicked => ReplayFailureKind::Panicked,
        _ => ReplayFailureKind::Other,
    }
}
