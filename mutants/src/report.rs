//! The table of `docs/reliability.md`, from the verdicts.
//!
//! Owns how verdicts are counted: the newest of a mutant is in force. It never judges one.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use crate::list::Mutant;

/// The columns, and the verdicts that are counted in each.
const COLUMNS: [&str; 6] = [
    "caught",
    "timeout",
    "unviable",
    "apart",
    "lived",
    "unreached",
];

/// Prints a line for each file, and all that live.
pub(crate) fn print(output: &Path, mutants: &[Mutant]) {
    let text = fs::read_to_string(output.join("verdicts.tsv")).unwrap_or_default();
    let verdicts: HashMap<&str, &str> = text.lines().filter_map(verdict).collect();
    let mut files: BTreeMap<&str, (usize, [usize; COLUMNS.len()])> = BTreeMap::new();
    for mutant in mutants {
        let (all, counts) = files.entry(&mutant.file).or_default();
        *all += 1;
        let verdict = verdicts.get(mutant.name.as_str());
        if let Some(column) =
            verdict.and_then(|verdict| COLUMNS.iter().position(|name| name == verdict))
        {
            counts[column] += 1;
        }
    }
    println!("| file | mutants | {} | not run |", COLUMNS.join(" | "));
    println!("|---|{}", "---|".repeat(COLUMNS.len() + 2));
    for (file, (all, counts)) in files {
        let cells: Vec<String> = counts.iter().map(usize::to_string).collect();
        let left = all - counts.iter().sum::<usize>();
        println!("| `{file}` | {all} | {} | {left} |", cells.join(" | "));
    }
    for mutant in mutants {
        if let Some(verdict @ (&"lived" | &"unreached")) = verdicts.get(mutant.name.as_str()) {
            println!("{verdict}: {}", mutant.name);
        }
    }
}

/// The mutant and what became of it.
fn verdict(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.split('\t');
    let verdict = fields.next()?;
    Some((fields.next()?, verdict))
}
