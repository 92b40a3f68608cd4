//! One JSON line per figure, and one about the run they are from.

use serde::{Deserialize, Serialize};

use super::rows::{SYNCED_FROM, SYNCS};

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    About { about: About },
    Figure(Figure),
}

/// Where and when a run was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub date: String,
    pub processors: usize,
    pub kernel: String,
    pub filesystem: String,
    pub rustc: String,
    pub repeats: usize,
    pub load_before: f64,
    pub load_after: f64,
    pub seconds: u64,
}

impl About {
    /// Says whether two runs were made on the same machine in the same way.
    pub(super) fn is_of_the_same_machine(&self, other: &Self) -> bool {
        self.processors == other.processors
            && self.kernel == other.kernel
            && self.filesystem == other.filesystem
            && self.rustc == other.rustc
            && self.repeats == other.repeats
    }
}

/// What came of measuring something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Measured,
    /// The system cannot do this.
    NotOffered,
    /// It was to do this and did not, or not in time.
    Failed,
    /// It was not tried: a server or a program was missing.
    Skipped,
}

/// A figure of a system in a mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub system: String,
    pub mode: String,
    pub workload: String,
    pub metric: String,
    pub outcome: Outcome,
    /// The median of the samples.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub samples: Vec<f64>,
    /// The median of the raw floor, right before and after each sample.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub floor: Option<f64>,
    /// The median of each sample's ratio to the floor beside it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio_to_floor: Option<f64>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

impl Figure {
    /// How the system is called in the reports.
    pub fn title(&self) -> String {
        format!("{}/{}", self.system, self.mode)
    }

    /// The floor, if this is measured in the same unit.
    pub(super) fn comparable_floor(&self) -> Option<f64> {
        self.floor.filter(|_| self.ratio_to_floor.is_some())
    }
}

/// Writes lines.
pub(super) fn encode(lines: &[Line]) -> String {
    let lines = lines.iter().map(|line| {
        let text = serde_json::to_string(line).expect("numbers and strings can be written");
        text + "\n"
    });
    lines.collect()
}

/// Reads lines back.
pub(super) fn decode(text: &str) -> Result<Vec<Line>, String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let read =
        |(n, line)| serde_json::from_str(line).map_err(|error| format!("line {}: {error}", n + 1));
    lines.enumerate().map(read).collect()
}

/// Says whether a system was seen to sync every step; `None` if that was not counted.
pub(super) fn is_synced(title: &str, lines: &[Line]) -> Option<bool> {
    let syncs = figures(lines).find(|figure| figure.title() == title && figure.metric == SYNCS);
    Some(syncs?.value? >= SYNCED_FROM)
}

/// The figures among lines.
pub(super) fn figures(lines: &[Line]) -> impl Iterator<Item = &Figure> {
    lines.iter().filter_map(|line| match line {
        Line::Figure(figure) => Some(figure),
        Line::About { .. } => None,
    })
}

#[cfg(test)]
pub(super) fn figure(title: &str, workload: &str, metric: &str, value: Option<f64>) -> Figure {
    let (system, mode) = title.split_once('/').expect("system/mode");
    Figure {
        system: system.into(),
        mode: mode.into(),
        workload: workload.into(),
        metric: metric.into(),
        outcome: match value {
            Some(_) => Outcome::Measured,
            None => Outcome::Failed,
        },
        value,
        samples: value.into_iter().collect(),
        floor: None,
        ratio_to_floor: None,
        reason: None,
        notes: Vec::new(),
    }
}

/// A small run, for the tests of the writers.
#[cfg(test)]
pub(super) fn samples() -> Vec<Line> {
    let about = About {
        date: "2026-01-02".into(),
        processors: 2,
        repeats: 5,
        ..About::default()
    };
    let mut fast = figure("own/synced", "W1", "steps_per_s", Some(4_308.4));
    fast.floor = Some(3_650.0);
    fast.ratio_to_floor = Some(1.18);
    let slow = figure("durare/sqlite", "W1", "steps_per_s", Some(96.3));
    let mut failed = figure("duroxide/sqlite", "W1", "steps_per_s", None);
    failed.reason = Some("timed out after 60s | at step <9>".into());
    let mut skipped = figure("restate/server", "W1", "steps_per_s", None);
    skipped.outcome = Outcome::Skipped;
    skipped.reason = Some("npm: not found".into());
    // Steps and milliseconds do not compare.
    let mut first = figure("own/synced", "W5", "first_step_ms", Some(12.0));
    first.floor = Some(3_000.0);
    let syncs = figure("own/synced", "syncs", "syncs_per_1000_steps", Some(1001.0));
    let none = figure("durare/sqlite", "syncs", "syncs_per_1000_steps", Some(3.0));
    let figures = [fast, slow, failed, skipped, first, syncs, none].map(Line::Figure);
    std::iter::once(Line::About { about })
        .chain(figures)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back_as_they_were_written() {
        let text = encode(&samples());
        assert_eq!(decode(&text).expect("they are lines"), samples());
        let first = text.lines().nth(1).expect("a figure");
        assert!(first.starts_with(r#"{"system":"own","mode":"synced","workload":"W1""#));
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let text = encode(&samples()) + "{\"system\":7}\n";
        let mistake = decode(&text).expect_err("it is no line");
        assert!(mistake.starts_with("line 9:"), "{mistake}");
    }
}
