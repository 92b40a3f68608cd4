//! The report: what was tried, how often, and what did not hold.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

/// What a row came to.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) cases: u64,
    pub(crate) took: Duration,
    /// What did not hold, each with how to see it again: of the first cases only.
    pub(crate) violations: Vec<String>,
    /// How much did not hold in all.
    pub(crate) violated: usize,
    /// All cases in which something did not hold, by their seeds.
    pub(crate) seeds: BTreeSet<u64>,
    /// What else is worth knowing.
    pub(crate) remark: String,
}

impl Outcome {
    /// The row as one line of JSON.
    pub(crate) fn json(&self) -> String {
        serde_json::json!({
            "fault": self.name,
            "cases": self.cases,
            "violations": self.violated,
            "seeds": self.seeds,
            "seconds": self.took.as_secs_f64(),
            "remark": self.remark,
            "what": self.violations,
        })
        .to_string()
    }
}

/// All rows as a table, with what did not hold below it.
pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let mut out =
        String::from("| fault | cases | violations | seconds | |\n|---|---|---|---|---|\n");
    for row in outcomes {
        let (name, cases, violations) = (row.name, row.cases, row.violated);
        let seconds = row.took.as_secs_f64();
        let _ = writeln!(
            out,
            "| {name} | {cases} | {violations} | {seconds:.1} | {} |",
            row.remark
        );
    }
    for violation in outcomes.iter().flat_map(|row| &row.violations) {
        let _ = write!(out, "\n{violation}\n");
    }
    for row in outcomes.iter().filter(|row| !row.seeds.is_empty()) {
        let (name, count) = (row.name, row.seeds.len());
        let _ = write!(out, "\nall cases of {name} that do not hold, {count}:");
        for seed in &row.seeds {
            let _ = write!(out, " {seed}");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_line_of_json_whatever_its_text() {
        let row = Outcome {
            name: "simulation",
            cases: 3,
            took: Duration::from_millis(1500),
            violations: vec!["a \"b\"\n\\ \u{1}".into()],
            violated: 2,
            seeds: BTreeSet::from([7, 9]),
            remark: String::new(),
        };
        let line = row.json();
        assert!(!line.contains('\n'), "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
        assert_eq!(read["what"][0], "a \"b\"\n\\ \u{1}");
        assert_eq!(
            (&read["cases"], &read["violations"]),
            (&3.into(), &2.into())
        );
        let table = table(&[row]);
        assert!(table.starts_with("| fault | cases |"), "{table}");
        assert!(
            table.contains("all cases of simulation that do not hold, 2: 7 9\n"),
            "{table}"
        );
    }
}
