//! What is written down: JSON lines first, and a table and charts made from nothing but them.

mod asked;
mod chart;
mod history;
mod line;
mod rows;
mod table;

use std::path::Path;

pub use history::{earlier, missing};
pub use line::{About, Figure, Line, Outcome};

/// The file that everything else is made of.
const FIGURES: &str = "figures.jsonl";

/// Writes `figures.jsonl` and, of the newest figures in it, `table.md`, `asked.jsonl` and a chart per workload into a directory.
/// Removes charts of workloads that have no figure.
///
/// # Errors
///
/// If the directory cannot be written.
pub fn write(lines: &[Line], results: &Path) -> Result<(), String> {
    let write = |name: &str, text: &str| {
        let path = results.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    std::fs::create_dir_all(results).map_err(|error| format!("{}: {error}", results.display()))?;
    // Whole or not at all: it may be hours of work.
    write("figures.new", &line::encode(lines))?;
    let moved = std::fs::rename(results.join("figures.new"), results.join(FIGURES));
    moved.map_err(|error| format!("{FIGURES}: {error}"))?;
    let lines = &history::latest(lines);
    write("table.md", &table::markdown(lines))?;
    write("asked.jsonl", &asked::json(lines))?;
    for row in rows::ROWS.iter().filter(|row| row.has_chart) {
        let name = format!("{}.svg", row.workload);
        match chart::svg(row, lines) {
            Some(svg) => write(&name, &svg)?,
            None => {
                let _ = std::fs::remove_file(results.join(name));
            }
        }
    }
    Ok(())
}

/// Makes the table of the newest figures in lines.
pub fn markdown(lines: &[Line]) -> String {
    table::markdown(&history::latest(lines))
}

/// Reads lines back.
///
/// # Errors
///
/// The first line that is none.
pub fn read(text: &str) -> Result<Vec<Line>, String> {
    line::decode(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_written_as_lines_a_table_and_charts() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("W3.svg"), "of an earlier run").expect("written");
        write(&line::samples(), dir.path()).expect("written");
        let lines = std::fs::read_to_string(dir.path().join("figures.jsonl")).expect("lines");
        assert_eq!(read(&lines).expect("they are read back"), line::samples());
        assert!(dir.path().join("table.md").exists());
        assert!(dir.path().join("W1.svg").exists());
        assert!(
            !dir.path().join("W3.svg").exists(),
            "nothing was measured for it"
        );
    }
}
