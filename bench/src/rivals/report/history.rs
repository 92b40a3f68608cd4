//! Results of several runs in one file: what is newest, and what is missing.
//!
//! A file only grows. A run adds a line about itself and its figures for each workload; a figure that is measured again counts
//! instead of the older one, which stays in the file.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::catalogue::{Contestant, Selection, Workload};
use super::line::{Figure, Line, decode, figures};

/// Reads what earlier runs left in a directory.
///
/// # Errors
///
/// If there is a file that cannot be read.
pub fn earlier(results: &Path) -> Result<Vec<Line>, String> {
    let path = results.join(super::FIGURES);
    match std::fs::read_to_string(&path) {
        Ok(text) => decode(&text).map_err(|why| format!("{}: {why}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Leaves the newest of each figure, and the lines about the runs that these are from.
pub(super) fn latest(lines: &[Line]) -> Vec<Line> {
    let (mut seen, mut kept) = (BTreeSet::new(), Vec::new());
    let mut is_wanted = false;
    for line in lines.iter().rev() {
        match line {
            Line::Figure(figure) if seen.insert(name(figure)) => is_wanted = true,
            Line::Figure(_) => continue,
            Line::About { .. } if std::mem::take(&mut is_wanted) => {}
            Line::About { .. } => continue,
        }
        kept.push(line.clone());
    }
    kept.reverse();
    kept
}

fn name(figure: &Figure) -> (&str, &str, &str, &str) {
    let Figure {
        system,
        mode,
        workload,
        metric,
        ..
    } = figure;
    (system, mode, workload, metric)
}

/// Leaves of a selection the workloads for which somebody has no figure yet.
pub fn missing(mut selection: Selection, lines: &[Line]) -> Selection {
    let has = |workload: Workload, one: &Contestant| {
        figures(lines)
            .any(|figure| figure.workload == workload.name() && figure.title() == one.title())
    };
    let contestants = selection.contestants.clone();
    selection
        .workloads
        .retain(|workload| !contestants.iter().all(|one| has(*workload, one)));
    selection
}

#[cfg(test)]
mod tests {
    use super::super::line::{About, figure, samples};
    use super::*;

    fn about(date: &str) -> Line {
        let about = About {
            date: date.into(),
            ..About::default()
        };
        Line::About { about }
    }

    fn w1(value: f64) -> Line {
        Line::Figure(figure("own/synced", "W1", "steps_per_s", Some(value)))
    }

    #[test]
    fn a_figure_that_is_measured_again_counts_instead_of_the_older_one() {
        let other = figure("own/synced", "W3", "steps_per_s", Some(9.0));
        let lines = [
            about("first"),
            w1(1.0),
            about("second"),
            w1(2.0),
            Line::Figure(other.clone()),
        ];
        let newest = [about("second"), w1(2.0), Line::Figure(other)];
        assert_eq!(latest(&lines), newest, "the first run has nothing left");
    }

    #[test]
    fn a_run_that_was_interrupted_goes_on_with_what_is_missing() {
        let both = Selection::only("own/synced,durare/sqlite,W1,W3").expect("they are known");
        let left = missing(both.clone(), &samples());
        assert_eq!(left.workloads, [Workload::W3], "W1 and syncs are there");
        assert_eq!(missing(both.clone(), &[]), both);
    }

    #[test]
    fn what_is_not_there_yet_is_nothing_and_what_is_damaged_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(earlier(dir.path()), Ok(Vec::new()));
        std::fs::write(dir.path().join("figures.jsonl"), "{\"system\":7}\n").expect("written");
        assert!(earlier(dir.path()).is_err_and(|why| why.contains("line 1")));
    }
}
