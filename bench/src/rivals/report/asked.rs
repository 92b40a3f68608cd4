//! What was asked of this engine beside others, and whether it is so.
//!
//! Owns the list. Compares figures of the same results only, and synced systems with synced ones; the one row that does
//! not says so in its name. What can be measured without others is in `bench -- aims`.

use std::fmt::Write as _;

use super::line::{Figure, Line, Outcome, figures, is_synced};
use super::table::number;

/// This engine, synced.
const SYNCED: &str = "own/synced";

/// This engine, not synced, beside the default of a rival, which is not either.
const BUFFERED: &str = "own/buffered";
const DURARE: &str = "durare/sqlite";

/// Bytes of a megabyte in mebibytes.
const MB: f64 = 1_000_000.0 / (1024.0 * 1024.0);

/// What a value is to be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// A row: what was asked for and what it came to.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    workload: &'static str,
    metric: &'static str,
    /// What it is called.
    label: &'static str,
    target: Target,
    value: Option<f64>,
    /// Whom it was compared with.
    against: Option<String>,
}

impl Row {
    fn is_met(&self) -> Option<bool> {
        let value = self.value?;
        Some(match self.target {
            Target::AtMost(limit) => value <= limit,
            Target::AtLeast(limit) => value >= limit,
        })
    }

    fn json(&self) -> Option<String> {
        let (name, limit) = match self.target {
            Target::AtMost(limit) => ("at_most", limit),
            Target::AtLeast(limit) => ("at_least", limit),
        };
        let line = serde_json::json!({
            "workload": self.workload,
            "metric": self.metric,
            "value": self.value?,
            "against": self.against,
            name: limit,
            "met": self.is_met()?,
        });
        Some(line.to_string())
    }
}

/// Writes a JSON line per row that there are figures for.
pub(super) fn json(lines: &[Line]) -> String {
    let rows = rows(lines).into_iter().filter_map(|row| row.json());
    rows.map(|line| line + "\n").collect()
}

/// Writes a table of these rows; nothing if there are no figures for any.
pub(super) fn markdown(lines: &[Line]) -> String {
    let mut text = String::new();
    for row in rows(lines) {
        let (Some(value), Some(is_met)) = (row.value, row.is_met()) else {
            continue;
        };
        let asked = match row.target {
            Target::AtMost(limit) => format!("≤ {}", number(limit)),
            Target::AtLeast(limit) => format!("≥ {}", number(limit)),
        };
        let against = row
            .against
            .map_or_else(String::new, |title| format!(" ({title})"));
        let met = if is_met { "yes" } else { "**no**" };
        let value = number(value);
        let label = row.label;
        let _ = writeln!(text, "| {label}{against} | {asked} | {value} | {met} |");
    }
    match text.is_empty() {
        true => text,
        false => {
            format!("\n| asked of this engine | | measured | met |\n|---|---|---|---|\n{text}")
        }
    }
}

fn measured<'a>(
    lines: &'a [Line],
    title: &str,
    workload: &str,
    metric: &str,
) -> Option<&'a Figure> {
    figures(lines).find(|figure| {
        figure.outcome == Outcome::Measured
            && figure.title() == title
            && figure.workload == workload
            && figure.metric == metric
    })
}

fn value(lines: &[Line], title: &str, workload: &str, metric: &str) -> Option<f64> {
    measured(lines, title, workload, metric)?.value
}

fn of_floor(lines: &[Line], workload: &str) -> Option<f64> {
    measured(lines, SYNCED, workload, "steps_per_s")?.ratio_to_floor
}

/// How often faster than the fastest rival that was seen to sync, and who that is.
fn to_fastest_synced(lines: &[Line], workload: &str) -> Option<(f64, String)> {
    let own = value(lines, SYNCED, workload, "steps_per_s")?;
    let rivals = figures(lines).filter(|figure| {
        figure.workload == workload
            && figure.metric == "steps_per_s"
            && !figure.title().starts_with("own/")
            && is_synced(&figure.title(), lines) == Some(true)
    });
    let rates = rivals.filter_map(|figure| Some((figure.value?, figure.title())));
    let (rate, title) = rates.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((own / rate, title))
}

fn rows(lines: &[Line]) -> Vec<Row> {
    use Target::{AtLeast, AtMost};
    let row = |workload, metric, label, target, value| Row {
        workload,
        metric,
        label,
        target,
        value,
        against: None,
    };
    let own = |workload, metric| value(lines, SYNCED, workload, metric);
    let mut rows = vec![
        row(
            "W1",
            "of_floor",
            "W1, part of the floor",
            AtLeast(0.65),
            of_floor(lines, "W1"),
        ),
        row(
            "W2",
            "of_floor",
            "W2, 64 at once, part of the floor",
            AtLeast(0.70),
            of_floor(lines, "W2"),
        ),
        row(
            "W3",
            "last_to_first",
            "W3, last 1,000 to first",
            AtMost(1.05),
            own("W3", "last_to_first"),
        ),
        row(
            "W6",
            "grown_mib",
            "W6, 10,000 suspended runs, MiB",
            AtMost(5.0 * MB),
            own("W6", "grown_mib"),
        ),
        row(
            "W7",
            "cpu_us_per_step",
            "W7, processor time of a step with its sync, µs",
            AtMost(15.0),
            own("W7", "cpu_us_per_step"),
        ),
    ];
    let against = [
        ("W2", "W2, 64 at once, times the fastest synced rival"),
        (
            "W2-best",
            "W2, each at its best setting, times the fastest synced rival",
        ),
    ];
    for (workload, label) in against {
        let (value, title) = to_fastest_synced(lines, workload).unzip();
        rows.push(Row {
            against: title,
            ..row(
                workload,
                "to_fastest_synced_rival",
                label,
                AtLeast(8.0),
                value,
            )
        });
    }
    let buffered = [
        ("W1", "W1 buffered, times durare's default, neither synced"),
        ("W2", "W2 buffered, times durare's default, neither synced"),
    ];
    for (workload, label) in buffered {
        let rate = |title| value(lines, title, workload, "steps_per_s");
        let value = rate(BUFFERED)
            .zip(rate(DURARE))
            .map(|(own, rival)| own / rival);
        rows.push(Row {
            against: Some(DURARE.into()),
            ..row(workload, "buffered_to_durare", label, AtLeast(5.0), value)
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::line::{figure, samples};
    use super::*;

    fn with(extra: &[(&str, &str, &str, f64)]) -> Vec<Line> {
        let extra = extra.iter().map(|(title, workload, metric, value)| {
            Line::Figure(figure(title, workload, metric, Some(*value)))
        });
        samples().into_iter().chain(extra).collect()
    }

    #[test]
    fn only_a_rival_that_was_seen_to_sync_is_compared_with_the_synced_engine() {
        let lines = with(&[
            ("own/synced", "W2", "steps_per_s", 90_000.0),
            ("durare/sqlite", "W2", "steps_per_s", 50_000.0),
            ("dbos/postgres", "W2", "steps_per_s", 3_000.0),
            ("dbos/postgres", "syncs", "syncs_per_1000_steps", 1_000.0),
        ]);
        let compared = to_fastest_synced(&lines, "W2");
        assert_eq!(compared, Some((30.0, "dbos/postgres".into())));
        assert_eq!(to_fastest_synced(&samples(), "W2"), None);
    }

    #[test]
    fn what_is_missed_is_said_and_what_was_not_measured_is_not() {
        let lines = with(&[("own/synced", "W6", "grown_mib", 57.7)]);
        let table = markdown(&lines);
        assert!(
            table.contains("| W6, 10,000 suspended runs, MiB | ≤ 4.77 | 57.7 | **no** |"),
            "{table}"
        );
        assert!(
            table.contains("| W1, part of the floor | ≥ 0.65 | 1.18 | yes |"),
            "{table}"
        );
        assert!(!table.contains("W3"), "{table}");
        let json = json(&lines);
        assert_eq!(json.lines().count(), 2);
        assert!(json.contains(r#""at_most":4.76837158203125"#) && json.contains(r#""met":false"#));
    }
}
