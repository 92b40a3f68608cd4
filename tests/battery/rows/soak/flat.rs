//! Whether what was sampled is flat.
//!
//! Owns the definition. It reads samples and changes nothing.
//!
//! The time in which a process lives is cut into thirds of equal length, each of which holds the same acts: as long of kills and
//! restarts as of one process that is left alone. Looks at the store between them, which take the longer the larger it is, are not
//! counted. The first third is for warming up. Of each measure
//!
//! - over all processes, the median of the last third is at most [`ACROSS`] times that of the middle third, and
//! - in the last process that was left alone, the median of the last third of its life is at most [`WITHIN`] times that of
//!   the middle third of it: a leak in memory goes with its process, and does not show otherwise,
//!
//! and what is small may be as much more as [`Measure::slack`] says.

use std::time::Duration;

use super::sample::Sample;

/// What the last third may be of the middle one, over all processes.
const ACROSS: f64 = 1.15;

/// The same within the life of one process.
const WITHIN: f64 = 1.10;

/// Fewer samples than this in a third say nothing.
const FEWEST: usize = 8;

/// Of a soak that was to be shorter nothing need be said.
const SHORT: Duration = Duration::from_secs(60);

/// What is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    Memory,
    Descriptors,
    Disk,
}

impl Measure {
    pub(super) const ALL: [Self; 3] = [Self::Memory, Self::Descriptors, Self::Disk];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory, MiB",
            Self::Descriptors => "open descriptors",
            Self::Disk => "disk, MiB",
        }
    }

    /// The value of a sample; there is none while no process lives.
    pub(super) fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::Memory => sample.rss_kib.map(|kib| kib as f64 / 1024.0),
            Self::Descriptors => sample.descriptors.map(|open| open as f64),
            Self::Disk => Some(sample.disk_kib as f64 / 1024.0),
        }
    }

    /// By how much the last third may be more whatever it is.
    fn slack(self) -> f64 {
        match self {
            Self::Memory | Self::Disk => 4.0,
            Self::Descriptors => 4.0,
        }
    }
}

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    pub(super) measure: Measure,
    /// Within one process, or over all.
    pub(super) within: bool,
    pub(super) middle: f64,
    pub(super) last: f64,
    /// The most that the last third may be.
    pub(super) most: f64,
}

impl Verdict {
    pub(super) fn is_flat(&self) -> bool {
        self.last <= self.most
    }

    /// The comparison in words.
    pub(super) fn text(&self) -> String {
        let place = match self.within {
            true => "within the last undisturbed process",
            false => "over all processes",
        };
        let Self {
            middle, last, most, ..
        } = self;
        let name = self.measure.name();
        let verdict = match self.is_flat() {
            true => "flat",
            false => "NOT FLAT",
        };
        format!(
            "{name}, {place}: median {middle:.1} in the middle third, {last:.1} in the last, at most {most:.1}: {verdict}"
        )
    }
}

/// Compares. `Err` says why nothing can be said.
pub(super) fn judge(samples: &[Sample]) -> Result<Vec<Verdict>, String> {
    let lives = samples.iter().filter(|sample| sample.rss_kib.is_some());
    let all: Vec<&Sample> = lives.collect();
    let last_alone = all.iter().rev().find(|sample| sample.is_undisturbed);
    let life = last_alone.map(|sample| sample.life);
    let alone = all.iter().copied();
    let alone = alone.filter(|sample| sample.is_undisturbed && Some(sample.life) == life);
    let alone: Vec<&Sample> = alone.collect();
    let mut verdicts = Vec::new();
    for measure in Measure::ALL {
        for (some, within, factor) in [(&all, false, ACROSS), (&alone, true, WITHIN)] {
            let (middle, last) = thirds(some, measure)?;
            verdicts.push(Verdict {
                measure,
                within,
                middle,
                last,
                most: middle * factor + measure.slack(),
            });
        }
    }
    Ok(verdicts)
}

/// Whether a soak that was to be so long passed: all is flat. Of which nothing can be said has not.
pub(super) fn is_passed(judged: &Result<Vec<Verdict>, String>, length: Duration) -> bool {
    match judged {
        Ok(verdicts) => verdicts.iter().all(Verdict::is_flat),
        Err(_) => length < SHORT,
    }
}

/// The medians of the middle and the last third. Samples are as far apart as each other, so that a third of them is one of the time.
fn thirds(samples: &[&Sample], measure: Measure) -> Result<(f64, f64), String> {
    if samples.is_empty() {
        return Err("no process was left alone".into());
    }
    let part = |from: usize, to: usize| {
        let inside = &samples[samples.len() * from / 3..samples.len() * to / 3];
        median(inside.iter().filter_map(|one| measure.of(one)).collect())
    };
    part(1, 2).zip(part(2, 3)).ok_or(format!(
        "too short to say whether it is flat: a third has fewer than {FEWEST} samples"
    ))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    (values.len() >= FEWEST).then(|| values[values.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half an hour in which every value follows from the second; from ten minutes on one process lives.
    fn soaked(value: impl Fn(f64) -> (u64, u64, u64)) -> Vec<Sample> {
        let sample = |second: u32| {
            let (rss, open, disk) = value(f64::from(second));
            Sample {
                seconds: f64::from(second),
                life: u64::from(second / 60).min(25),
                is_undisturbed: second >= 1500,
                rss_kib: Some(rss),
                descriptors: Some(open),
                disk_kib: disk,
                ..Sample::default()
            }
        };
        (0..1800).step_by(2).map(sample).collect()
    }

    fn not_flat(samples: &[Sample]) -> Vec<(Measure, bool)> {
        let verdicts = judge(samples).expect("long enough").into_iter();
        let bad = verdicts.filter(|verdict| !verdict.is_flat());
        bad.map(|verdict| (verdict.measure, verdict.within))
            .collect()
    }

    #[test]
    fn what_warms_up_and_swings_is_flat() {
        let swing = |second: f64| 60_000 + (second * 0.7).sin().abs() as u64 * 20_000;
        let warm = |second: f64| swing(second) + (second.min(400.0) * 100.0) as u64;
        let samples = soaked(|second| (warm(second), 20, warm(second)));
        assert_eq!(not_flat(&samples), []);
    }

    #[test]
    fn what_grows_all_the_time_is_not() {
        let grows = |second: f64| 20_000 + (second * 60.0) as u64;
        let samples = soaked(|second| (60_000, 20, grows(second)));
        assert_eq!(not_flat(&samples), [(Measure::Disk, false)]);
        let samples = soaked(|second| (60_000, 20 + (second / 30.0) as u64, 1));
        assert_eq!(not_flat(&samples), [(Measure::Descriptors, false)]);
    }

    #[test]
    fn a_leak_that_goes_with_each_process_is_seen_within_the_last() {
        let leaks = |second: f64| match second >= 1500.0 {
            true => (second - 1500.0) as u64,
            false => (second % 60.0) as u64,
        };
        let samples = soaked(|second| (40_000 + leaks(second) * 400, 20 + leaks(second), 1));
        let bad = not_flat(&samples);
        assert!(bad.contains(&(Measure::Memory, true)), "{bad:?}");
        assert!(bad.contains(&(Measure::Descriptors, true)), "{bad:?}");
    }

    #[test]
    fn what_grows_is_seen_however_long_the_looks_at_the_store_take() {
        let mut samples = soaked(|second| (60_000, 20, 20_000 + (second * 60.0) as u64));
        // After each act a look, the last one longer than everything before it.
        for (act, look) in [(1, 300.0), (2, 900.0), (3, 6_000.0)] {
            let at = 300 * act + act - 1;
            for later in &mut samples[at..] {
                later.seconds += look;
            }
            let seconds = samples[at - 1].seconds + look;
            let nobody = Sample {
                seconds,
                disk_kib: samples[at - 1].disk_kib,
                ..Sample::default()
            };
            samples.insert(at, nobody);
        }
        assert_eq!(not_flat(&samples), [(Measure::Disk, false)]);
    }

    #[test]
    fn a_soak_of_which_nothing_can_be_said_has_not_passed() {
        let (length, short) = (Duration::from_secs(300), Duration::from_secs(9));
        assert!(!is_passed(&judge(&[]), length));
        assert!(is_passed(&judge(&[]), short));
        assert!(is_passed(&judge(&soaked(|_| (1, 1, 1))), length));
        let grows = soaked(|second| (1, 1, 20_000 + (second * 60.0) as u64));
        assert!(!is_passed(&judge(&grows), length));
        assert!(!is_passed(&judge(&grows), short));
    }

    #[test]
    fn too_few_samples_say_nothing() {
        let samples = soaked(|_| (1, 1, 1));
        assert!(judge(&samples[..20]).is_err());
        assert!(judge(&[]).is_err());
    }
}
