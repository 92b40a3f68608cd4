//! Logs that do not repeat: hides what workflow code emits while it is being replayed.
//!
//! Owns one filter for `tracing-subscriber`. The engine's own events are never hidden: they
//! say what is replayed.

use tracing::Metadata;
use tracing_subscriber::layer::{Context, Filter};

/// Hides events and spans of workflow code during replay.
///
/// ```
/// use tracing_subscriber::{layer::SubscriberExt as _, Layer as _};
/// # use tracing_subscriber::layer::Identity;
/// # let fmt_layer = Identity::new();
/// let subscriber = tracing_subscriber::registry()
///     .with(fmt_layer.with_filter(workflow_runtime::HideReplayed));
/// # let _ = subscriber;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct HideReplayed;

impl<S> Filter<S> for HideReplayed {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        metadata.target().starts_with(env!("CARGO_CRATE_NAME")) || !crate::context::is_replaying()
    }

    fn callsite_enabled(&self, _: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }
}
