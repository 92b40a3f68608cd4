//! What a store does when it is asked for what it must refuse.
//!
//! Owns writes under stale epochs and behind ends, on a store that no engine has open. It claims runs, and so takes them
//! from whoever had them; if the store is sound, it changes nothing else.

use bytes::Bytes;

use super::judging::headers;
use super::rule::{Invariant, Violation};
use crate::engine::EngineError;
use crate::store::{Append, Durability, Epoch, RunHeader, Store, StoreError, StoreResult};

/// Tries what must be refused on every run.
pub(super) async fn probe(store: &dyn Store) -> Result<Vec<Violation>, EngineError> {
    let mut violations = Vec::new();
    for header in &headers(store).await? {
        violations.extend(probe_run(store, header).await?);
    }
    Ok(violations)
}

async fn probe_run(
    store: &dyn Store,
    header: &RunHeader,
) -> Result<Option<Violation>, EngineError> {
    let run = header.run;
    let found = |rule, problem: String| Ok(Some(Violation::new(run, rule, problem)));
    let Some(first) = store.claim(run, u64::MAX).await? else {
        return Ok(None); // removed meanwhile
    };
    let Some(second) = store.claim(run, u64::MAX).await? else {
        return Ok(None);
    };
    let next = next_number(store, header).await?;
    if header.end().is_some() {
        return match store.append(late(header, second.epoch, next)).await {
            Err(StoreError::Ended { .. }) => Ok(None),
            answer => found(
                Invariant::EndsOnce,
                format!(
                    "it has ended, and a record behind its end {}",
                    told(&answer)
                ),
            ),
        };
    }
    if second.epoch <= first.epoch {
        let problem = "two claims have the same epoch".to_owned();
        return found(Invariant::Fencing, problem);
    }
    match store.append(late(header, first.epoch, next)).await {
        Err(StoreError::StaleEpoch { .. }) => {}
        answer => {
            let problem = format!("a record of a stale owner {}", told(&answer));
            return found(Invariant::Fencing, problem);
        }
    }
    if next_number(store, header).await? != next {
        let problem = "a record of a stale owner was refused, and is there".to_owned();
        return found(Invariant::Fencing, problem);
    }
    Ok(None)
}

fn told(answer: &StoreResult<()>) -> String {
    match answer {
        Ok(()) => "was accepted".to_owned(),
        Err(error) => format!("was refused for another reason: {error}"),
    }
}

async fn next_number(store: &dyn Store, header: &RunHeader) -> Result<u64, EngineError> {
    let kept = store.journal(header.run).await?;
    let behind = kept.frames.len().saturating_sub(2) as u64;
    Ok(match kept.kept_from {
        0 => kept.frames.len() as u64,
        from => from.max(2) + behind,
    })
}

/// An append that nobody may make.
fn late(header: &RunHeader, epoch: Epoch, first_seq: u64) -> Append {
    Append {
        run: header.run,
        epoch,
        first_seq,
        frames: Bytes::from_static(b"from somebody who is not the owner").into(),
        end: None,
        taken: 0,
        changes: None,
        durability: Durability::Synced,
    }
}
