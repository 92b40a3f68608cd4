//! One figure, one JSON line.

/// A measured figure.
pub struct Figure {
    system: &'static str,
    workload: &'static str,
    metric: &'static str,
    value: f64,
    ratio: Option<f64>,
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
        }
    }

    /// Sets the ratio to the floor of the same run.
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = Some(ratio);
        self
    }

    /// Prints the figure.
    pub fn print(&self) {
        let ratio = self
            .ratio
            .map_or_else(|| "null".to_owned(), |ratio| format!("{ratio:.3}"));
        println!(
            "{{\"system\":\"{}\",\"workload\":\"{}\",\"metric\":\"{}\",\"value\":{:.3},\"ratio_to_floor\":{ratio}}}",
            self.system, self.workload, self.metric, self.value
        );
    }
}

/// The middle value.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
