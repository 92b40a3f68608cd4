//! Who looks after a run that has not ended, for the checker of invariants (feature `testing`).
//!
//! Owns one judgement: a run that has not ended is driven, queued, waits for something that somebody knows of, or is
//! parked. It only looks, and wakes nobody.

use std::sync::Arc;

use super::notes::{self, Space};
use super::{Engine, EngineError, Shared};
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::journal::{self, Event, Journal, JournalError, Reader};
use crate::store::{KeptJournal, NoteKey, RunHeader, RunState, Store};

/// Notes that are read at a time.
const PAGE: usize = 256;

impl Engine {
    /// The store, for whoever judges what is in it.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared().store
    }

    /// Reads the engine's clock.
    pub(crate) fn clock_now(&self) -> Timestamp {
        self.shared().services.clock.now()
    }

    /// Says whether there are notes of a run, which go when it does.
    pub(crate) async fn leaves_notes(&self, run: RunId) -> Result<bool, EngineError> {
        let of_run = NoteKey::of_run(run, &[]);
        Ok(!self.store().notes(of_run, None, 1).await?.is_empty())
    }

    /// Reads a journal with the frames that it lies in, whatever namespace it is of.
    pub(crate) async fn evidence(
        &self,
        header: RunHeader,
    ) -> Result<(KeptJournal, Result<Journal, JournalError>), EngineError> {
        let shared = self.shared();
        let kept = shared.store.journal(header.run).await?;
        let reader = Reader::of(header.run, shared.services.audit_key.clone(), &kept);
        let records = reader.collect::<Result<Vec<_>, _>>().and_then(|records| {
            journal::check_ends(&header, &records)?;
            Ok(records)
        });
        Ok((kept, records.map(|records| Journal::new(header, records))))
    }

    /// Says why nobody would ever go on with a run, if so.
    ///
    /// What is on its way between two tasks at this moment looks like that too: whoever asks lets them run and asks again.
    pub(crate) async fn orphaned(&self, run: RunId) -> Result<Option<String>, EngineError> {
        let shared = self.shared();
        if shared.entry(run).is_some() || shared.is_closing() {
            return Ok(None);
        }
        let Some(header) = shared.store.header(run).await? else {
            return Ok(None);
        };
        let why = match &header.state {
            RunState::Ended(_) | RunState::Parked(_) => None,
            RunState::Active => Some("it is active, and nobody drives it".to_owned()),
            RunState::Asleep { wake_at: Some(at) } => match shared.sleepers.will_wake(*at, run) {
                true => None,
                false => Some(format!("it sleeps until {at}, and nobody wakes it then")),
            },
            RunState::Asleep { wake_at: None } => asleep_for_good(shared, &header).await?,
        };
        // It may have been taken up meanwhile.
        Ok(why.filter(|_| shared.entry(run).is_none()))
    }
}

/// Says why nothing will wake a run that sleeps without a time, if so.
async fn asleep_for_good(
    shared: &Shared,
    header: &RunHeader,
) -> Result<Option<String>, EngineError> {
    let run = header.run;
    if shared.store.note(notes::queued(run)).await?.is_some() {
        let known = is_in_a_queue(shared, run).await?;
        let lost = "it waits for its turn, and no queue knows of it";
        return Ok((!known).then(|| lost.to_owned()));
    }
    if !shared.store.mail(run, 0).await?.is_empty() {
        let unread = "letters wait for it, and nobody wakes it for them";
        return Ok(Some(unread.to_owned()));
    }
    child_without_a_word(shared, run).await
}

/// Finds a child that has ended and of whose end the run has not heard.
async fn child_without_a_word(shared: &Shared, run: RunId) -> Result<Option<String>, EngineError> {
    let mut open = Vec::new();
    for record in super::inspect::records(shared, run).await? {
        match record.event {
            Event::ChildStarted(child) if !child.detached => open.push((child.call, child.child)),
            // By its call: one that went on as a new run ends as the last of its line.
            Event::ChildFinished(child) => open.retain(|(call, _)| *call != child.call),
            // Those of the origin that had not ended stay its own.
            Event::RunForked(_) => open.clear(),
            _ => {}
        }
    }
    for (_, child) in open {
        let newest = super::lines::newest_header(shared, child).await?;
        if newest.is_none_or(|newest| newest.end().is_some()) {
            // The word is written with the child's end: read behind it, the letter is there.
            if shared.store.mail(run, 0).await?.is_empty() {
                return Ok(Some(format!(
                    "its child {child} has ended, and it was not told"
                )));
            }
        }
    }
    Ok(None)
}

async fn is_in_a_queue(shared: &Shared, run: RunId) -> Result<bool, EngineError> {
    let spaces = [Space::QueueWaiting, Space::QueueDelayed, Space::QueueSlot];
    for space in spaces {
        let prefix = notes::key(space, &shared.services.namespace, &[]);
        let mut after: Option<NoteKey> = None;
        loop {
            let page = shared.store.notes(prefix.clone(), after, PAGE).await?;
            let names_it = |key: &NoteKey| {
                let parts = key.parts();
                parts
                    .is_some_and(|parts| parts.last().is_some_and(|last| **last == *run.as_bytes()))
            };
            if page.iter().any(|(key, _)| names_it(key)) {
                return Ok(true);
            }
            if page.len() < PAGE {
                break;
            }
            after = page.into_iter().next_back().map(|(key, _)| key);
        }
    }
    Ok(false)
}
