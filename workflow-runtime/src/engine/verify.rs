//! Replaying a journal that is not in a store: does the code still ask for what it holds?
//!
//! Owns the way from the records of a file to a driver that only replays, and the comparison of ends. The engine
//! here is made for one journal, with a store that nobody else knows; what is replayed is written to neither. It never
//! shows anything to a person: that is `testing/replay`.

use super::begun::Begun;
use super::driver::{AfterCrash, Exit, Verified, Verifying};
use super::progress::Progress;
use super::{Engine, RunEntry, Shared};
use crate::ids::{DERIVATION_VERSION, RunId};
use crate::journal::{Chain, Draft, End, Event, Outcome, Record, line_of};
use crate::payload::Place;
use crate::replay::{Difference, History, compare_inputs};
use crate::store::{
    Creation, Durability, Epoch, NewRun, ParkReason, Parking, RunHeader, RunState, StoreError,
};

/// What a replay came to.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) steps: usize,
    pub(crate) verified: Verified,
    /// How the journal ends.
    pub(crate) end: Option<End>,
    pub(crate) warnings: Vec<String>,
}

/// Why a replay did not come to its end.
#[derive(Debug)]
pub(crate) enum Unreplayed {
    /// The run would be parked.
    Parked {
        reason: ParkReason,
        report: String,
        detail: Option<String>,
    },
    /// The private store failed, which it does not.
    Store(StoreError),
}

impl From<StoreError> for Unreplayed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Engine {
    /// Replays a journal with this engine's workflows. Its payloads are in clear, and the engine has no codec.
    pub(crate) async fn verify_journal(
        &self,
        run: RunId,
        records: Vec<Record>,
    ) -> Result<Replay, Unreplayed> {
        let shared = self.shared();
        let parked = |parking: Parking| unreplayed(shared, run, parking);
        // What earlier passes did and is to be undone is read from the store.
        let mut events = records.iter().map(|record| &record.event);
        if events.any(|event| matches!(event, Event::UndoCarried(_))) {
            keep(shared, run, &records).await?;
        }
        let line = line_of(run, &records);
        let history = History::read(records.into_iter().map(Ok::<_, StoreError>))?;
        let history = history
            .ok_or_else(|| refused("the journal does not begin with its start".to_owned()))?;
        let derivation = history.started.derivation;
        if derivation != DERIVATION_VERSION {
            return Err(refused(format!(
                "its ids are of derivation {derivation}, this release knows {DERIVATION_VERSION}: upgrade \
                 workflow-runtime"
            )));
        }
        let steps = history.steps();
        let end = history.end.clone();
        let aborted = history.aborted();
        let begun = Begun::again(
            history,
            Epoch::FIRST,
            Chain::new(run, None),
            (Vec::new(), 0),
            AfterCrash::default(),
        );
        let entry = RunEntry::new(Progress::Active);
        let driver = begun.in_line(line).into_driver(shared, &entry);
        let driver =
            driver.map_err(|obstacle| parked(obstacle.into_parking(&shared.services, run)))?;
        // As for runs that are driven: a poll that is cut short would look like a wake-up of the workflow's own.
        let replayed = tokio::task::unconstrained(driver.verify(Verifying { aborted })).await;
        let warnings = shared.services.warnings.list();
        match replayed {
            Exit::Verified(verified) => Ok(Replay {
                steps,
                verified: *verified,
                end,
                warnings: warnings
                    .into_iter()
                    .map(|warning| warning.message.into_owned())
                    .collect(),
            }),
            Exit::Park(parking) => Err(parked(parking)),
            Exit::StoreFailed(error) => Err(error.into()),
            Exit::Ended(_) | Exit::Left | Exit::Asleep(_) => {
                unreachable!("a replay neither ends nor leaves a run")
            }
        }
    }

    /// Compares two payloads, of a journal and of the code.
    pub(crate) fn compare_payloads(&self, recorded: &[u8], now: &[u8]) -> Compared {
        let payloads = &self.shared().services.payloads;
        if recorded == now {
            return Compared::Same;
        }
        let (Ok(mut recorded), Ok(mut now)) = (payloads.value(recorded), payloads.value(now))
        else {
            return Compared::Other(Vec::new()); // one of them is not what engines write
        };
        let found = compare_inputs(&recorded, &now);
        if found.is_empty() {
            return Compared::Same;
        }
        if found.iter().all(Difference::is_one_sided) {
            return Compared::OtherFields;
        }
        sort_lists(&mut recorded);
        sort_lists(&mut now);
        match compare_inputs(&recorded, &now).is_empty() {
            true => Compared::Reordered,
            false => Compared::Other(found),
        }
    }
}

/// How what the code gives compares with what it gave.
pub(crate) enum Compared {
    Same,
    /// Fields were added or removed.
    OtherFields,
    /// Only the order of a sequence differs.
    Reordered,
    Other(Vec<Difference>),
}

/// Puts the elements of all lists into an order of their own.
fn sort_lists(value: &mut rmpv::Value) {
    match value {
        rmpv::Value::Array(list) => {
            list.iter_mut().for_each(sort_lists);
            list.sort_by_cached_key(ToString::to_string);
        }
        rmpv::Value::Map(entries) => {
            let values = entries.iter_mut().map(|(_, value)| value);
            values.for_each(sort_lists);
            entries.sort_by_cached_key(|(key, _)| key.to_string());
        }
        _ => {}
    }
}

/// What a failure carries.
pub(crate) fn failure_payload(failure: &Outcome) -> &[u8] {
    match failure {
        Outcome::Ok(payload)
        | Outcome::Err(payload)
        | Outcome::Broken(payload)
        | Outcome::AlreadyDone(payload) => payload,
        Outcome::Interrupted(_) => &[],
    }
}

fn refused(report: String) -> Unreplayed {
    Unreplayed::Parked {
        reason: ParkReason::Undecodable,
        report,
        detail: None,
    }
}

fn unreplayed(shared: &Shared, run: RunId, parking: Parking) -> Unreplayed {
    let payloads = shared.services.payloads.at(Place::parking(run));
    let detail = parking.detail.as_ref();
    Unreplayed::Parked {
        reason: parking.reason,
        report: parking.report.into(),
        detail: detail.and_then(|detail| payloads.decode(detail).ok()),
    }
}

/// Puts the journal into the engine's own store.
async fn keep(shared: &Shared, run: RunId, records: &[Record]) -> Result<(), StoreError> {
    let Some(Record {
        time,
        event: Event::RunStarted(started),
        ..
    }) = records.first()
    else {
        return Ok(());
    };
    let mut chain = Chain::new(run, None);
    let mut frames: Vec<_> = records
        .iter()
        .map(|record| Draft::of(&record.event).seal(record.time, &mut chain))
        .collect();
    let rest = frames.split_off(1);
    let new = NewRun {
        header: RunHeader {
            run,
            namespace: started.namespace.clone(),
            workflow: started.workflow.clone(),
            version: started.version,
            key: started.key.clone(),
            input_digest: started.input_digest,
            created_at: *time,
            origin: None,
            state: RunState::Active,
        },
        first: frames.remove(0),
        rest,
        durability: Durability::Buffered,
    };
    match shared.store.create(new).await? {
        Creation::Created(_) | Creation::Exists(_) => Ok(()),
    }
}
