//! Which figures are shown, in which order, and how they are called. What is not here is in the JSON lines only.

/// A row of the table, and a chart if it is its workload's main one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) workload: &'static str,
    pub(super) metric: &'static str,
    pub(super) label: &'static str,
    pub(super) better: Better,
    pub(super) has_chart: bool,
}

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    More,
    Less,
    /// Neither: it tells what something is.
    Says,
}

impl Better {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::More => "more is better",
            Self::Less => "less is better",
            Self::Says => "",
        }
    }
}

const fn row(
    workload: &'static str,
    metric: &'static str,
    label: &'static str,
    better: Better,
) -> Row {
    Row {
        workload,
        metric,
        label,
        better,
        has_chart: false,
    }
}

const fn main_row(
    workload: &'static str,
    metric: &'static str,
    label: &'static str,
    better: Better,
) -> Row {
    Row {
        has_chart: true,
        ..row(workload, metric, label, better)
    }
}

/// The metric that says whether a system syncs.
pub(super) const SYNCS: &str = "syncs_per_1000_steps";

/// How many syncs of 1,000 steps one after the other make a system count as synced: one each, less what a straggler may share.
pub(super) const SYNCED_FROM: f64 = 900.0;

pub(super) const ROWS: [Row; 22] = [
    row(
        "syncs",
        SYNCS,
        "syncs of 1,000 steps, counted",
        Better::Says,
    ),
    main_row("W1", "steps_per_s", "W1 one run, steps/s", Better::More),
    main_row(
        "W2",
        "steps_per_s",
        "W2 1,000 runs × 10 steps, 64 at once, steps/s",
        Better::More,
    ),
    main_row(
        "W2-best",
        "steps_per_s",
        "W2 at its best setting, steps/s",
        Better::More,
    ),
    row("W2-best", "at_once", "– runs at once there", Better::Says),
    row(
        "W3",
        "steps_per_s",
        "W3 one run of 10,000 steps, steps/s",
        Better::More,
    ),
    main_row(
        "W3",
        "last_to_first",
        "W3 its last 1,000 steps to its first, time",
        Better::Less,
    ),
    main_row(
        "W4-1000",
        "resume_ms",
        "W4 killed after 1,000 steps: to the next, ms",
        Better::Less,
    ),
    main_row(
        "W4-10000",
        "resume_ms",
        "W4 after 10,000 steps, ms",
        Better::Less,
    ),
    main_row(
        "W5",
        "first_step_ms",
        "W5 process start to first step, ms",
        Better::Less,
    ),
    row("W5", "binary_mib", "W5 stripped binary, MiB", Better::Less),
    row("W5", "build_s", "W5 clean build, s", Better::Less),
    row(
        "W5",
        "build_cpu_s",
        "W5 clean build, processor s",
        Better::Less,
    ),
    row("W5", "crates", "W5 crates", Better::Less),
    main_row(
        "W6",
        "grown_mib",
        "W6 10,000 suspended runs, MiB",
        Better::Less,
    ),
    row(
        "W6",
        "servers_grown_mib",
        "W6 in its server, MiB",
        Better::Less,
    ),
    main_row(
        "W7",
        "cpu_us_per_step",
        "W7 processor time of a step (W2), µs",
        Better::Less,
    ),
    main_row(
        "W8",
        "duplicates_per_s",
        "W8 duplicate keyed starts/s, with the result",
        Better::More,
    ),
    row(
        "W8",
        "bodies_of_64_at_once",
        "W8 executions of 64 starts at once",
        Better::Less,
    ),
    main_row(
        "W9",
        "bytes_per_step",
        "W9 bytes on disk per step",
        Better::Less,
    ),
    row("W9", "steps", "W9 after so many steps", Better::Says),
    row(
        "W9",
        "bytes_per_step_after_removal",
        "W9 after ended runs were removed",
        Better::Less,
    ),
];
