//! The Markdown table: a row per figure, a column per system, and under it everything that is no number.

use std::fmt::Write as _;

use super::super::catalogue::CONTESTANTS;
use super::asked;
use super::line::{About, Figure, Line, Outcome, figures, is_synced};
use super::rows::{ROWS, Row};

/// Writes a table of all lines, with what has to be known about it.
pub(super) fn markdown(lines: &[Line]) -> String {
    let mut text = String::new();
    let abouts = lines.iter().filter_map(|line| match line {
        Line::About { about } => Some(about),
        Line::Figure(_) => None,
    });
    let abouts: Vec<&About> = abouts.collect();
    for machine in abouts.chunk_by(|a, b| a.is_of_the_same_machine(b)) {
        let _ = writeln!(text, "{}\n", introduction(machine));
    }
    let titles = titles(lines);
    let heads = titles.iter().map(|title| match is_synced(title, lines) {
        Some(true) => title.clone(),
        Some(false) => format!("{title} (not synced)"),
        None => format!("{title} (syncs not counted)"),
    });
    let heads: Vec<String> = heads.collect();
    let _ = writeln!(text, "| | floor | {} |", heads.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---|".repeat(titles.len()));
    let mut remarks = Remarks::default();
    for row in &ROWS {
        let of_row: Vec<&Figure> = figures(lines)
            .filter(|figure| figure.workload == row.workload && figure.metric == row.metric)
            .collect();
        if of_row.is_empty() {
            continue;
        }
        let cells = titles.iter().map(|title| {
            let figure = of_row.iter().find(|figure| figure.title() == *title);
            figure.map_or_else(|| "–".to_owned(), |figure| cell(row, figure, &mut remarks))
        });
        let cells: Vec<String> = cells.collect();
        let floor = floor(&of_row);
        let _ = writeln!(text, "| {} | {floor} | {} |", row.label, cells.join(" | "));
    }
    text.push_str(&asked::markdown(lines));
    text.push_str("\nIn brackets: the part of the raw floor beside it, which is synced: for a system that is not, it says little.\n");
    for (n, remark) in remarks.0.iter().enumerate() {
        let _ = write!(text, "\n{}. {remark}", n + 1);
    }
    if !remarks.0.is_empty() {
        text.push('\n');
    }
    text
}

/// Says where and when runs were made that follow each other on one machine.
fn introduction(abouts: &[&About]) -> String {
    let (first, last) = (abouts[0], abouts[abouts.len() - 1]);
    let date = match first.date == last.date {
        true => first.date.clone(),
        false => format!("{} to {}", first.date, last.date),
    };
    let loads = abouts
        .iter()
        .flat_map(|one| [one.load_before, one.load_after]);
    let (least, most) = loads.fold((f64::INFINITY, 0.0_f64), |(least, most), load| {
        (least.min(load), most.max(load))
    });
    let seconds: u64 = abouts.iter().map(|one| one.seconds).sum();
    format!(
        "{date}, {} processors, {}, {}, {}; medians of {}; load {least:.1} to {most:.1}, {} min.",
        first.processors,
        first.kernel,
        first.filesystem,
        first.rustc,
        first.repeats,
        seconds.div_ceil(60),
    )
}

/// The systems in the order of the catalogue.
pub(super) fn titles(lines: &[Line]) -> Vec<String> {
    let mut titles = Vec::new();
    for figure in figures(lines) {
        let title = figure.title();
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    let place = |title: &String| CONTESTANTS.iter().position(|one| one.title() == *title);
    titles.sort_by_key(|title| place(title).unwrap_or(usize::MAX));
    titles
}

/// What is said below the table, each once.
#[derive(Default)]
struct Remarks(Vec<String>);

impl Remarks {
    /// Returns the mark that points at it.
    fn mark(&mut self, remark: String) -> String {
        let known = self.0.iter().position(|other| *other == remark);
        let n = known.unwrap_or_else(|| {
            self.0.push(remark);
            self.0.len() - 1
        });
        format!(" ^{}^", n + 1)
    }
}

fn cell(row: &Row, figure: &Figure, remarks: &mut Remarks) -> String {
    let words = match figure.outcome {
        Outcome::Measured => figure.value.map_or_else(|| "–".into(), number),
        Outcome::NotOffered => "not offered".into(),
        Outcome::Failed => "failed".into(),
        Outcome::Skipped => "skipped".into(),
    };
    let mut cell = words;
    if let Some(ratio) = figure.ratio_to_floor {
        let _ = write!(cell, " ({ratio:.2})");
    }
    if let Some(reason) = &figure.reason {
        let remark = format!("{}, {}: {}", figure.title(), row.workload, plain(reason));
        cell.push_str(&remarks.mark(remark));
    }
    for note in &figure.notes {
        let remark = format!("{}, {}: {}", figure.title(), row.workload, plain(note));
        cell.push_str(&remarks.mark(remark));
    }
    cell
}

/// A text that cannot be taken for Markdown or HTML.
fn plain(text: &str) -> String {
    text.replace(['|', '<', '>', '`', '\n'], " ")
}

fn floor(of_row: &[&Figure]) -> String {
    let mut floors: Vec<f64> = of_row
        .iter()
        .filter_map(|figure| figure.comparable_floor())
        .collect();
    floors.sort_by(f64::total_cmp);
    match floors.as_slice() {
        [] => "–".into(),
        [one] => number(*one),
        [least, .., most] => format!("{}–{}", number(*least), number(*most)),
    }
}

/// A number with three digits or more, and commas.
pub(super) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        size if size < 1.0 => 3,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.as_str()),
    };
    let (whole, rest) = text
        .split_once('.')
        .map_or((text, ""), |(whole, rest)| (whole, rest));
    let mut grouped = String::from(sign);
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let rest = rest.trim_end_matches('0');
    match rest.is_empty() {
        true => grouped,
        false => format!("{grouped}.{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::samples;
    use super::*;

    #[test]
    fn a_table_has_a_row_per_figure_and_a_column_per_system() {
        let table = markdown(&samples());
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
        let head = "| | floor | own/synced | durare/sqlite (not synced) | \
                    duroxide/sqlite (syncs not counted) | restate/server (syncs not counted) |";
        assert_eq!(rows[0], head);
        assert_eq!(
            rows[2],
            "| syncs of 1,000 steps, counted | – | 1,001 | 3 | – | – |"
        );
        let w1 = "| W1 one run, steps/s | 3,650 | 4,308 (1.18) | 96.3 | failed ^1^ | skipped ^2^ |";
        assert_eq!(rows[3], w1);
        let w5 = "| W5 process start to first step, ms | – | 12 | – | – | – |";
        assert_eq!(
            rows[4], w5,
            "milliseconds have no floor in records a second"
        );
        let asked = rows.iter().position(|row| row.starts_with("| asked"));
        assert_eq!(asked, Some(5), "what was asked for is a table of its own");
    }

    #[test]
    fn what_failed_or_was_skipped_is_explained_below() {
        let table = markdown(&samples());
        assert!(table.contains("1. duroxide/sqlite, W1: timed out after 60s   at step  9"));
        assert!(table.contains("2. restate/server, W1: npm: not found"));
        assert!(table.contains("medians of 5"));
    }

    #[test]
    fn numbers_have_commas_and_no_more_digits_than_they_deserve() {
        let shown = [0.0, 0.1234, 1.5, 12.34, 999.6, 1_234_567.8, -1_234.0].map(number);
        let expected = ["0", "0.123", "1.5", "12.3", "1,000", "1,234,568", "-1,234"];
        assert_eq!(shown, expected);
    }
}
