//! What is written down: JSON lines first, and a table and charts made from nothing but them.

mod chart;
mod line;
mod rows;
mod table;

use std::path::Path;

pub use line::{About, Figure, Line, Outcome};

/// Writes `figures.jsonl`, `table.md` and a chart per workload into a directory, and removes charts of an earlier run.
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
    write("figures.jsonl", &line::encode(lines))?;
    write("table.md", &table::markdown(lines))?;
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

/// Makes the table of lines.
pub fn markdown(lines: &[Line]) -> String {
    table::markdown(lines)
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
