//! Testing workflows in a plain `#[tokio::test]`, in milliseconds (feature `testing`).
//!
//! Owns what users' tests need and nothing that ships in a service: [`TestEngine`], an engine in memory
//! whose time is virtual, control over its steps, ways to drive its runs; [`Ledger`], an outside world that tells on
//! duplicates; [`crash_everywhere`] and [`deliver_duplicates`], which run a workflow again and again under worse
//! conditions; [`replay`] of recorded journals; and assertions whose failure says what to do ([`Lock`],
//! [`assert_audit_clean`]).

mod auditing;
mod chaos;
mod crash;
mod driving;
mod duplicates;
mod engine;
mod invariants;
mod ledger;
pub(crate) mod lock;
mod replay;
mod replay_judge;
mod replay_report;
mod scenario;
mod steps;
#[cfg(feature = "proptest")]
pub mod strategies;
mod waiting_text;

pub use auditing::assert_audit_clean;
pub(crate) use chaos::Delay;
pub use crash::{Crash, CrashEverywhere, CrashFailure, CrashReport, crash_everywhere};
pub use duplicates::{DeliverDuplicates, DuplicatesFailure, DuplicatesReport, deliver_duplicates};
pub use engine::{TestEngine, TestEngineBuilder};
pub use invariants::{Invariant, Violation, Witness, check_invariants, check_journal};
pub use ledger::{Answer, Duplicate, Ledger, LedgerCall, LedgerError, Posted};
pub use lock::{Change, Changed, Class, Lock, LockError};
pub use replay::{Replayer, assert_replays, replay};
pub use replay_report::{ReplayFailure, ReplayFailureKind, ReplayFailures, Replayed, Stopped};
pub use steps::{AsyncAnswer, Call, CallAttempt, Calls, Fallible};

pub use crate::call::TypedStep;
