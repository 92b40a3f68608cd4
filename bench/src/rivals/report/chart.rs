//! A bar chart per workload, as plain SVG: readable on a dark page and a light one.
//!
//! Bars begin at zero and are not on a logarithm, so that their lengths can be believed. Systems that sync every step and
//! those that do not have different colours: they are not the same promise.

use std::fmt::Write as _;

use super::line::{Figure, Line, Outcome, figures, is_synced};
use super::rows::Row;
use super::table::{number, titles};

/// Pixels.
const WIDTH: f64 = 760.0;
const LABEL: f64 = 160.0;
const BAR: f64 = 400.0;
const LINE: f64 = 26.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 40.0;

const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#1f2328}\
.title{font-size:15px;font-weight:600}\
.quiet{fill:#59636e}\
.page{fill:#ffffff}\
.synced{fill:#0969da}\
.unsynced{fill:#d4a72c}\
.floor{fill:#8c959f}\
@media(prefers-color-scheme:dark){\
text{fill:#f0f6fc}\
.quiet{fill:#9198a1}\
.page{fill:#0d1117}\
.synced{fill:#4493f8}\
.unsynced{fill:#e3b341}\
.floor{fill:#6e7681}}";

/// A bar, or the words in its place.
struct Bar {
    label: String,
    class: &'static str,
    value: Option<f64>,
    words: String,
}

/// Draws the figures of a row; `None` if there are none.
pub(super) fn svg(row: &Row, lines: &[Line]) -> Option<String> {
    let bars = bars(row, lines);
    if bars.is_empty() {
        return None;
    }
    let longest = bars.iter().filter_map(|bar| bar.value).fold(0.0, f64::max);
    let height = TOP + LINE * bars.len() as f64 + BOTTOM;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
        escaped(row.label)
    );
    let _ = writeln!(svg, "<style>{STYLE}</style>");
    let _ = writeln!(svg, "<rect class=\"page\" width=\"100%\" height=\"100%\"/>");
    text(&mut svg, 16.0, 28.0, "title", row.label);
    text(&mut svg, 16.0, 48.0, "quiet", row.better.words());
    for (n, bar) in bars.iter().enumerate() {
        draw(&mut svg, bar, TOP + LINE * n as f64, longest);
    }
    legend(&mut svg, height - 14.0);
    svg.push_str("</svg>\n");
    Some(svg)
}

fn bars(row: &Row, lines: &[Line]) -> Vec<Bar> {
    let of_row = |title: &str| {
        figures(lines).find(|figure| {
            figure.title() == title
                && figure.workload == row.workload
                && figure.metric == row.metric
        })
    };
    let measured: Vec<&Figure> = titles(lines)
        .iter()
        .filter_map(|title| of_row(title))
        .collect();
    let mut bars: Vec<Bar> = measured.iter().map(|figure| bar(figure, lines)).collect();
    let mut floors: Vec<f64> = measured
        .iter()
        .filter_map(|figure| figure.comparable_floor())
        .collect();
    floors.sort_by(f64::total_cmp);
    if let Some(floor) = floors.get(floors.len() / 2) {
        bars.push(Bar {
            label: "raw floor".into(),
            class: "floor",
            value: Some(*floor),
            words: number(*floor),
        });
    }
    bars
}

fn bar(figure: &Figure, lines: &[Line]) -> Bar {
    let is_synced = is_synced(&figure.title(), lines) == Some(true);
    let words = match (figure.outcome, figure.value) {
        (Outcome::Measured, Some(value)) => number(value),
        (Outcome::Measured, None) => "–".into(),
        (Outcome::NotOffered, _) => "not offered".into(),
        (Outcome::Failed, _) => "failed".into(),
        (Outcome::Skipped, _) => "skipped".into(),
    };
    Bar {
        label: figure.title(),
        class: if is_synced { "synced" } else { "unsynced" },
        value: figure.value,
        words,
    }
}

fn draw(svg: &mut String, bar: &Bar, top: f64, longest: f64) {
    let middle = top + LINE * 0.65;
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
        LABEL - 10.0,
        escaped(&bar.label)
    );
    let part = bar
        .value
        .map_or(0.0, |value| (value / longest).clamp(0.0, 1.0));
    // What is small is still there.
    let length = if bar.value.is_some() {
        (BAR * part).max(1.0)
    } else {
        0.0
    };
    let _ = writeln!(
        svg,
        "<rect class=\"{}\" x=\"{LABEL}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{:.1}\" rx=\"2\"/>",
        bar.class,
        top + 4.0,
        LINE - 8.0
    );
    let class = if bar.value.is_some() {
        "value"
    } else {
        "quiet"
    };
    text(svg, LABEL + length + 8.0, middle, class, &bar.words);
}

fn legend(svg: &mut String, y: f64) {
    let entries = [
        ("synced", "syncs every step"),
        ("unsynced", "does not, or was not counted"),
    ];
    let mut x = LABEL;
    for (class, words) in entries {
        let box_top = y - 10.0;
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{box_top:.1}\" width=\"12\" height=\"12\" rx=\"2\"/>"
        );
        text(svg, x + 18.0, y, "quiet", words);
        x += 160.0;
    }
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>"
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::line::samples;
    use super::super::rows::ROWS;
    use super::*;

    fn chart(workload: &str) -> Option<String> {
        let row = ROWS
            .iter()
            .find(|row| row.has_chart && row.workload == workload);
        svg(row.expect("it has a chart"), &samples())
    }

    #[test]
    fn a_chart_has_a_bar_per_system_and_one_of_the_floor() {
        let chart = chart("W1").expect("there are figures");
        for words in [
            "own/synced",
            "4,308",
            "durare/sqlite",
            "96.3",
            "raw floor",
            "3,650",
        ] {
            assert!(chart.contains(&format!(">{words}</text>")), "{words}");
        }
        let longest = "class=\"synced\" x=\"160\" y=\"68.0\" width=\"400.0\"";
        assert!(chart.contains(longest), "the most fills the width");
    }

    #[test]
    fn what_does_not_sync_has_another_colour() {
        let chart = chart("W1").expect("there are figures");
        assert!(chart.contains("class=\"unsynced\" x=\"160\" y=\"94.0\" width=\"8.9\""));
        let uncounted = "class=\"unsynced\" x=\"160\" y=\"120.0\" width=\"0.0\"";
        assert!(chart.contains(uncounted), "nor what was not counted");
    }

    #[test]
    fn what_failed_or_was_skipped_says_so_in_place_of_a_bar() {
        let chart = chart("W1").expect("there are figures");
        assert!(chart.contains(">failed</text>") && chart.contains(">skipped</text>"));
    }

    #[test]
    fn the_floor_is_drawn_only_beside_figures_of_its_unit() {
        let chart = chart("W5").expect("there is a figure");
        assert!(chart.contains(">12</text>") && !chart.contains("raw floor"));
    }

    #[test]
    fn without_figures_there_is_no_chart() {
        assert_eq!(chart("W9"), None);
    }
}
