//! Journals as files (feature `export`): one run, readable and diff-able as JSON or compact as bytes.
//!
//! Owns the form of a journal outside of a store, what is taken out of it on the way, and how an edit
//! is noticed. It knows no user's types and never runs anything: a console, a repair tool and the replay of the testing
//! kit all read the same files. [`Engine::export`](crate::Engine::export) makes them. The bytes are in
//! `docs/journal-files.md`.

mod binary;
mod coded;
mod error;
mod from_fields;
mod json;
mod kinds;
mod redact;
mod text;
mod to_fields;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use bytes::Bytes;

pub use self::error::JournalFileError;
#[cfg(feature = "testing")]
pub(crate) use self::redact::TEXT as REDACTED_TEXT;
pub use self::redact::{PayloadValue, Redact};
use self::value::Place;
use crate::codec;
use crate::hashing::HashContext;
use crate::ids::RunId;
use crate::journal::{Chain, End, Event, Parent, Record, RunStarted};

/// The form of a file whose payloads are in clear.
const FORMAT: u64 = 1;

/// The form of a file whose payloads are as a payload codec made them: nobody who knows only the first form is to take
/// them for values.
const CODED_FORMAT: u64 = 2;

/// The largest file that is read. Journals of this size are not fixtures any more.
const MAX_FILE: u64 = 256 * 1024 * 1024;

/// How a file of text ends, and one of bytes.
const EXTENSIONS: [&str; 2] = [".journal.json", ".journal"];

/// One run's journal outside of its store.
///
/// ```no_run
/// # use workflow_runtime::{Engine, Result, RunId};
/// # async fn example(engine: Engine, run: RunId) -> Result<()> {
/// let file = engine.export(run).await?.redact_fields(["card", "email"]);
/// file.write("tests/journals/checkout.journal.json")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct JournalFile {
    run: RunId,
    /// The chain's value in the store that it was exported from.
    source: [u8; 32],
    /// Why it is not all of the journal, if it is not.
    cut: Option<String>,
    records: Vec<Record>,
    /// Where something was taken out, by record and number of the payload.
    marks: BTreeMap<(u64, u32), Vec<Place>>,
    /// Texts beside the payloads were taken out.
    texts_redacted: bool,
    /// Payloads are as the engine's payload codec made them.
    coded: bool,
}

impl JournalFile {
    /// Makes a file of records that were read from a store, and verified.
    pub(crate) fn new(
        run: RunId,
        source: [u8; 32],
        cut: Option<String>,
        records: Vec<Record>,
    ) -> Result<Self, JournalFileError> {
        let file = Self {
            run,
            source,
            cut,
            records,
            marks: BTreeMap::new(),
            texts_redacted: false,
            coded: false,
        };
        file.check_order()?;
        Ok(file)
    }

    /// The run.
    pub fn run(&self) -> RunId {
        self.run
    }

    fn started(&self) -> &RunStarted {
        match self.records.first().map(|record| &record.event) {
            Some(Event::RunStarted(started)) => started,
            _ => unreachable!("no file is made without a start"),
        }
    }

    /// Its workflow.
    pub fn workflow(&self) -> &str {
        &self.started().workflow
    }

    /// The version of its workflow.
    pub fn version(&self) -> u32 {
        self.started().version
    }

    /// The namespace that it lives in.
    pub fn namespace(&self) -> &str {
        &self.started().namespace
    }

    /// The key that it was started with.
    pub fn key(&self) -> Option<&str> {
        self.started().key.as_deref()
    }

    /// The call that it is the child of.
    pub fn parent(&self) -> Option<Parent> {
        self.started().parent
    }

    /// The records, in order. Payloads are in clear unless the file is [coded](JournalFile::is_coded).
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// How the run ended, if it has.
    pub fn end(&self) -> Option<End> {
        End::of(self.records.last()?.event.clone())
    }

    /// Says whether something was taken out.
    pub fn is_redacted(&self) -> bool {
        self.texts_redacted || !self.marks.is_empty()
    }

    /// Why it is not all of the journal, if the rest was damaged.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// The chain's value over the records as they are here, as text. As long as nothing was taken out or opened and the
    /// engine had no audit key, it is [`JournalFile::source_head`].
    pub fn head(&self) -> String {
        value::hex_text(&self.chained())
    }

    /// The chain's value in the store that it was exported from, as text.
    pub fn source_head(&self) -> String {
        value::hex_text(&self.source)
    }

    /// What an edit of a record changes. Where something was taken out counts too.
    fn check(&self, record: &Record, body: &[u8]) -> [u8; 8] {
        static CONTEXT: HashContext =
            HashContext::new("workflow-runtime 2026-11 journal file record");
        let marks = self.marks_of(record.seq);
        let mut hash = CONTEXT.hasher();
        hash.update(self.run.as_bytes())
            .update(&record.seq.to_le_bytes())
            .update(&(body.len() as u64).to_le_bytes())
            .update(body);
        if !marks.is_empty() {
            hash.update(&codec::encode(&marks));
        }
        let mut check = [0; 8];
        check.copy_from_slice(&hash.finalize().as_bytes()[..8]);
        check
    }

    /// Where something was taken out of a record.
    fn marks_of(&self, seq: u64) -> Vec<(u32, Vec<Place>)> {
        let marks = self.marks.range((seq, 0)..=(seq, u32::MAX));
        marks
            .map(|((_, payload), places)| (*payload, places.clone()))
            .collect()
    }

    /// The form that it is written in.
    fn form(&self) -> u64 {
        match self.coded {
            true => CODED_FORMAT,
            false => FORMAT,
        }
    }

    fn chained(&self) -> [u8; 32] {
        let mut chain = Chain::new(self.run, None);
        let mut head = [0; 32];
        for record in &self.records {
            head = chain.extend(&record.body());
        }
        head
    }

    /// Checks that the records are a journal's: from 0, without gaps, from the start of a run on.
    fn check_order(&self) -> Result<(), JournalFileError> {
        if !matches!(
            self.records.first().map(|record| &record.event),
            Some(Event::RunStarted(_))
        ) {
            let problem = "a journal begins with `run_started`: export the run again";
            return Err(JournalFileError::new(problem).in_record(0));
        }
        for (n, record) in (0..).zip(&self.records) {
            if record.seq != n {
                let problem = format!(
                    "it has the number {}: records are numbered from 0 without gaps; one is missing or out of place",
                    record.seq
                );
                return Err(JournalFileError::new(problem).in_record(n));
            }
        }
        Ok(())
    }

    /// Writes it as JSON, in an order that never changes: equal journals are equal texts.
    pub fn to_json(&self) -> String {
        text::write(self)
    }

    /// Writes it as bytes.
    pub fn to_binary(&self) -> Vec<u8> {
        binary::write(self)
    }

    /// Reads what [`JournalFile::to_json`] writes.
    ///
    /// # Errors
    ///
    /// If it is something else, was edited since, or is of a newer release.
    pub fn from_json(json: &str) -> Result<Self, JournalFileError> {
        text::read(json, text::Edits::Refused)
    }

    /// The same, of a text that was edited on purpose.
    #[cfg(feature = "testing")]
    pub(crate) fn from_json_edited(json: &str) -> Result<Self, JournalFileError> {
        text::read(json, text::Edits::Taken)
    }

    /// Reads what [`JournalFile::to_binary`] writes.
    ///
    /// # Errors
    ///
    /// If it is something else, was edited since, or is of a newer release.
    pub fn from_binary(bytes: impl Into<Bytes>) -> Result<Self, JournalFileError> {
        binary::read(&bytes.into())
    }

    /// Writes a file, as JSON if its name ends in `.journal.json` and as bytes if it ends in `.journal`. It is there
    /// as a whole or not at all.
    ///
    /// # Errors
    ///
    /// If the name ends otherwise, or the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), JournalFileError> {
        let path = path.as_ref();
        let bytes = match Form::of(path)? {
            Form::Json => self.to_json().into_bytes(),
            Form::Binary => self.to_binary(),
        };
        let beside = path.with_extension("partial");
        let written = File::create(&beside)
            .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&beside, path));
        written.map_err(|error| {
            let _ = std::fs::remove_file(&beside);
            JournalFileError::new(format!("it cannot be written: {error}")).in_file(path)
        })
    }

    /// Reads a file; which form it has is known by its name, as for [`JournalFile::write`].
    ///
    /// # Errors
    ///
    /// Names the file, the line or record, and what to do: if it cannot be read, is no journal file, was edited,
    /// or is of a newer release.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, JournalFileError> {
        Self::read_with(path.as_ref(), text::Edits::Refused)
    }

    /// Reads a file of JSON that was edited on purpose; writing it again seals it.
    ///
    /// # Errors
    ///
    /// As [`JournalFile::read`], but for the edit.
    pub fn read_edited(path: impl AsRef<Path>) -> Result<Self, JournalFileError> {
        Self::read_with(path.as_ref(), text::Edits::Taken)
    }

    fn read_with(path: &Path, edits: text::Edits) -> Result<Self, JournalFileError> {
        let read = || {
            let form = Form::of(path)?;
            let bytes = read_bytes(path)?;
            match form {
                Form::Binary => binary::read(&bytes.into()),
                Form::Json => {
                    let text = String::from_utf8(bytes).map_err(|error| {
                        let at = error.utf8_error().valid_up_to();
                        let before = error.as_bytes()[..at].iter();
                        let line = 1 + before.filter(|byte| **byte == b'\n').count();
                        JournalFileError::new("it is not UTF-8: export the run again").in_line(line)
                    })?;
                    text::read(&text, edits)
                }
            }
        };
        read().map_err(|error: JournalFileError| match error.file() {
            Some(_) => error,
            None => error.in_file(path),
        })
    }

    /// Says whether a name is that of a journal file.
    pub fn is_named(path: &Path) -> bool {
        Form::of(path).is_ok()
    }
}

enum Form {
    Json,
    Binary,
}

impl Form {
    fn of(path: &Path) -> Result<Self, JournalFileError> {
        let name = path.to_string_lossy();
        match EXTENSIONS.map(|extension| name.ends_with(extension)) {
            [true, _] => Ok(Self::Json),
            [_, true] => Ok(Self::Binary),
            _ => {
                let problem = "the name of a journal file ends in `.journal.json` (text) or `.journal` (bytes)";
                Err(JournalFileError::new(problem).in_file(path))
            }
        }
    }
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, JournalFileError> {
    let unread =
        |error: std::io::Error| JournalFileError::new(format!("it cannot be read: {error}"));
    let file = File::open(path).map_err(unread)?;
    let mut bytes = Vec::new();
    // The file's own word on its length may be wrong, or change.
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(unread)?;
    if bytes.len() as u64 > MAX_FILE {
        let problem = format!("it is larger than {MAX_FILE} bytes, which is the most that is read");
        return Err(JournalFileError::new(problem));
    }
    Ok(bytes)
}
