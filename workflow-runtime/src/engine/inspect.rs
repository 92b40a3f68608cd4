//! Reading without the user's types: lists, journals, verification.

use std::fmt;
use std::future::IntoFuture;
use std::str::FromStr;
use std::sync::Arc;

use super::{Engine, EngineError, Shared};
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::journal::{self, End, Journal, JournalError, Reader, Record};
use crate::store::{BoxFuture, RunHeader, RunPosition, RunQuery, StateKind};

/// Runs on a page of a listing, unless more or fewer are asked for.
const DEFAULT_PAGE: usize = 100;

/// The most runs on one page: a page is held in memory.
const MAX_PAGE: usize = 10_000;

impl Engine {
    /// Lists runs of the engine's namespace, newest first; await it, or narrow it first.
    ///
    /// ```no_run
    /// # use workflow_runtime::{store::StateKind, Engine, Result};
    /// # async fn example(engine: Engine) -> Result<()> {
    /// let parked = engine.runs().state(StateKind::Parked).limit(20).await?;
    /// for run in &parked.runs {
    ///     println!("{} {}", run.run, run.workflow);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn runs(&self) -> Runs {
        Runs {
            shared: self.shared().clone(),
            query: RunQuery {
                namespace: match seeded!(NamespaceLeak) {
                    true => None,
                    false => Some((*self.shared().services.namespace).into()),
                },
                limit: DEFAULT_PAGE,
                ..RunQuery::default()
            },
        }
    }

    /// Returns a run's journal, verified and decoded; printing it gives a timeline.
    ///
    /// # Errors
    ///
    /// If there is no such run, its chain does not verify, or the store fails.
    pub async fn journal(&self, run: RunId) -> Result<Journal, EngineError> {
        let shared = self.shared();
        let header = shared
            .store
            .header(run)
            .await?
            .filter(|header| *header.namespace == *shared.services.namespace)
            .ok_or(EngineError::UnknownRun(run))?;
        let records = records(shared, run).await?;
        match records.is_empty() {
            // Deleted between the two reads.
            true => Err(EngineError::UnknownRun(run)),
            false => Ok(Journal::new(header, records)),
        }
    }

    /// Verifies the store and the chain of every run in it.
    ///
    /// # Errors
    ///
    /// If the store itself is damaged or fails; damaged journals are listed in the result.
    pub async fn verify(&self) -> Result<Verification, EngineError> {
        let store = &self.shared().store;
        store.check().await?;
        let mut verification = Verification::default();
        let mut query = RunQuery {
            limit: DEFAULT_PAGE,
            ..RunQuery::default()
        };
        loop {
            let page = store.list(query.clone()).await?;
            for header in &page {
                let checked = records(self.shared(), header.run)
                    .await
                    .and_then(|records| {
                        journal::check_ends(header, &records)?;
                        Ok(records.len() as u64)
                    });
                match checked {
                    Ok(records) => verification.records += records,
                    // Deleted since it was listed: there is nothing left of it that could be damaged.
                    Err(EngineError::Journal(_)) if store.header(header.run).await?.is_none() => {
                        continue;
                    }
                    Err(EngineError::Journal(error)) => verification.damaged.push(error),
                    Err(error) => return Err(error),
                }
                verification.runs += 1;
            }
            match page.last() {
                Some(last) if page.len() == query.limit => query.after = Some(last.position()),
                _ => return Ok(verification),
            }
        }
    }
}

/// What [`Engine::verify`] found.
#[derive(Debug, Clone, Default)]
pub struct Verification {
    /// Runs that were looked at.
    pub runs: u64,
    /// Records whose chain verified.
    pub records: u64,
    /// Journals that cannot be trusted.
    pub damaged: Vec<JournalError>,
}

/// Reads a run's journal as far as it is kept, verified.
pub(super) async fn records(shared: &Shared, run: RunId) -> Result<Vec<Record>, EngineError> {
    let kept = shared.store.journal(run).await?;
    let reader = Reader::of(run, shared.services.audit_key.clone(), &kept);
    Ok(reader.collect::<Result<_, _>>()?)
}

/// How a journal ends, if it does.
pub(super) fn end_of(records: Vec<Record>) -> Option<End> {
    End::of(records.into_iter().next_back()?.event)
}

/// A listing of runs; see [`Engine::runs`].
#[must_use = "nothing is listed until this is awaited"]
pub struct Runs {
    shared: Arc<Shared>,
    query: RunQuery,
}

impl Runs {
    /// Only runs of one workflow.
    pub fn workflow(mut self, name: &str) -> Self {
        self.query.workflow = Some(name.into());
        self
    }

    /// Only runs in this state; called again, in one of these.
    pub fn state(mut self, state: StateKind) -> Self {
        self.query.states.push(state);
        self
    }

    /// At most this many (100 otherwise, 10,000 at most).
    pub fn limit(mut self, runs: usize) -> Self {
        self.query.limit = runs.clamp(1, MAX_PAGE);
        self
    }

    /// Goes on where an earlier page ended.
    pub fn after(mut self, cursor: RunCursor) -> Self {
        self.query.after = Some(cursor.0);
        self
    }
}

impl IntoFuture for Runs {
    type Output = Result<RunsPage, EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let limit = self.query.limit;
            let runs = self.shared.store.list(self.query).await?;
            let next = runs
                .last()
                .filter(|_| runs.len() == limit)
                .map(|last| RunCursor(last.position()));
            Ok(RunsPage { runs, next })
        })
    }
}

/// One page of a listing.
#[derive(Debug, Clone)]
pub struct RunsPage {
    /// The runs, newest first.
    pub runs: Vec<RunHeader>,
    /// Where the next page begins, unless this is the last one.
    pub next: Option<RunCursor>,
}

/// A place in a listing. It stays where it is when runs are added, and survives as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunCursor(RunPosition);

impl fmt::Display for RunCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.created_at.as_micros(), self.0.run)
    }
}

impl FromStr for RunCursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let parse = || {
            let (micros, run) = text.split_once('-')?;
            Some(Self(RunPosition {
                created_at: Timestamp::from_micros(micros.parse().ok()?),
                run: run.parse().ok()?,
            }))
        };
        parse().ok_or_else(|| ParseCursorError(text.chars().take(64).collect()))
    }
}

/// Says that a text is not a cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a place in a listing: use the `next` of an earlier page as it is")]
pub struct ParseCursorError(String);
