//! From samples to figures: medians, ratios to the floor beside each sample, and a line for everything that was not to be had.

use std::collections::BTreeSet;

use super::catalogue::{Contestant, Workload};
use super::report::{Figure, Outcome};
use super::sample::Sample;
use crate::report::median;

/// A sample with the raw floor right before and after it.
pub struct Beside {
    pub sample: Sample,
    pub floor: f64,
}

/// The metric that is measured in the floor's own unit.
const OF_FLOOR: &str = "steps_per_s";

/// Why there is no time of a build.
const BUILT: &str = "it was built before, and only a build into an empty directory is timed";

/// What a workload has to say, whatever happens.
fn expected(workload: Workload) -> &'static [&'static str] {
    match workload {
        Workload::Syncs => &["syncs_per_1000_steps"],
        Workload::W1 | Workload::W2 | Workload::W2Best => &["steps_per_s"],
        Workload::W3 => &["steps_per_s", "last_to_first"],
        Workload::W4Few | Workload::W4Many => &["resume_ms"],
        Workload::W5 => &[
            "first_step_ms",
            "binary_mib",
            "build_s",
            "build_cpu_s",
            "crates",
        ],
        Workload::W6 => &["grown_mib"],
        Workload::W7 => &["cpu_us_per_step"],
        Workload::W8 => &["duplicates_per_s", "bodies_of_64_at_once"],
        Workload::W9 => &["bytes_per_step", "steps", "bytes_per_step_after_removal"],
    }
}

/// Concludes what the samples of a contestant came to.
pub fn figures(workload: Workload, contestant: Contestant, samples: &[Beside]) -> Vec<Figure> {
    let mut metrics: BTreeSet<&str> = expected(workload).iter().copied().collect();
    let said = samples.iter().filter_map(|beside| match &beside.sample {
        Sample::Said(said) => Some(said),
        Sample::Skipped(_) => None,
    });
    // W7 is measured beside W2, and shows nothing else of it.
    if workload != Workload::W7 {
        let all = said.clone().flat_map(|said| said.figures.keys());
        metrics.extend(all.map(String::as_str));
    }
    let mut notes: Vec<String> = said.clone().flat_map(|said| said.notes.clone()).collect();
    notes.sort();
    notes.dedup();
    let of = |metric: &str| figure(workload, contestant, metric, samples, &notes);
    metrics.into_iter().map(of).collect()
}

fn figure(
    workload: Workload,
    contestant: Contestant,
    metric: &str,
    samples: &[Beside],
    notes: &[String],
) -> Figure {
    let (mut values, mut floors, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut why_not = None;
    for Beside { sample, floor } in samples {
        let (outcome, reason) = match sample {
            Sample::Skipped(why) => (Outcome::Skipped, why.clone()),
            Sample::Said(said) => match (said.figures.get(metric), &said.not_offered, &said.failed)
            {
                (Some(value), ..) => {
                    values.push(*value);
                    floors.push(*floor);
                    ratios.push(value / floor);
                    continue;
                }
                (None, Some(why), _) => (Outcome::NotOffered, why.clone()),
                (None, None, Some(why)) => (Outcome::Failed, why.clone()),
                (None, None, None) if metric.starts_with("build_") => {
                    (Outcome::Skipped, BUILT.into())
                }
                (None, None, None) => (Outcome::Failed, said.notes.join("; ")),
            },
        };
        why_not = Some((outcome, reason));
    }
    let mut notes = notes.to_vec();
    let missing = samples.len() - values.len();
    let (outcome, reason) = match (values.is_empty(), why_not) {
        (true, Some((outcome, reason))) => (outcome, Some(reason)),
        (true, None) => (Outcome::Skipped, Some("no sample was taken".into())),
        (false, Some((_, reason))) => {
            notes.push(format!("{missing} of {} failed: {reason}", samples.len()));
            (Outcome::Measured, None)
        }
        (false, None) => (Outcome::Measured, None),
    };
    let middle = |values: &mut Vec<f64>| (!values.is_empty()).then(|| median(values));
    let has_floor = metric == OF_FLOOR;
    Figure {
        system: contestant.system.into(),
        mode: contestant.mode.into(),
        workload: workload.name().into(),
        metric: metric.into(),
        outcome,
        value: middle(&mut values.clone()),
        samples: values,
        floor: middle(&mut floors),
        ratio_to_floor: middle(&mut ratios).filter(|_| has_floor),
        reason,
        notes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::CONTESTANTS;
    use super::super::process::Said;
    use super::*;

    fn said(value: f64, floor: f64) -> Beside {
        let mut said = Said::default();
        said.figures.insert("steps_per_s".into(), value);
        said.figures.insert("cpu_us_per_step".into(), 7.0);
        let sample = Sample::Said(said);
        Beside { sample, floor }
    }

    fn failed(said: Said) -> Beside {
        let sample = Sample::Said(said);
        Beside { sample, floor: 1.0 }
    }

    fn of(workload: Workload, samples: &[Beside], metric: &str) -> Figure {
        let figures = figures(workload, CONTESTANTS[0], samples);
        let figure = figures.into_iter().find(|figure| figure.metric == metric);
        figure.expect("there is such a figure")
    }

    #[test]
    fn a_figure_is_the_median_and_its_ratio_the_median_of_neighbours() {
        let samples = [said(10.0, 100.0), said(30.0, 50.0), said(20.0, 20.0)];
        let figure = of(Workload::W1, &samples, "steps_per_s");
        assert_eq!(figure.value, Some(20.0));
        assert_eq!(figure.floor, Some(50.0));
        assert_eq!(figure.ratio_to_floor, Some(0.6));
        assert_eq!(
            figure.samples,
            [10.0, 30.0, 20.0],
            "in the order they were taken"
        );
    }

    #[test]
    fn processor_time_is_all_that_w7_takes_from_w2() {
        let figures = figures(Workload::W7, CONTESTANTS[0], &[said(10.0, 1.0)]);
        assert_eq!(figures.len(), 1);
        assert_eq!(figures[0].value, Some(7.0));
        assert_eq!(figures[0].ratio_to_floor, None);
    }

    #[test]
    fn what_fails_every_time_is_a_line_and_what_fails_once_a_note() {
        let why = || failed(Said::failure("locked"));
        let figure = of(Workload::W1, &[why(), why()], "steps_per_s");
        assert_eq!((figure.outcome, figure.value), (Outcome::Failed, None));
        assert_eq!(figure.reason.as_deref(), Some("locked"));
        let figure = of(Workload::W1, &[why(), said(3.0, 1.0)], "steps_per_s");
        assert_eq!(
            (figure.outcome, figure.value),
            (Outcome::Measured, Some(3.0))
        );
        assert_eq!(figure.notes, ["1 of 2 failed: locked"]);
    }

    #[test]
    fn a_build_that_was_not_timed_says_why() {
        let figure = of(Workload::W5, &[said(1.0, 1.0)], "build_s");
        assert_eq!(figure.outcome, Outcome::Skipped);
        assert!(
            figure
                .reason
                .is_some_and(|why| why.contains("built before"))
        );
    }

    #[test]
    fn what_is_not_offered_and_what_is_skipped_are_lines_of_their_own() {
        let mut said = Said::default();
        said.figures.insert("bytes_per_step".into(), 300.0);
        said.not_offered = Some("no call for it".into());
        let samples = [failed(said)];
        let figure = of(Workload::W9, &samples, "bytes_per_step_after_removal");
        assert_eq!(figure.outcome, Outcome::NotOffered);
        let figure = of(Workload::W9, &samples, "bytes_per_step");
        assert_eq!(figure.value, Some(300.0));
        let sample = Sample::Skipped("no server".into());
        let figure = of(
            Workload::W4Few,
            &[Beside { sample, floor: 1.0 }],
            "resume_ms",
        );
        assert_eq!(figure.outcome, Outcome::Skipped);
    }
}
