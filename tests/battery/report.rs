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
        let violations: Vec<String> = self.violations.iter().map(|text| quoted(text)).collect();
        format!(
            r#"{{"fault":{},"cases":{},"violations":{},"seconds":{:.3},"remark":{},"what":[{}]}}"#,
            quoted(self.name),
            self.cases,
            self.violations.len(),
            self.took.as_secs_f64(),
            quoted(&self.remark),
            violations.join(",")
        )
    }
}

/// Text as JSON has it.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
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
        assert_eq!(
            row.json(),
            r#"{"fault":"simulation","cases":3,"violations":1,"seconds":1.500,"remark":"","what":["a \"b\"\n\\ \u0001"]}"#
        );
        assert!(table(&[row]).starts_with("| fault | cases |"));
    }
}
