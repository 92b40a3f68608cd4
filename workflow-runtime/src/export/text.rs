//! A journal file as JSON.
//!
//! Owns the text around the records: what stands first, which lines belong together, what is compared
//! when it is read. `docs/journal-files.md` describes it; fixtures in `tests/journals` freeze it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::json::{Json, Malformed, Reader, print_text};
use super::value::{hex_text, unhex};
use super::{CODED_FORMAT, FORMAT, JournalFile, JournalFileError, from_fields, kinds, to_fields};
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::journal::Record;

/// What becomes of a file that was edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edits {
    /// It is not read.
    Refused,
    /// It is taken as it is.
    Taken,
}

/// Writes a file.
pub(super) fn write(file: &JournalFile) -> String {
    let mut out = String::from("{\n");
    let identity = identity(file);
    for (name, value) in &identity {
        entry(&mut out, "  ", name, value, 2);
        out.push_str(",\n");
    }
    out.push_str("  \"records\": [");
    for (n, record) in file.records.iter().enumerate() {
        out.push_str(if n == 0 { "\n" } else { ",\n" });
        write_record(&mut out, file, record);
    }
    out.push_str("\n  ]\n}\n");
    out
}

/// What stands before the records. All but the first and last few is in the first record too, and must be the same.
fn identity(file: &JournalFile) -> Vec<(&'static str, Json<'static>)> {
    let text = |text: &str| Json::text(text.to_owned());
    let mut entries = vec![
        ("journal_file", Json::UInt(file.form())),
        ("run", text(&file.run.to_string())),
        ("workflow", text(file.workflow())),
        ("version", Json::UInt(file.version().into())),
        ("namespace", text(file.namespace())),
    ];
    if let Some(key) = file.key() {
        entries.push(("key", text(key)));
    }
    if let Some(parent) = file.parent() {
        entries.push(("parent", text(&parent.run.to_string())));
    }
    if file.is_coded() {
        let ids = file.key_ids().into_iter();
        let ids = ids.map(|id| Json::UInt(id.into()));
        entries.push(("key_ids", Json::List(ids.collect())));
    }
    if let Some(cut) = file.cut() {
        entries.push(("cut", text(cut)));
    }
    entries.push(("texts_redacted", Json::Bool(file.texts_redacted)));
    entries.push(("source_head", text(&file.source_head())));
    entries.push(("head", text(&file.head())));
    entries
}

fn entry(out: &mut String, before: &str, name: &str, value: &Json<'_>, indent: usize) {
    out.push_str(before);
    print_text(name, out);
    out.push_str(": ");
    value.print(out, indent);
}

/// One line for what every record has, one for its simple fields, and one or more for each of the others.
fn write_record(out: &mut String, file: &JournalFile, record: &Record) {
    let check = file.check(record, &record.body());
    let fields = kinds::to_json(&record.event, &file.marks_of(record.seq));
    let Ok(Json::Object(fields)) = fields else {
        unreachable!("record kinds are structures of what files know")
    };
    let head = [
        ("seq", Json::UInt(record.seq)),
        ("kind", Json::text(kinds::name(&record.event))),
        ("time", to_fields::time_to_json(record.time.as_micros())),
        ("check", Json::text(hex_text(&check))),
    ];
    out.push_str("    {");
    for (n, (name, value)) in head.iter().enumerate() {
        entry(out, if n == 0 { "" } else { ", " }, name, value, 4);
    }
    let (simple, others): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(_, value)| value.is_scalar());
    for (n, (name, value)) in simple.iter().enumerate() {
        entry(out, if n == 0 { ",\n      " } else { ", " }, name, value, 6);
    }
    for (name, value) in &others {
        entry(out, ",\n      ", name, value, 6);
    }
    out.push('}');
}

/// What is read of a file before it is known to be one.
#[derive(Default)]
struct Draft<'a> {
    entries: Vec<(Cow<'a, str>, Json<'a>)>,
    records: Vec<Record>,
    /// The check of each record, as it was found, and where.
    checks: Vec<(Option<Vec<u8>>, usize)>,
    marks: BTreeMap<(u64, u32), Vec<super::Place>>,
    has_records: bool,
}

impl From<Malformed> for JournalFileError {
    fn from(malformed: Malformed) -> Self {
        let problem = format!("it is not JSON: {}", malformed.problem);
        Self::new(problem).in_line(malformed.line)
    }
}

/// Reads a file.
pub(super) fn read(text: &str, edits: Edits) -> Result<JournalFile, JournalFileError> {
    let mut reader = Reader::new(text);
    let mut draft = read_draft(&mut reader)?;
    let file = draft.file()?;
    file.check_order()?;
    if edits == Edits::Refused {
        draft.check_edits(&file, &reader)?;
    }
    Ok(file)
}

fn read_draft<'a>(reader: &mut Reader<'a>) -> Result<Draft<'a>, JournalFileError> {
    let mut draft = Draft::default();
    reader.expect(b'{')?;
    loop {
        let name = reader.key()?;
        if name == "records" && !draft.has_records {
            // A newer form may have other records: that is to be said first.
            draft.check_format()?;
            draft.has_records = true;
            read_records(reader, &mut draft)?;
        } else {
            draft.entries.push((name, reader.value()?));
        }
        if !reader.take(b',') {
            break;
        }
    }
    reader.expect(b'}')?;
    reader.end()?;
    draft.check_format()?;
    Ok(draft)
}

fn read_records<'a>(
    reader: &mut Reader<'a>,
    draft: &mut Draft<'a>,
) -> Result<(), JournalFileError> {
    reader.expect(b'[')?;
    if reader.take(b']') {
        return Ok(());
    }
    loop {
        let place = reader.place();
        let number = draft.records.len() as u64;
        let json = reader
            .value()
            .map_err(|malformed| JournalFileError::from(malformed).in_record(number))?;
        draft.add(json, place).map_err(|problem| {
            let error = JournalFileError::new(problem);
            error.in_record(number).in_line(reader.line_of(place))
        })?;
        if !reader.take(b',') {
            break;
        }
    }
    Ok(reader.expect(b']')?)
}

impl<'a> Draft<'a> {
    /// Adds a record.
    fn add(&mut self, json: Json<'a>, place: usize) -> Result<(), String> {
        let Json::Object(mut fields) = json else {
            return Err(format!("a record is an object, not {}", json.kind()));
        };
        let mut take = |name: &str| {
            let at = fields.iter().position(|(field, _)| field == name)?;
            Some(fields.remove(at).1)
        };
        let missing = |name: &str| format!("`{name}` is missing: export the run again");
        let seq = match take("seq") {
            Some(Json::UInt(seq)) => seq,
            _ => return Err(missing("seq")),
        };
        let kind = match take("kind") {
            Some(Json::Text(kind)) => kind,
            _ => return Err(missing("kind")),
        };
        let time = take("time").ok_or_else(|| missing("time"))?;
        let micros =
            from_fields::time_from_json(&time).map_err(|error| format!("time: {error}"))?;
        let check = match take("check") {
            Some(Json::Text(check)) => unhex(&check),
            _ => None,
        };
        let (event, marks) = kinds::from_json(&kind, Json::Object(fields))
            .map_err(|error| format!("{kind}: {error}"))?;
        for (payload, places) in marks {
            self.marks.insert((seq, payload), places);
        }
        self.records.push(Record {
            seq,
            time: Timestamp::from_micros(micros),
            event,
        });
        self.checks.push((check, place));
        Ok(())
    }

    fn entry(&self, name: &str) -> Option<&Json<'a>> {
        let mut entries = self.entries.iter();
        entries
            .find(|(entry, _)| entry == name)
            .map(|(_, value)| value)
    }

    fn text(&self, name: &str) -> Result<&str, JournalFileError> {
        match self.entry(name) {
            Some(Json::Text(text)) => Ok(text),
            _ => Err(JournalFileError::new(format!(
                "`{name}` is missing, or not a text: export the run again"
            ))),
        }
    }

    fn head(&self, name: &str) -> Result<[u8; 32], JournalFileError> {
        let head = unhex(self.text(name)?).and_then(|head| head.try_into().ok());
        head.ok_or_else(|| {
            JournalFileError::new(format!(
                "`{name}` is not 64 hexadecimal digits: export the run again"
            ))
        })
    }

    fn check_format(&self) -> Result<(), JournalFileError> {
        match self.entry("journal_file") {
            Some(Json::UInt(FORMAT | CODED_FORMAT)) => Ok(()),
            Some(Json::UInt(newer)) if *newer > CODED_FORMAT => {
                Err(JournalFileError::new(format!(
                    "it has the form {newer}, this release reads {FORMAT} and {CODED_FORMAT}: upgrade workflow-runtime"
                )))
            }
            _ => Err(JournalFileError::new(
                "it is no journal file: one begins with `\"journal_file\": 1`; `engine.export(run)` makes them",
            )),
        }
    }

    /// Makes the file, of the records too.
    fn file(&mut self) -> Result<JournalFile, JournalFileError> {
        let run: RunId = self
            .text("run")?
            .parse()
            .map_err(|error| JournalFileError::new(format!("`run`: {error}")))?;
        let cut = match self.entry("cut") {
            None => None,
            Some(_) => Some(self.text("cut")?.to_owned()),
        };
        let file = JournalFile {
            run,
            source: self.head("source_head")?,
            cut,
            records: std::mem::take(&mut self.records),
            marks: std::mem::take(&mut self.marks),
            texts_redacted: self.entry("texts_redacted") == Some(&Json::Bool(true)),
            coded: self.entry("journal_file") == Some(&Json::UInt(CODED_FORMAT)),
        };
        Ok(file)
    }

    /// Compares what was found with what would be written.
    fn check_edits(&self, file: &JournalFile, reader: &Reader<'_>) -> Result<(), JournalFileError> {
        const WAY_OUT: &str = "export the run again, or, if the edit is meant, seal it: \
             `JournalFile::read_edited(path)?.write(path)?`";
        let edited = |what: &str| JournalFileError::new(format!("{what} was edited: {WAY_OUT}"));
        for (record, (check, place)) in file.records.iter().zip(&self.checks) {
            let wanted = file.check(record, &record.body());
            if check.as_deref() != Some(&wanted) {
                let error = edited("the record").in_record(record.seq);
                return Err(error.in_line(reader.line_of(*place)));
            }
        }
        if self.head("head")? != file.chained() {
            return Err(edited("the list of records"));
        }
        let identity = identity(file);
        let known = |name: &str| identity.iter().find(|(known, _)| *known == name);
        for (name, value) in &self.entries {
            match known(name) {
                Some((_, wanted)) if wanted == value => {}
                _ => return Err(edited(&format!("`{name}`"))),
            }
        }
        match identity.iter().find(|(name, _)| self.entry(name).is_none()) {
            Some((name, _)) => Err(edited(&format!("`{name}`"))),
            None => Ok(()),
        }
    }
}
