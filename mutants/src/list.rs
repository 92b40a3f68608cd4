//! What cargo-mutants would change, as it lists it.
//!
//! Owns the reading of `cargo mutants --list --json`. It never looks into a source file.

use std::path::Path;

use serde_json::Value;

/// One change that a test should notice.
#[derive(Debug, Clone)]
pub(crate) struct Mutant {
    /// How the mutated program is told which one is on; from 1.
    pub(crate) id: u32,
    /// What cargo-mutants calls it, with file, line and column.
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) genre: String,
    pub(crate) replacement: String,
    /// Line and column (both from 1) where the replaced text begins.
    pub(crate) start: (usize, usize),
    /// The same, behind its end.
    pub(crate) end: (usize, usize),
}

/// Reads a list; the order of the list is the order of the ids.
pub(crate) fn read(path: &Path) -> Result<Vec<Mutant>, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let list: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let list = list.as_array().ok_or("the list is no array")?;
    list.iter()
        .zip(1..)
        .map(|(entry, id)| {
            one(entry, id).ok_or_else(|| format!("entry {id} of the list is not of a known form"))
        })
        .collect()
}

fn one(entry: &Value, id: u32) -> Option<Mutant> {
    let text = |name: &str| entry[name].as_str().map(str::to_owned);
    let place = |name: &str| {
        let place = &entry["span"][name];
        Some((
            place["line"].as_u64()? as usize,
            place["column"].as_u64()? as usize,
        ))
    };
    Some(Mutant {
        id,
        name: text("name")?,
        file: text("file")?,
        genre: text("genre")?,
        replacement: text("replacement")?,
        start: place("start")?,
        end: place("end")?,
    })
}
