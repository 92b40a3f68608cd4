//! One figure, one JSON line.

/// A measured figure.
pub struct Figure {
    system: &'static str,
    workload: &'static str,
    metric: &'static str,
    value: f64,
    ratio: Option<f64>,
    target: Option<Target>,
}

/// What was asked for.
#[derive(Clone, Copy)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Of the ratio to the floor, not of the value.
    RatioAtLeast(f64),
}

impl Figure {
    /// A figure of this engine.
    pub fn engine(workload: &'static str, metric: &'static str, value: f64) -> Self {
        Self::of("workflow-runtime", workload, metric, value)
    }

    /// A figure of the raw disk.
    pub fn floor(workload: &'static str, metric: &'static str, value: f64) -> Self {
        Self::of("floor", workload, metric, value)
    }

    fn of(system: &'static str, workload: &'static str, metric: &'static str, value: f64) -> Self {
        Self {
            system,
            workload,
            metric,
            value,
            ratio: None,
            target: None,
        }
    }

    /// Sets the ratio to the floor of the same run.
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = Some(ratio);
        self
    }

    /// Sets what the value may be at most.
    pub fn at_most(mut self, limit: f64) -> Self {
        self.target = Some(Target::AtMost(limit));
        self
    }

    /// Sets what the value must be at least.
    pub fn at_least(mut self, limit: f64) -> Self {
        self.target = Some(Target::AtLeast(limit));
        self
    }

    /// Sets what the ratio to the floor must be at least.
    pub fn ratio_at_least(mut self, limit: f64) -> Self {
        self.target = Some(Target::RatioAtLeast(limit));
        self
    }

    /// Prints the figure. Says whether it is what was asked for, if anything was.
    pub fn print(&self) -> bool {
        let (target, is_met) = match self.target {
            None => (String::new(), true),
            Some(Target::AtMost(limit)) => (
                format!(",\"at_most\":{limit},\"met\":{}", self.value <= limit),
                self.value <= limit,
            ),
            Some(Target::AtLeast(limit)) => (
                format!(",\"at_least\":{limit},\"met\":{}", self.value >= limit),
                self.value >= limit,
            ),
            Some(Target::RatioAtLeast(limit)) => {
                let is_met = self.ratio.is_some_and(|ratio| ratio >= limit);
                (
                    format!(",\"ratio_at_least\":{limit},\"met\":{is_met}"),
                    is_met,
                )
            }
        };
        let ratio = self
            .ratio
            .map_or_else(|| "null".to_owned(), |ratio| format!("{ratio:.3}"));
        println!(
            "{{\"system\":\"{}\",\"workload\":\"{}\",\"metric\":\"{}\",\"value\":{:.3},\"ratio_to_floor\":{ratio}{target}}}",
            self.system, self.workload, self.metric, self.value
        );
        is_met
    }
}

/// The middle value.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    match values.len() % 2 {
        1 => values[upper],
        _ => f64::midpoint(values[upper - 1], values[upper]),
    }
}
