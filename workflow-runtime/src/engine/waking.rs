//! What brings a stored run into memory: a letter, a time, a turn.
//!
//! Owns the rule that no wake-up is lost, whatever is in memory at the time: the run itself, the run on its way
//! out, or no more than a start of the same key that looks whether it is there. It never reads a journal.

use std::sync::Arc;

use super::progress::Progress;
use super::task::take_up;
use super::{RunEntry, Shared, lines, notes};
use crate::ids::RunId;
use crate::journal::Event;
use crate::store::{RunHeader, RunState, StoreError};

/// Has a run look into its mailbox, and takes it up if it is not in memory.
pub(super) fn mail_arrived(shared: &Arc<Shared>, run: RunId) {
    while let Some(entry) = shared.entry(run) {
        entry.mail_arrived();
        // If it is still there, whoever takes it out of memory sees that there is a letter.
        if shared
            .entry(run)
            .is_some_and(|known| Arc::ptr_eq(&known, &entry))
        {
            return;
        }
    }
    if shared.is_closing() {
        return;
    }
    let shared = shared.clone();
    tokio::spawn(async move {
        match who_wants_its_mail(&shared, run).await {
            // It went on as a new run, and that has it.
            Ok(Some(newest)) if newest != run => mail_arrived(&shared, newest),
            Ok(Some(_)) => {
                if take_up(&shared, run, false).is_some() {
                    mail_arrived(&shared, run);
                }
            }
            Ok(None) => {}
            Err(error) => tracing::error!(%run, %error, "its letters wait"),
        }
    });
}

/// Says which run is to be taken up for the letters to one that is not in memory.
async fn who_wants_its_mail(shared: &Shared, run: RunId) -> Result<Option<RunId>, StoreError> {
    let Some(header) = shared.store.header(run).await? else {
        return Ok(None);
    };
    if header.went_on() {
        let newest = lines::newest_of(shared, &header).await?;
        return Ok(Some(newest).filter(|newest| *newest != run));
    }
    Ok(wants_its_mail(shared, header).await?.then_some(run))
}

/// Says whether a run that is not in memory is to be taken up for its letters. A parked run gets them when
/// it is resumed, one that waits in a queue when its turn comes, unless it is to be cancelled.
async fn wants_its_mail(shared: &Shared, header: RunHeader) -> Result<bool, StoreError> {
    let run = header.run;
    match header.state {
        RunState::Parked(_) | RunState::Ended(_) => return Ok(false),
        RunState::Active | RunState::Asleep { wake_at: Some(_) } => return Ok(true),
        RunState::Asleep { wake_at: None } => {}
    }
    if shared.store.note(notes::queued(run)).await?.is_none() {
        return Ok(true); // it has begun, though it may have nothing on record: it waited at once
    }
    if !shared.store.frames(run, 1, 1).await?.is_empty() {
        return Ok(true); // it was resumed before its turn
    }
    let mail = shared.store.mail(run, 0).await?;
    let cancels = |body| matches!(Event::from_letter(body), Ok(Event::CancelRequested(_)));
    Ok(mail.iter().any(|mail| cancels(&mail.body)))
}

/// Wakes a stored run: one that was created asleep or active by somebody who does not drive it.
pub(super) fn wake(shared: &Arc<Shared>, run: RunId) {
    if shared.is_closing() {
        return;
    }
    if let Some(known) = take_up(shared, run, false) {
        let shared = shared.clone();
        tokio::spawn(wake_after(shared, run, known));
    }
}

/// What is in memory may be no more than a start of the same key that looks whether the run is there: it
/// does not drive it, so the run is woken as soon as that has left.
async fn wake_after(shared: Arc<Shared>, run: RunId, mut known: Arc<RunEntry>) {
    let settled = |progress: &Progress| !matches!(progress, Progress::Creating);
    while let Progress::NotCreated = known.progress.wait_for(settled).await
        && !shared.is_closing()
        && let Some(other) = take_up(&shared, run, false)
    {
        known = other;
    }
}
