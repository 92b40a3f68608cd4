//! The store's contract as a suite that any implementation can run.
//!
//! Owns one function per rule; each makes its own fresh store and panics when the rule is
//! broken. Never looks behind the [`Store`] trait, so a PostgreSQL store runs the same
//! lines as the memory one. [`run`] goes through all of them, on a tokio runtime with timers; the macro
//! [`store_conformance!`](crate::store_conformance) makes a `#[tokio::test]` of each.
//!
//! ```
//! use workflow_runtime::store::conformance::{self, MemoryHarness};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! conformance::run(&MemoryHarness::default()).await;
//! # });
//! ```

mod endings;
mod forgetting;
mod letters;
mod lines;
mod notes;
mod reads;
mod restarts;
mod sleep;
mod writes;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

pub use self::endings::*;
pub use self::forgetting::*;
pub use self::letters::*;
pub use self::lines::*;
pub use self::notes::*;
pub use self::reads::*;
pub use self::restarts::*;
pub use self::sleep::*;
pub use self::writes::*;
use super::memory::{MemoryStore, Surviving};
use super::{
    Append, BoxFuture, Creation, Durability, EndKind, Epoch, NewRun, ParkReason, Parking, RunEnd,
    RunHeader, RunState, Store,
};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::ids::RunId;

/// Makes stores for the suite.
pub trait Harness: Send + Sync {
    /// Makes a new, empty store in a place of its own.
    fn fresh(&self) -> BoxFuture<'_, Arc<dyn Store>>;

    /// Opens the place of the store that [`Self::fresh`] made last once more, after `old`,
    /// its last handle, was let go of. `None` if the implementation forgets.
    fn again(&self, old: Arc<dyn Store>) -> BoxFuture<'_, Option<Arc<dyn Store>>>;
}

/// The harness of the memory store.
#[derive(Debug, Default)]
pub struct MemoryHarness {
    current: Mutex<Option<MemoryStore>>,
}

impl MemoryHarness {
    fn keep(&self, store: MemoryStore) -> Arc<dyn Store> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(store.clone());
        Arc::new(store)
    }
}

impl Harness for MemoryHarness {
    fn fresh(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { self.keep(MemoryStore::new()) })
    }

    fn again(&self, old: Arc<dyn Store>) -> BoxFuture<'_, Option<Arc<dyn Store>>> {
        drop(old);
        Box::pin(async {
            let current = self
                .current
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            current.map(|store| self.keep(store.reopen(Surviving::All)))
        })
    }
}

/// Hands the names of all rules to another macro: the one list of them.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_rules {
    ($callback:path { $($argument:tt)* }) => {
        $callback! {
            { $($argument)* }
            a_created_run_has_its_header_and_first_frame
            a_run_can_begin_with_several_frames
            an_id_that_exists_is_reported_and_left_unchanged
            racing_creations_of_one_id_make_one_run
            appended_frames_come_back_in_order
            a_slot_serves_one_append_after_the_other
            an_append_that_is_not_the_next_is_refused
            appends_queued_back_to_back_are_accepted_in_call_order
            a_dropped_append_still_counts
            a_stale_epoch_writes_nothing
            an_unknown_run_takes_no_write
            an_ended_run_takes_no_write
            an_ended_run_can_be_read_and_claimed
            parking_changes_the_header_and_not_the_journal
            a_refused_append_changes_nothing
            frames_of_every_size_come_back
            many_runs_do_not_mix
            a_claim_returns_the_whole_journal_and_a_higher_epoch
            a_claim_gives_the_first_frame_and_those_from_a_number_on
            claiming_an_unknown_run_gives_nothing
            forgetting_leaves_what_was_not_forgotten
            a_forgotten_record_is_never_read_as_another
            only_the_owner_forgets_and_only_what_is_there
            reading_past_the_end_gives_nothing
            unfinished_runs_come_oldest_first
            runs_are_listed_newest_first_in_pages
            a_listing_filters_by_namespace_workflow_and_state
            a_sound_store_passes_its_own_check
            a_closed_store_answers_stopped
            everything_acknowledged_is_there_after_a_clean_stop
            everything_acknowledged_is_there_after_a_drop
            parking_survives_restarts
            an_ended_run_stays_ended_after_a_restart
            a_long_journal_survives_restarts_while_it_grows
            finished_runs_around_a_long_one_survive_restarts
            letters_are_numbered_and_kept_until_taken
            a_refused_append_takes_no_letters
            letters_survive_restarts
            letters_to_nobody_are_refused_or_dropped
            a_letter_makes_a_sleeping_run_due
            waiting_letters_go_with_the_line
            letters_to_others_do_not_go_with_the_line
            a_letter_to_a_run_that_went_on_reaches_the_newest
            no_letter_is_lost_while_a_run_goes_on
            a_line_that_leads_nowhere_takes_no_letters
            a_note_says_what_was_written_last
            notes_are_listed_below_a_prefix_in_pages
            notes_have_limits
            a_guard_that_does_not_hold_refuses_the_commit
            guarded_commits_exclude_each_other
            a_commit_is_made_as_a_whole_or_not_at_all
            an_append_brings_its_changes
            a_sleeping_run_is_found_and_woken
            no_epoch_is_given_twice_over_sleep
            a_run_with_letters_stays_awake
            a_stale_owner_puts_nobody_to_sleep
            sleepers_are_listed_soonest_first_in_pages
            waking_survives_restarts
            a_run_can_be_created_asleep
            runs_are_listed_oldest_first_and_by_origin
            a_failed_run_is_taken_up_again
            letters_outlive_a_failure
            other_ends_are_final
            a_revival_is_guarded
            revival_survives_restarts
            deleted_runs_are_gone_with_their_notes
            a_deleted_id_can_be_used_again
        }
    };
}

/// Makes one `#[tokio::test]` of every rule, for a harness expression.
///
/// ```ignore
/// workflow_runtime::store_conformance!(MyHarness::default());
/// ```
#[macro_export]
macro_rules! store_conformance {
    ($harness:expr) => {
        $crate::__store_rules! { $crate::__store_tests { $harness } }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_tests {
    ({ $harness:expr } $($rule:ident)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::store::conformance::$rule(&$harness).await;
            }
        )*
    };
}

/// Runs every rule against one harness.
///
/// # Panics
///
/// Panics on the first rule that is broken, and prints the rule's name.
pub async fn run(harness: &dyn Harness) {
    macro_rules! all {
        ({ $harness:ident } $($rule:ident)*) => {
            $(
                let named = Named(stringify!($rule));
                $rule($harness).await;
                drop(named);
            )*
        };
    }
    crate::__store_rules! { all { harness } }
}

/// Prints a rule's name if the thread panics while it is being checked.
struct Named(&'static str);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the store breaks the rule `{}`", self.0);
        }
    }
}

/// Returns the id of test run `n`: spread over all 16 bytes, as real ids are.
fn id(n: u64) -> RunId {
    let hash = blake3::hash(&n.to_le_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    RunId::from_bytes(bytes)
}

fn header(n: u64) -> RunHeader {
    RunHeader {
        run: id(n),
        namespace: "default".into(),
        workflow: "checkout".into(),
        version: 3,
        key: Some(format!("order-{n}").into()),
        input_digest: Digest::from_bytes([7; 16]),
        created_at: Timestamp::from_micros(1_000 + n),
        origin: None,
        state: RunState::Active,
    }
}

/// Returns the frame of run `n` at `seq`: `len` bytes that no other frame has.
fn frame(n: u64, seq: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    let mut hash = blake3::Hasher::new();
    hash.update(&n.to_le_bytes()).update(&seq.to_le_bytes());
    hash.finalize_xof().fill(&mut bytes);
    bytes.into()
}

fn new_run(n: u64) -> NewRun {
    NewRun {
        header: header(n),
        first: frame(n, 0, 40),
        rest: Vec::new(),
        durability: Durability::Synced,
    }
}

fn append(n: u64, epoch: Epoch, seq: u64, frames: Vec<Bytes>) -> Append {
    Append {
        run: id(n),
        epoch,
        first_seq: seq,
        frames: frames.into(),
        end: None,
        taken: 0,
        changes: None,
        durability: Durability::Synced,
    }
}

fn ending(n: u64, epoch: Epoch, seq: u64, kind: EndKind) -> Append {
    Append {
        end: Some(end(kind)),
        taken: 0,
        changes: None,
        ..append(n, epoch, seq, vec![frame(n, seq, 30)])
    }
}

fn end(kind: EndKind) -> RunEnd {
    RunEnd {
        kind,
        at: Timestamp::from_micros(99_000),
    }
}

fn parking(report: &str) -> Parking {
    Parking {
        reason: ParkReason::Diverged,
        at: Timestamp::from_micros(77),
        report: report.into(),
        detail: Some(Bytes::from_static(b"\x93detail")),
    }
}

async fn create(store: &dyn Store, n: u64) -> Epoch {
    match store.create(new_run(n)).await.expect("the run is created") {
        Creation::Created(epoch) => epoch,
        Creation::Exists(header) => panic!("{} is there already", header.run),
    }
}

async fn grow(store: &dyn Store, n: u64, epoch: Epoch, seqs: std::ops::Range<u64>, len: usize) {
    for seq in seqs {
        store
            .append(append(n, epoch, seq, vec![frame(n, seq, len)]))
            .await
            .expect("the frame is appended");
    }
}

async fn journal(store: &dyn Store, n: u64) -> Vec<Bytes> {
    store
        .frames(id(n), 0, usize::MAX)
        .await
        .expect("the journal is readable")
}

async fn state(store: &dyn Store, n: u64) -> RunState {
    store
        .header(id(n))
        .await
        .expect("the header is readable")
        .expect("the run is there")
        .state
}

#[cfg(test)]
mod memory {
    crate::store_conformance!(super::MemoryHarness::default());
}
