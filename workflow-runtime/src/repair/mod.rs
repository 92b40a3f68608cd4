//! Repair: what is left of a damaged store, as a new one.
//!
//! Owns the judgement of which runs are whole, and what becomes of those that are not. It knows no user's type, starts no engine
//! and runs nothing. It never writes to the damaged store. The rules are in `docs/repair.md`.

mod judge;
mod key;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::ids::RunId;
use crate::journal::AuditKey;
use crate::store::sled::salvage::{Building, Found, Salvage};
use crate::store::sled::{SledOptions, SledStore};
use crate::store::{Store as _, StoreError, StoreResult};

pub use report::{Fate, LostRun, Repaired, SalvagedNotes, SalvagedRun};

/// How to repair a store.
#[derive(Clone, Default)]
pub struct RepairOptions {
    audit_key: Option<AuditKey>,
}

impl RepairOptions {
    /// Checks journals with the key that their engine was given
    /// ([`EngineBuilder::audit_key`](crate::EngineBuilder::audit_key)). Without it, such journals are put together by
    /// the store's own checks alone, and those that have not ended are parked.
    #[must_use]
    pub fn audit_key(mut self, key: [u8; 32]) -> Self {
        self.audit_key = Some(AuditKey::new(key));
        self
    }
}

/// Salvages what is left of an embedded store into a new one, and says what could not be saved.
///
/// `from` is locked and not changed; `to` must be empty or missing. A sound store is copied, with the same journals. Of a
/// damaged one, runs that are certainly whole go on in the new store as if nothing had happened. Those that may have done more
/// than is left of their journals are parked there ([`ParkReason::Salvaged`](crate::store::ParkReason::Salvaged)) until somebody
/// resumes them; see `docs/repair.md`. Blocks while the disk is read and written: call it on a blocking thread. What it salvages is held in memory
/// meanwhile.
///
/// # Errors
///
/// [`StoreError::InUse`] if a process has `from` open,
/// [`StoreError::NotADatabase`] if `from` is no store or `to` is not empty,
/// [`StoreError::NewerFormat`],
/// [`StoreError::WrongAuditKey`] if a key is given that fits no journal, and
/// [`StoreError::Io`] if the operating system refuses something. A `to` that was begun and not finished
/// is no store, and is refused as none.
///
/// ```no_run
/// # fn example() -> workflow_runtime::Result<()> {
/// let repaired = workflow_runtime::repair::repair("orders.db", "orders-repaired.db")?;
/// println!("{repaired}");
/// if !repaired.is_whole() {
///     // Look at `repaired.runs` and `repaired.lost` before an engine opens the new store.
/// }
/// # Ok(())
/// # }
/// ```
pub fn repair(from: impl AsRef<Path>, to: impl AsRef<Path>) -> StoreResult<Repaired> {
    repair_with(from, to, &RepairOptions::default())
}

/// Repairs as [`repair`] does, with options.
///
/// # Errors
///
/// As [`repair`].
pub fn repair_with(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &RepairOptions,
) -> StoreResult<Repaired> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let salvage = Salvage::begin(from)?;
    let was_there = to.exists();
    let building = Building::begin(to)?;
    let found = salvage.read(from, to)?;
    if let Some(problem) = key::refuses(&found, options) {
        drop(building);
        clear_away(to, was_there)?;
        let path = from.to_path_buf();
        return Err(StoreError::WrongAuditKey { path, problem });
    }
    let mut report = Repaired {
        damage: found.damage.clone(),
        mended: found.mended,
        nameless: found.nameless,
        notes: report::notes(&found),
        ..Repaired::default()
    };
    let mut saved = Vec::new();
    for (run, judged) in judge_all(&found, options) {
        match judged {
            Ok((mut judged, run)) => {
                judged.park_if_needed();
                saved.push(judged);
                report.runs.push(run);
            }
            Err(why) => report.lost.push(LostRun { run, why }),
        }
    }
    let saved = saved.into_iter().map(|judged| judged.saved).collect();
    let notes = found.notes.into_iter().collect();
    building.write(saved, notes, salvage.was_clean)?;
    examine(to, salvage.was_clean)?;
    Ok(report)
}

/// Leaves a directory as it was before a repair began in it: empty, or not there.
fn clear_away(to: &Path, was_there: bool) -> StoreResult<()> {
    let failed = |error: std::io::Error| StoreError::Io {
        operation: format!("clearing {}", to.display()),
        message: error.to_string(),
    };
    // It was empty: what is there now, this repair has made.
    for entry in fs::read_dir(to).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        match path.is_dir() {
            true => fs::remove_dir_all(path).map_err(failed)?,
            false => fs::remove_file(path).map_err(failed)?,
        }
    }
    match was_there {
        true => Ok(()),
        false => fs::remove_dir(to).map_err(failed),
    }
}

type Verdicts = BTreeMap<RunId, Result<(judge::Judged, SalvagedRun), String>>;

/// Judges every run by itself, and then whether others that it needs are there.
fn judge_all(found: &Found, options: &RepairOptions) -> Verdicts {
    let mut verdicts: Verdicts = BTreeMap::new();
    for (run, parts) in &found.runs {
        if let Some(verdict) = judge::judge(*run, parts, options.audit_key.as_ref()) {
            verdicts.insert(*run, verdict);
        }
    }
    if found.damage.is_empty() {
        return verdicts;
    }
    let there: BTreeSet<RunId> = verdicts
        .iter()
        .filter(|(_, verdict)| verdict.is_ok())
        .map(|(run, _)| *run)
        .collect();
    for (judged, report) in verdicts.values_mut().flatten() {
        // A run that goes on would start a child again that it does not find.
        if let Some(child) = judged.missing_child(&there) {
            judged.doubt(format!("its child {child} is not in the new store"));
            report.fate = judged.fate;
            report.why.clone_from(&judged.why);
        }
    }
    verdicts
}

/// Opens the new store as an engine would, and has it examine itself.
fn examine(to: &Path, was_clean: bool) -> StoreResult<()> {
    let store = SledStore::open(to, SledOptions::default())?;
    judge::block_on(store.check())?;
    match was_clean {
        true => judge::block_on(store.close()),
        false => Ok(()),
    }
}
