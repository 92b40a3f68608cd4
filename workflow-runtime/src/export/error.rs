//! What can be wrong with a journal file.

use std::path::{Path, PathBuf};

/// Says which file cannot be read or written, where in it, why, and what to do. It quotes no payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{problem}", self.shown_file(), self.shown_place())]
pub struct JournalFileError {
    file: Option<PathBuf>,
    line: Option<usize>,
    record: Option<u64>,
    problem: String,
}

impl JournalFileError {
    pub(super) fn new(problem: impl Into<String>) -> Self {
        Self {
            file: None,
            line: None,
            record: None,
            problem: problem.into(),
        }
    }

    pub(super) fn in_line(mut self, line: usize) -> Self {
        self.line.get_or_insert(line);
        self
    }

    pub(super) fn in_record(mut self, record: u64) -> Self {
        self.record.get_or_insert(record);
        self
    }

    pub(super) fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    /// Returns the file, if it was read from one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the line, from 1, if the file is text.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// Returns the record, if it is about one.
    pub fn record(&self) -> Option<u64> {
        self.record
    }

    fn shown_file(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{}:{line}: ", file.display()),
            (Some(file), None) => format!("{}: ", file.display()),
            (None, Some(line)) => format!("line {line}: "),
            (None, None) => String::new(),
        }
    }

    fn shown_place(&self) -> String {
        let record = self.record.map(|record| format!("record {record}: "));
        record.unwrap_or_default()
    }
}
