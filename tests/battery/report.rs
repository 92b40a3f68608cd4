//! The report: what was tried, how often, and what did not hold.

use std::fmt::Write as _;
use std::time::Duration;

/// What a row came to.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) cases: u64,
    pub(crate) took: Duration,
    /// What did not hold, each with how to see it again.
    pub(crate) violations: Vec<String>,
    /// What else is worth knowing.
    pub(crate) remark: String,
}

impl Outcome {
    /// The row as one line of JSON.
    pub(crate) fn json(&self) -> String {
        serde_json::json!({
            "fault": self.name,
            "cases": self.cases,
            "violations": self.violations.len(),
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
        let (name, cases, violations) = (row.name, row.cases, row.violations.len());
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
            remark: String::new(),
        };
        let line = row.json();
        assert!(!line.contains('\n'), "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
        assert_eq!(read["what"][0], "a \"b\"\n\\ \u{1}");
        assert_eq!(
            (&read["cases"], &read["violations"]),
            (&3.into(), &1.into())
        );
        assert!(table(&[row]).starts_with("| fault | cases |"));
    }
}
