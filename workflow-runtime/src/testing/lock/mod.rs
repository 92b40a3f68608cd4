//! `workflows.lock`: what runs under way rely on, in a file beside the code, and what a change of code means for them.
//!
//! Owns the file and the assertion. What it says comes from the macros' shapes and from what serde sees of types
//! (`gather`, `trace`); what a change means is decided by `compare`. It knows code, not runs: what only values decide
//! (a condition, an input) is left to the replay of recorded journals.

mod align;
mod bodies;
mod compare;
mod gather;
mod model;
mod patches;
mod reader;
mod report;
mod text;
mod trace;
mod values;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use report::{Change, Changed, Class};
pub(crate) use trace::trace;

use crate::call::{Workflow, WorkflowDefinition};

/// The variable that has lock files written.
const UPDATE: &str = "WORKFLOWS_LOCK";

/// The variable that says that nobody reads what a test writes.
const CI: &str = "CI";

/// Workflows whose runs must survive changes of their code.
///
/// A test compares them with a file that is kept beside the code:
///
/// ```no_run
/// # use workflow_runtime::{Result, workflow};
/// # #[workflow] async fn checkout(cents: u64) -> Result<u64> { Ok(cents) }
/// # #[workflow] async fn refund(cents: u64) -> Result<u64> { Ok(cents) }
/// use workflow_runtime::testing::Lock;
///
/// #[test]
/// fn runs_under_way_survive_this_code() {
///     Lock::new().workflow::<checkout>().workflow::<refund>().assert_unchanged("workflows.lock");
/// }
/// ```
///
/// Its `Display` is the file.
#[derive(Debug, Clone, Default)]
#[must_use = "a lock does nothing until it is compared with a file"]
pub struct Lock {
    workflows: Vec<&'static WorkflowDefinition>,
}

impl Lock {
    /// Makes a lock without workflows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a workflow. Old versions that are still registered have to be added too.
    pub fn workflow<W: Workflow>(mut self) -> Self {
        let new = W::DEFINITION;
        let known = |it: &&WorkflowDefinition| (it.name, it.version) == (new.name, new.version);
        if !self.workflows.iter().any(known) {
            self.workflows.push(new);
        }
        self
    }

    /// Compares the code with what a lock file says.
    ///
    /// # Errors
    ///
    /// If the text is no lock file; the error names the line.
    pub fn compare(&self, file: &str) -> Result<Changed, LockError> {
        self.compare_named(file, Path::new("workflows.lock"))
    }

    /// Compares the code with a file.
    ///
    /// # Errors
    ///
    /// If the file is missing, cannot be read or is no lock file.
    pub fn compare_file(&self, path: impl AsRef<Path>) -> Result<Changed, LockError> {
        let path = path.as_ref();
        match std::fs::read_to_string(path) {
            Ok(text) => self.compare_named(&text, path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(LockError::Missing(path.into()))
            }
            Err(error) => Err(LockError::io(path, &error)),
        }
    }

    fn compare_named(&self, text: &str, path: &Path) -> Result<Changed, LockError> {
        let file = path.display().to_string();
        let old = reader::read(text, &file).map_err(|wrong| LockError::Unreadable {
            path: path.into(),
            line: wrong.line,
            problem: wrong.problem,
        })?;
        Ok(Changed {
            changes: compare::compare(&old, &gather::manifest(&self.workflows)),
            outdated: text.replace("\r\n", "\n") != self.to_string(),
        })
    }

    /// Fails the test unless the file says what the code is.
    ///
    /// With `WORKFLOWS_LOCK=update` in the environment the file is written instead, and what that accepts is printed;
    /// where `CI` is set, it is not. Nothing is ever written otherwise.
    ///
    /// # Panics
    ///
    /// With every change, what it means for runs under way and how to mend it; or if the file is missing or no lock file.
    #[track_caller]
    pub fn assert_unchanged(&self, path: impl AsRef<Path>) {
        let set = |name: &str| std::env::var(name).unwrap_or_default();
        let said = self.settle(path.as_ref(), &set(UPDATE), &set(CI));
        match said {
            Ok(None) => {}
            Ok(Some(accepted)) => eprintln!("{accepted}"),
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Fails the test unless the file says what the code is and recorded journals were replayed: what to run before a
    /// deploy. Says what is wrong with either at once.
    ///
    /// The lock knows what is written, and the journals know values: a condition or an input that comes out otherwise
    /// shows only there.
    ///
    /// ```no_run
    /// # use workflow_runtime::{Result, workflow};
    /// # #[workflow] async fn checkout(cents: u64) -> Result<u64> { Ok(cents) }
    /// # fn replayed() -> std::result::Result<(), String> { Ok(()) }
    /// use workflow_runtime::testing::Lock;
    ///
    /// Lock::new().workflow::<checkout>().assert_compatible("workflows.lock", replayed());
    /// ```
    ///
    /// # Panics
    ///
    /// As [`Lock::assert_unchanged`], and with what the replay failed with.
    #[track_caller]
    pub fn assert_compatible<T, E: fmt::Display>(
        &self,
        path: impl AsRef<Path>,
        replayed: Result<T, E>,
    ) {
        let set = |name: &str| std::env::var(name).unwrap_or_default();
        let said = self.settle(path.as_ref(), &set(UPDATE), &set(CI));
        match (said, replayed) {
            (Ok(accepted), Ok(_)) => {
                if let Some(accepted) = accepted {
                    eprintln!("{accepted}");
                }
            }
            (Ok(_), Err(replay)) => panic!("recorded journals do not fit this code:\n{replay}"),
            (Err(lock), Ok(_)) => panic!("{lock}"),
            (Err(lock), Err(replay)) => {
                panic!("{lock}\n\nrecorded journals do not fit this code:\n{replay}")
            }
        }
    }

    /// Compares or writes, as the environment says. Gives what there is to say about what was written.
    fn settle(&self, path: &Path, update: &str, ci: &str) -> Result<Option<String>, String> {
        let compared = self.compare_file(path);
        let shown = path.display();
        match update {
            "update" if !matches!(ci, "" | "0" | "false") => Err(format!(
                "{UPDATE}=update is set where {CI} is: {shown} would be written where nobody reads it; update it on your \
                 machine and commit it"
            )),
            "update" => {
                std::fs::write(path, self.to_string())
                    .map_err(|error| LockError::io(path, &error).to_string())?;
                Ok(match compared {
                    Ok(changed) if changed.is_current() => None,
                    Ok(changed) => Some(format!("{shown} was written. {changed}")),
                    Err(_) => Some(format!("{shown} was written")),
                })
            }
            "" => match compared {
                Ok(changed) if changed.is_current() => Ok(None),
                Ok(changed) => Err(format!("{shown}: {changed}\n\n{}", way_out(&changed))),
                Err(error) => Err(error.to_string()),
            },
            other => Err(format!(
                "{UPDATE}={other} means nothing: set it to `update` to have {shown} written, or do not set it"
            )),
        }
    }
}

/// What to do about changes.
fn way_out(changed: &Changed) -> &'static str {
    match changed.class() {
        None | Some(Class::Safe) => {
            "Runs under way go on with this code. Accept it: WORKFLOWS_LOCK=update cargo test, and commit the file"
        }
        Some(_) => {
            "Mend what is not safe. If no run is under way that it concerns, accept it: WORKFLOWS_LOCK=update cargo test, \
             and commit the file"
        }
    }
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::write(&gather::manifest(&self.workflows)))
    }
}

/// Says why code cannot be compared with a lock file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// There is no such file.
    #[error("there is no {}: make it with WORKFLOWS_LOCK=update cargo test, and commit it", .0.display())]
    Missing(PathBuf),
    /// It cannot be read or written.
    #[error("{}: {problem}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        problem: String,
    },
    /// It is no lock file.
    #[error("{}:{line}: {problem}; bring the committed file back, or make it anew with WORKFLOWS_LOCK=update cargo test", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What is wrong there.
        problem: String,
    },
}

impl LockError {
    fn io(path: &Path, error: &io::Error) -> Self {
        Self::Io {
            path: path.into(),
            problem: error.to_string(),
        }
    }
}
