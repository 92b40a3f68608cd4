//! Driving
use std::time::Duration;
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);
