//! What a replay came to, for people.
//!
//! Owns the texts: which file, which run, what does not fit, what to do. It decides nothing.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::export::{JournalFile, JournalFileError};
use crate::ids::RunId;

/// A journal that the code fits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// The file, if it was one.
    pub file: Option<PathBuf>,
    /// The run.
    pub run: RunId,
    /// Its workflow.
    pub workflow: String,
    /// The version of its workflow.
    pub version: u32,
    /// How many outcomes of steps the code was given.
    pub steps: usize,
    /// Where the replay stopped.
    pub stopped: Stopped,
    /// Values were taken out of the file: inputs were compared without them.
    pub redacted: bool,
    /// What is suspicious and stops nothing, as an engine warns of it.
    pub warnings: Vec<String>,
}

/// Where a replay stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// The run ended, as it did.
    Ended,
    /// The journal is not finished, and all of it fits.
    Frontier {
        /// What the code would do next: nothing of it was done.
        waiting: Vec<String>,
        /// Whether the run would end here.
        ends: bool,
    },
}

impl Replayed {
    pub(super) fn new(
        journal: &JournalFile,
        path: Option<&Path>,
        steps: usize,
        stopped: Stopped,
        warnings: Vec<String>,
    ) -> Self {
        Self {
            file: path.map(Path::to_owned),
            run: journal.run(),
            workflow: journal.workflow().to_owned(),
            version: journal.version(),
            steps,
            stopped,
            redacted: journal.is_redacted(),
            warnings,
        }
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        let steps = match self.steps {
            1 => "1 step".to_owned(),
            n => format!("{n} steps"),
        };
        write!(f, "{} of `{}` fits: {steps}, ", self.run, self.workflow)?;
        match &self.stopped {
            Stopped::Ended => f.write_str("to its end")?,
            Stopped::Frontier { ends: true, .. } => {
                f.write_str("to the end of an unfinished journal, where the run would end")?;
            }
            Stopped::Frontier { waiting, .. } => {
                f.write_str("to the end of an unfinished journal; next: ")?;
                f.write_str(&match waiting.is_empty() {
                    true => "nothing that is journaled".to_owned(),
                    false => waiting.join(", "),
                })?;
            }
        }
        for warning in &self.warnings {
            write!(f, "\n  warning: {warning}")?;
        }
        Ok(())
    }
}

/// A journal that cannot be read or that the code does not fit. Printing it gives the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayFailure {
    place: Option<PathBuf>,
    /// Boxed, so that a failure is not larger than what it fails to be.
    run: Option<Box<(RunId, String, u32)>>,
    kind: ReplayFailureKind,
    report: String,
    detail: Option<String>,
    redacted: bool,
}

/// Why a journal was not replayed to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayFailureKind {
    /// The file or folder cannot be read, or is no journal.
    Unreadable,
    /// The journal's workflow, or a child that it calls, was not registered.
    Unregistered,
    /// The code cannot read a recorded value as its type of today.
    Undecodable,
    /// The code asks for something else than the journal holds, or comes to another end.
    Diverged,
    /// The workflow's own code panicked.
    Panicked,
    /// Something else keeps a run from going on: the report says what.
    Other,
}

impl ReplayFailureKind {
    /// What to do about it in a test. The report speaks to whoever finds a parked run.
    fn way_out(self) -> Option<&'static str> {
        match self {
            Self::Unregistered => Some(
                "add `.register::<…>()` to a `Replayer`, for child workflows and old versions too",
            ),
            Self::Undecodable => Some(
                "a run with this journal would be parked by this code; have it read old values too (`#[serde(default)]`, \
                 `#[serde(alias = \"…\")]`), or keep the old code as the old version",
            ),
            Self::Diverged => Some(
                "a run with this journal would not go on as before with this code; branch with `patched(\"…\")`, or \
                 give the new code a new `version` and keep the old one; if no such run is left, export a newer one",
            ),
            Self::Panicked | Self::Unreadable | Self::Other => None,
        }
    }
}

impl ReplayFailure {
    pub(super) fn of(
        journal: &JournalFile,
        path: Option<&Path>,
        kind: ReplayFailureKind,
        report: String,
    ) -> Self {
        let workflow = journal.workflow().to_owned();
        Self {
            place: path.map(Path::to_owned),
            run: Some(Box::new((journal.run(), workflow, journal.version()))),
            kind,
            report,
            detail: None,
            redacted: journal.is_redacted(),
        }
    }

    pub(super) fn unreadable(path: &Path, error: &JournalFileError) -> Self {
        let named = match error.file() {
            Some(_) => None, // the error names it
            None => Some(path.to_owned()),
        };
        Self {
            place: named,
            run: None,
            kind: ReplayFailureKind::Unreadable,
            report: error.to_string(),
            detail: None,
            redacted: false,
        }
    }

    pub(super) fn in_folder(folder: &Path, problem: String) -> Self {
        Self {
            place: Some(folder.to_owned()),
            run: None,
            kind: ReplayFailureKind::Unreadable,
            report: problem,
            detail: None,
            redacted: false,
        }
    }

    pub(super) fn detail(mut self, detail: Option<String>) -> Self {
        self.detail = detail;
        self
    }

    /// Returns why.
    pub fn kind(&self) -> ReplayFailureKind {
        self.kind
    }

    /// Returns what is wrong, without any value.
    pub fn report(&self) -> &str {
        &self.report
    }

    /// Returns what the report leaves out because it shows values: differing inputs, a panic's message, a decoder's
    /// complaint. They come from the file and from the code, so what was taken out of the file is not in here.
    pub fn values(&self) -> Option<&str> {
        self.detail.as_deref()
    }
}

impl fmt::Display for ReplayFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{}: ", place.display())?;
        }
        let Some((run, workflow, version)) = self.run.as_deref() else {
            return f.write_str(&self.report);
        };
        write!(
            f,
            "the journal of {run} (`{workflow}`, version {version}) cannot be replayed"
        )?;
        for line in self.report.lines() {
            write!(f, "\n  {line}")?;
        }
        if let Some(detail) = &self.detail {
            f.write_str("\n  what differs, or what was said:")?;
            for line in detail.lines() {
                write!(f, "\n    {}", line.trim_start())?;
            }
        }
        if let Some(way_out) = self.kind.way_out() {
            write!(f, "\n  here: {way_out}")?;
        }
        if self.redacted {
            f.write_str(
                "\n  values were taken out of this file, and the code was given empty ones instead: what it makes of them \
                 differs, and what it chooses by them; if that is all, export the run again and keep those fields \
                 (`redact_all_but`, `Redact::With`)",
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for ReplayFailure {}

/// All that went wrong in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayFailures {
    files: usize,
    failures: Vec<ReplayFailure>,
}

impl ReplayFailures {
    pub(super) fn new(files: usize, failures: Vec<ReplayFailure>) -> Self {
        Self { files, failures }
    }

    /// Returns them, in the order of the files' names.
    pub fn failures(&self) -> &[ReplayFailure] {
        &self.failures
    }
}

impl fmt::Display for ReplayFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([only], 1) = (&*self.failures, self.files) {
            return only.fmt(f);
        }
        let (failed, files) = (self.failures.len(), self.files);
        write!(f, "{failed} of {files} journals cannot be replayed")?;
        for failure in &self.failures {
            write!(f, "\n\n{failure}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ReplayFailures {}
