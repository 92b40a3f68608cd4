//! Who holds a hook's token.
//!
//! Owns the note that leads from a token to a run: it is written under a guard, so that of two runs
//! that want one token only one has it. The holder has it until it lets go or ends; a note of
//! a run that has ended is taken over. Never touches a journal.

use std::sync::Arc;

use bytes::Bytes;

use super::letters::check_name;
use super::{EngineError, Services, Shared, notes};
use crate::error::{Error, Result};
use crate::ids::RunId;
use crate::store::{
    Commit, Committed, Guard, NoteChange, NoteKey, RunHeader, RunState, StoreResult,
};

/// The name under which a run receives what is sent to a token.
pub(crate) fn signal_name(token: &str) -> String {
    format!("hook:{token}")
}

/// The token that a name of [`signal_name`] is of.
#[cfg(feature = "testing")]
pub(crate) fn token_of(signal_name: &str) -> Option<&str> {
    signal_name.strip_prefix("hook:")
}

/// Takes a token for a run.
///
/// # Errors
///
/// If another run holds it, which is final; or if the store fails, which is worth another attempt.
pub(crate) async fn take(services: Arc<Services>, run: RunId, token: String) -> Result<()> {
    check_name("token", &token).map_err(Error::fatal)?;
    let shared = living(&services).await;
    let key = notes::token(&services.namespace, &token);
    loop {
        let found = shared.store.note(key.clone()).await?;
        if let Some(holder) = found.as_deref().and_then(read_holder) {
            if holder == run {
                return Ok(());
            }
            if let Some(header) = unended(&shared, holder).await? {
                return Err(Error::fatal(format!(
                    "the token {token:?} is held by {holder} of `{}`: a token belongs to one run at a \
                     time; use another one, or wait until that run ends or closes its hook",
                    header.workflow
                )));
            }
        }
        let holder = Some(Bytes::copy_from_slice(run.as_bytes()));
        if change(&shared, key.clone(), found, holder).await? {
            return Ok(());
        }
    }
}

/// Lets go of a token, if the run holds it.
///
/// # Errors
///
/// If the store fails, which is worth another attempt.
pub(crate) async fn let_go(services: Arc<Services>, run: RunId, token: String) -> Result<()> {
    let shared = living(&services).await;
    let key = notes::token(&services.namespace, &token);
    let held = Some(Bytes::copy_from_slice(run.as_bytes()));
    change(&shared, key, held, None).await?;
    Ok(())
}

/// Finds the run that holds a token, and the note that says so.
pub(super) async fn find(shared: &Shared, token: &str) -> Result<(RunId, Guard), EngineError> {
    let key = notes::token(&shared.services.namespace, token);
    let found = shared.store.note(key.clone()).await?;
    let holder = found.as_deref().and_then(read_holder);
    match holder {
        Some(run) if unended(shared, run).await?.is_some() => {
            let expected = found;
            Ok((run, Guard { key, expected }))
        }
        _ => Err(EngineError::NoHook {
            token: token.to_owned(),
        }),
    }
}

/// Changes a token's note, unless it says something else by now.
async fn change(
    shared: &Shared,
    key: NoteKey,
    expected: Option<Bytes>,
    value: Option<Bytes>,
) -> StoreResult<bool> {
    let mut commit = Commit::default();
    commit.guards.push(Guard {
        key: key.clone(),
        expected,
    });
    commit.changes.notes.push(NoteChange { key, value });
    Ok(shared.store.commit(commit).await? == Committed::Done)
}

/// The run's header, unless it has ended or is gone.
async fn unended(shared: &Shared, run: RunId) -> StoreResult<Option<RunHeader>> {
    let header = shared.store.header(run).await?;
    Ok(header.filter(|header| !matches!(header.state, RunState::Ended(_))))
}

fn read_holder(note: &[u8]) -> Option<RunId> {
    note.try_into().ok().map(RunId::from_bytes)
}

/// The engine. If it is gone, so is whoever waits for an answer.
async fn living(services: &Services) -> Arc<Shared> {
    match services.engine() {
        Some(shared) => shared,
        None => std::future::pending().await,
    }
}
