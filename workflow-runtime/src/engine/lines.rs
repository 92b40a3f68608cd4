//! Lines: runs that continue each other, looked at from outside.
//!
//! Owns the way from any run of a line to the newest, for all who act on a run by its id, and what is shown of
//! a line. A line is made by the driver of its newest run (`driver/continuing`); here nothing is written.

use super::obstacle::Obstacle;
use super::{Engine, EngineError, Shared, handle};
use crate::ids::RunId;
use crate::journal::{Event, Reader};
use crate::store::{Newest, Origin, ParkReason, RunHeader, RunState, StoreResult};

/// The place of a run among those that continue each other; see [`Engine::lineage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lineage {
    /// The run that was asked for.
    pub run: RunId,
    /// The first run of the line.
    pub first: RunId,
    /// How many runs of the line came before this one.
    pub ordinal: u64,
    /// The run that this one continues.
    pub previous: Option<RunId>,
    /// The run that continues this one.
    pub next: Option<RunId>,
    /// The newest run of the line: whatever is done to any of its runs is done to this one.
    pub newest: RunId,
}

/// The ends of a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) first: RunId,
    pub(super) newest: RunId,
}

impl Line {
    /// Finds the line of a run of this engine's namespace.
    pub(super) async fn of(shared: &Shared, run: RunId) -> Result<Self, EngineError> {
        let header = handle::header(shared, run).await?;
        Ok(Self {
            first: header.first_of_line(),
            newest: newest_of(shared, &header).await?,
        })
    }
}

/// Finds the newest run of the line that a run is part of.
pub(super) async fn newest(shared: &Shared, run: RunId) -> Result<RunId, EngineError> {
    Ok(Line::of(shared, run).await?.newest)
}

/// The newest run of a line. One that has not gone on is it.
pub(super) async fn newest_of(shared: &Shared, header: &RunHeader) -> StoreResult<RunId> {
    if !header.went_on() {
        return Ok(header.run);
    }
    let newest = noted(shared, header.first_of_line()).await?;
    Ok(newest.map_or(header.run, |newest| newest.run))
}

/// What the note of a line says.
pub(super) async fn noted(shared: &Shared, first: RunId) -> StoreResult<Option<Newest>> {
    let note = shared.store.note(Newest::key(first)).await?;
    Ok(note.as_deref().and_then(Newest::decode))
}

/// The first run of the line that an unfinished run continues, and how many came before it.
pub(super) async fn place_of(
    shared: &Shared,
    header: &RunHeader,
) -> StoreResult<Result<Option<(RunId, u64)>, Obstacle>> {
    let Some(Origin::Continued(first)) = header.origin else {
        return Ok(Ok(None));
    };
    Ok(match noted(shared, first).await? {
        Some(newest) if newest.run == header.run => Ok(Some((first, newest.ordinal))),
        _ => Err(Obstacle::new(
            ParkReason::Corrupt,
            format!("it continues the line of {first}, whose note does not name it as the newest"),
        )),
    })
}

/// The header of the newest run of a run's line, if the runs are there.
pub(super) async fn newest_header(shared: &Shared, run: RunId) -> StoreResult<Option<RunHeader>> {
    let Some(header) = shared.store.header(run).await? else {
        return Ok(None);
    };
    match newest_of(shared, &header).await? {
        newest if newest == run => Ok(Some(header)),
        newest => shared.store.header(newest).await,
    }
}

/// Says whether a run, or one that continues it, has not ended.
pub(super) async fn goes_on(shared: &Shared, run: RunId) -> StoreResult<bool> {
    let header = newest_header(shared, run).await?;
    Ok(header.is_some_and(|header| !matches!(header.state, RunState::Ended(_))))
}

impl Engine {
    /// Returns the place of a run among those that continue each other; see
    /// [`continue_as_new`](crate::continue_as_new). A run that neither continues another nor was continued
    /// is a line of its own.
    ///
    /// # Errors
    ///
    /// If there is no such run, its journal cannot be read, or the store fails.
    pub async fn lineage(&self, run: RunId) -> Result<Lineage, EngineError> {
        let shared = self.shared();
        let header = handle::header(shared, run).await?;
        let newest = newest_of(shared, &header).await?;
        let ordinal = match header.origin {
            Some(Origin::Continued(_)) => ordinal(shared, run).await?,
            _ => 0,
        };
        let first = header.first_of_line();
        let previous = match ordinal {
            0 => None,
            1 => Some(first),
            more => Some(RunId::of_line(first, more - 1)),
        };
        Ok(Lineage {
            run,
            first,
            ordinal,
            previous,
            next: header.went_on().then(|| RunId::of_line(first, ordinal + 1)),
            newest,
        })
    }
}

/// How many runs of its line came before a run, as its journal says.
async fn ordinal(shared: &Shared, run: RunId) -> Result<u64, EngineError> {
    let frames = shared.store.frames(run, 0, 2).await?;
    let key = shared.services.audit_key.clone();
    for record in Reader::new(run, key, &frames) {
        if let Event::RunSucceeds(line) = record?.event {
            return Ok(line.ordinal);
        }
    }
    Err(EngineError::UnknownRun(run)) // it was deleted meanwhile
}
