//! The picture of a soak: one panel for each measure over one axis of time, as SVG.
//!
//! Owns the drawing. The colours follow the reader's scheme, light or dark, and can be read without either.

use std::fmt::Write as _;

use super::flat::Measure;
use super::sample::Sample;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
/// The height of a panel's plot, and of what is between two.
const PANEL: f64 = 110.0;
const GAP: f64 = 46.0;

/// Points of one line: more are not seen.
const POINTS: usize = 450;

/// Marks on an axis, about.
const MARKS: f64 = 4.0;

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#3a3f45}.title{font-weight:600}.grid{stroke:#8a919966;stroke-width:1}\
.line{fill:none;stroke:#1a66c2;stroke-width:1.5;stroke-linejoin:round}.alone{fill:#8a919926}\
@media(prefers-color-scheme:dark){text{fill:#d5d9de}.line{stroke:#6cb0ff}}";

/// One line of the picture.
struct Series {
    title: &'static str,
    points: Vec<(f64, f64)>,
}

/// Draws the samples.
pub(super) fn svg(samples: &[Sample]) -> String {
    let mut all: Vec<Series> = Measure::ALL
        .iter()
        .map(|measure| Series {
            title: measure.name(),
            points: samples
                .iter()
                .filter_map(|sample| Some((sample.seconds, measure.of(sample)?)))
                .collect(),
        })
        .collect();
    all.push(Series {
        title: "executions of steps a second",
        points: rates(samples),
    });
    let height = TOP + all.len() as f64 * (PANEL + GAP);
    let end = samples.last().map_or(1.0, |last| last.seconds.max(1.0));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<title>Memory, open \
         descriptors, disk and steps a second over the time of the soak</title>\n<style>{STYLE}</style>\n"
    );
    for (number, series) in all.iter().enumerate() {
        let top = TOP + number as f64 * (PANEL + GAP);
        let band = |from: f64, to: f64| {
            let (x, width) = (across(from, end), across(to, end) - across(from, end));
            format!(
                "<rect class=\"alone\" x=\"{x:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{PANEL}\"/>\n"
            )
        };
        for (from, to) in undisturbed(samples) {
            out.push_str(&band(from, to));
        }
        panel(&mut out, series, top, end);
    }
    out.push_str("</svg>\n");
    out
}

fn across(second: f64, end: f64) -> f64 {
    LEFT + second / end * (WIDTH - LEFT - RIGHT)
}

fn panel(out: &mut String, series: &Series, top: f64, end: f64) {
    let most = series
        .points
        .iter()
        .map(|point| point.1)
        .fold(0.0, f64::max);
    let step = round_step(most / MARKS);
    let most = (most / step).ceil().max(1.0) * step;
    let (bottom, title) = (top + PANEL, series.title);
    let up = |value: f64| bottom - value / most * PANEL;
    let _ = writeln!(
        out,
        "<text class=\"title\" x=\"{LEFT}\" y=\"{:.1}\">{title}</text>",
        top - 9.0
    );
    let mut value = 0.0;
    while value <= most * 1.001 {
        let (y, x2) = (up(value), WIDTH - RIGHT);
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{x2}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 8.0,
            y + 4.0
        );
        value += step;
    }
    let step = round_step(end / 60.0 / 6.0);
    let mut minute = 0.0;
    while minute * 60.0 <= end {
        let x = across(minute * 60.0, end);
        let y = bottom + 16.0;
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{minute} min</text>"
        );
        minute += step;
    }
    let points = thinned(&series.points).into_iter();
    let points: Vec<String> = points
        .map(|(second, value)| format!("{:.1},{:.1}", across(second, end), up(value)))
        .collect();
    let _ = writeln!(
        out,
        "<polyline class=\"line\" points=\"{}\"/>",
        points.join(" ")
    );
}

/// A step of 1, 2 or 5 times a power of ten that is not smaller.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(0.1).log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|times| times * power >= least);
    times.unwrap_or(10.0) * power
}

/// As few points as can be seen: the highest of each stretch.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stretch = points.len().div_ceil(POINTS).max(1);
    let highest = |some: &[(f64, f64)]| {
        let mut some = some.iter().copied();
        let first = some.next()?;
        Some(some.fold(
            first,
            |high, next| if next.1 > high.1 { next } else { high },
        ))
    };
    points.chunks(stretch).filter_map(highest).collect()
}

/// Steps a second between two samples.
fn rates(samples: &[Sample]) -> Vec<(f64, f64)> {
    let pairs = samples.windows(2);
    pairs
        .filter(|pair| pair[1].seconds > pair[0].seconds)
        .map(|pair| {
            let done = pair[1].steps - pair[0].steps;
            let rate = done as f64 / (pair[1].seconds - pair[0].seconds);
            (pair[1].seconds, rate)
        })
        .collect()
}

/// From when to when processes were left alone.
fn undisturbed(samples: &[Sample]) -> Vec<(f64, f64)> {
    let mut found: Vec<(u64, f64, f64)> = Vec::new();
    for sample in samples.iter().filter(|sample| sample.is_undisturbed) {
        match found.last_mut() {
            Some((life, _, to)) if *life == sample.life => *to = sample.seconds,
            _ => found.push((sample.life, sample.seconds, sample.seconds)),
        }
    }
    found.into_iter().map(|(_, from, to)| (from, to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_line_for_each_measure_and_is_not_too_large() {
        let sample = |second: u64| Sample {
            seconds: second as f64,
            life: second / 100,
            is_undisturbed: second % 600 > 300,
            rss_kib: (!second.is_multiple_of(50)).then_some(50_000 + second),
            descriptors: Some(20),
            disk_kib: 80_000,
            ended: second * 10,
            swept: second * 15,
            steps: second * 70,
        };
        let samples: Vec<Sample> = (0..1800).map(sample).collect();
        let drawn = svg(&samples);
        assert_eq!(drawn.matches("<polyline").count(), 4);
        assert!(drawn.matches("class=\"alone\"").count() >= 4 * 3);
        assert!(drawn.len() < 60_000, "{}", drawn.len());
        assert!(drawn.contains("prefers-color-scheme:dark"));
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
        assert!(!svg(&[]).contains("NaN"), "also of nothing");
    }

    #[test]
    fn marks_are_round() {
        for (least, step) in [(0.9, 1.0), (3.0, 5.0), (17.0, 20.0), (60.0, 100.0)] {
            assert!((round_step(least) - step).abs() < 1e-9, "{least}");
        }
    }
}
