//! The dispatcher: one task per engine, for all its queues.
//!
//! It knows nothing between two looks but which queues there are: what waits and what goes on is read from
//! the notes, and decided by a commit that is refused if another dispatcher was faster.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::note::{Pages, Settings};
use super::refuse;
use super::round::{Rest, Round};
use crate::clock::Timestamp;
use crate::engine::notes::{self, Space};
use crate::engine::warnings::Warning;
use crate::engine::{EngineError, Shared};
use crate::ids::RunId;

/// How long the clock may go unlooked at: one that was set is noticed after this.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// How often all queues are looked at without a reason, for what another process changed.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Starts the task.
pub(in crate::engine) fn serve(shared: &Arc<Shared>) {
    let weak = Arc::downgrade(shared);
    let bell = shared.plan.queues.clone();
    shared.plan.spawn(async move {
        let mut server = Server::default();
        loop {
            let Some(shared) = weak.upgrade().filter(|shared| !shared.is_closing()) else {
                return;
            };
            if bell.take_changed() {
                server.read_at = None;
            }
            let nap = match server.look(&shared).await {
                Ok(nap) => nap,
                Err(error) if shared.store.failure().is_some() => {
                    tracing::debug!(%error, "queues stop: the store has");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "queues could not be served: trying again");
                    LONGEST_NAP
                }
            };
            let nap = shared.services.clock.pace(nap);
            drop(shared);
            bell.wait(nap).await;
        }
    });
}

#[derive(Default)]
struct Server {
    /// In order, so that they are served in the same one in every run of a test.
    queues: BTreeMap<Box<str>, Known>,
    /// When all settings were read last; `None`: they have to be.
    read_at: Option<Timestamp>,
}

struct Known {
    settings: Result<Settings, String>,
    /// Runs that had their turn before this engine was opened were looked at.
    adopted: bool,
    warned: bool,
    /// Runs whose lease is over, of which there was a warning.
    overdue: HashSet<RunId>,
}

impl Server {
    /// Lets begin what may, and says when to look again.
    async fn look(&mut self, shared: &Arc<Shared>) -> Result<Duration, EngineError> {
        let now = shared.services.clock.now();
        let stale = |at: Timestamp| now.since(at) >= LOOK_AGAIN || at > now;
        if self.read_at.is_none_or(stale) {
            self.read_settings(shared).await?;
            self.read_at = Some(now);
        }
        let mut nap = shared.services.clock.nap(if self.queues.is_empty() {
            LOOK_AGAIN
        } else {
            LONGEST_NAP
        });
        let mut awaits_runs = false;
        for (name, known) in &mut self.queues {
            match known.serve(shared, name).await {
                Ok(rest) => {
                    nap = nap.min(rest.nap);
                    awaits_runs |= rest.holds_slots;
                }
                // Something that is kept of this queue cannot be read: the others go on.
                Err(EngineError::Queue { problem, .. }) => known.warn(shared, name, &problem),
                Err(error) => return Err(error),
            }
        }
        shared.plan.queues.await_runs(awaits_runs);
        Ok(nap)
    }

    async fn read_settings(&mut self, shared: &Shared) -> Result<(), EngineError> {
        let mut before = std::mem::take(&mut self.queues);
        let mut pages = Pages::below(notes::key(
            Space::QueueSettings,
            &shared.services.namespace,
            &[],
        ));
        loop {
            let page = pages.next(shared).await?;
            if page.is_empty() {
                return Ok(());
            }
            for (key, bytes) in page {
                let name = key.parts().and_then(|parts| parts.into_iter().nth(1));
                let Some(name) = name.and_then(|name| String::from_utf8(name).ok()) else {
                    continue;
                };
                let settings = notes::decode::<Settings>(&bytes)
                    .map_err(|problem| format!("its settings cannot be read: {problem}"));
                let before = before.remove(&*name);
                let known = Known {
                    warned: before.as_ref().is_some_and(|known| known.warned),
                    adopted: before.as_ref().is_some_and(|known| known.adopted),
                    overdue: before.map(|known| known.overdue).unwrap_or_default(),
                    settings,
                };
                self.queues.insert(name.into(), known);
            }
        }
    }
}

impl Known {
    async fn serve(&mut self, shared: &Arc<Shared>, name: &str) -> Result<Rest, EngineError> {
        let settings = self
            .settings
            .as_ref()
            .map_err(|problem| refuse(name, problem.clone()))?;
        let mut round = Round::new(shared, name, settings, &mut self.overdue);
        if !self.adopted {
            round.adopt().await?;
            self.adopted = true;
        }
        round.serve().await
    }

    /// Reports once why the queue is not served.
    fn warn(&mut self, shared: &Shared, name: &str, problem: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            shared.services.warnings.push(Warning {
                run: None,
                workflow: "".into(),
                message: Cow::Owned(format!("queue `{name}` is not served: {problem}")),
            });
        }
    }
}
