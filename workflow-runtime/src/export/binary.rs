//! A journal file as bytes: small, and quick to read.
//!
//! Owns the frame around the records, which are the bodies of `docs/journal-format.md` as they are. Layout in
//! `docs/journal-files.md`; golden bytes in the tests below.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::value::Place;
use super::{CODED_FORMAT, FORMAT, JournalFile, JournalFileError};
use crate::codec;
use crate::ids::RunId;
use crate::journal::{Event, Record};

/// What such a file begins with.
const MAGIC: &[u8; 8] = b"wfjournl";

/// What stands before the records. The order of its fields is in files.
#[derive(Serialize, Deserialize)]
struct Preface {
    run: RunId,
    source: [u8; 32],
    cut: Option<String>,
    texts_redacted: bool,
    /// Record, payload, places.
    marks: Vec<(u64, u32, Vec<Place>)>,
    records: u64,
}

/// Writes a file.
pub(super) fn write(file: &JournalFile) -> Vec<u8> {
    let marks = file.marks.iter();
    let preface = codec::encode(&Preface {
        run: file.run,
        source: file.source,
        cut: file.cut.clone(),
        texts_redacted: file.texts_redacted,
        marks: marks
            .map(|((seq, payload), places)| (*seq, *payload, places.clone()))
            .collect(),
        records: file.records.len() as u64,
    });
    let mut out = MAGIC.to_vec();
    out.push(u8::try_from(file.form()).expect("a small number"));
    push(&mut out, &preface);
    for record in &file.records {
        push(&mut out, &record.body());
    }
    let check = *blake3::hash(&out).as_bytes();
    out.extend_from_slice(&check);
    out
}

/// Its length, then the part itself.
fn push(out: &mut Vec<u8>, part: &[u8]) {
    let len = u32::try_from(part.len()).expect("no store takes a record of 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(part);
}

fn take(rest: &mut Bytes, what: &str) -> Result<Bytes, JournalFileError> {
    let cut = || JournalFileError::new(format!("it ends within {what}: copy or export it again"));
    let len = rest.first_chunk::<4>().ok_or_else(cut)?;
    let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
    if rest.len() - 4 < len {
        return Err(cut());
    }
    let part = rest.slice(4..4 + len);
    *rest = rest.slice(4 + len..);
    Ok(part)
}

/// Reads a file.
pub(super) fn read(bytes: &Bytes) -> Result<JournalFile, JournalFileError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        let problem = "it is no journal file in bytes; one in text is named `.journal.json`";
        return Err(JournalFileError::new(problem));
    };
    let coded = match rest.first() {
        Some(format) if u64::from(*format) == FORMAT => false,
        Some(format) if u64::from(*format) == CODED_FORMAT => true,
        Some(format) => {
            return Err(JournalFileError::new(format!(
                "it has the form {format}, this release reads {FORMAT} and {CODED_FORMAT}: upgrade workflow-runtime"
            )));
        }
        None => {
            return Err(JournalFileError::new(
                "it ends after its name: copy it again",
            ));
        }
    };
    let damaged = || JournalFileError::new("it was damaged or edited: copy or export it again");
    let end = bytes.len().checked_sub(32).filter(|end| *end > MAGIC.len());
    let end = end.ok_or_else(damaged)?;
    if bytes[end..] != blake3::hash(&bytes[..end]).as_bytes()[..] {
        return Err(damaged());
    }
    let mut rest = bytes.slice(MAGIC.len() + 1..end);
    let preface = take(&mut rest, "what stands before its records")?;
    let preface: Preface = codec::decode(&preface)
        .map_err(|problem| JournalFileError::new(format!("before its records: {problem}")))?;
    let mut records = Vec::new(); // how many there are is not believed before they are seen
    for seq in 0..preface.records {
        let in_record = |error: JournalFileError| error.in_record(seq);
        let body = take(&mut rest, "a record").map_err(in_record)?;
        let (time, event) = Event::decode(&body)
            .map_err(|error| in_record(JournalFileError::new(error.to_string())))?;
        records.push(Record { seq, time, event });
    }
    if !rest.is_empty() {
        return Err(JournalFileError::new(format!(
            "{} bytes are left over",
            rest.len()
        )));
    }
    let marks: BTreeMap<_, _> = preface
        .marks
        .into_iter()
        .map(|(seq, payload, places)| ((seq, payload), places))
        .collect();
    let file = JournalFile {
        run: preface.run,
        source: preface.source,
        cut: preface.cut,
        records,
        marks,
        texts_redacted: preface.texts_redacted,
        coded,
    };
    file.check_order()?;
    Ok(file)
}
