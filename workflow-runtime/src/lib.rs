//! Durable workflows for Rust as two attributes.
//!
//! Annotate async functions: [`#[step]`](macro@step) marks one with side effects,
//! [`#[workflow]`](macro@workflow) one that calls steps. The workflow then survives crashes, restarts
//! and deploys: every finished step's outcome is in a journal on disk, and a resumed run continues
//! after the last one. Every step has an id that never changes, to be handed to a payment or mail
//! API as its idempotency key.
//!
//! **The contract: ordered, durable, at-least-once step execution; exactly-once recorded outcome; an
//! idempotency key that makes the effect exactly-once wherever the other side honours keys.**
//!
//! ```
//! use std::time::Duration;
//! use workflow_runtime::{Engine, Result, get_step_metadata, sleep, step, workflow};
//!
//! #[step(max_attempts = 5, backoff = "200ms..30s", timeout = "10s")]
//! async fn charge(customer: &str, cents: u64) -> Result<String> {
//!     let key = get_step_metadata().step_id; // the same in every attempt, process and machine
//!     Ok(format!("charged {customer} {cents} under {key}"))
//! }
//!
//! #[workflow]
//! async fn checkout(customer: String, cents: u64) -> Result<String> {
//!     let receipt = charge(&customer, cents).await?;
//!     sleep(Duration::from_millis(10)).await; // durable: could be a month
//!     Ok(receipt)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("orders.db");
//! let engine = Engine::builder().register::<checkout>().open(path).await?; // resumes what was left
//! let run = engine.start(checkout("ada".into(), 500)).key("order-123").await?; // same key, same run
//! assert!(run.result().await?.starts_with("charged ada 500"));
//! engine.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What things are
//!
//! - A **run** is one execution of one workflow with one input. It has an id (derived from its key, or
//!   random) and a journal, and ends once; only one that failed can be [taken up again](Engine::retry).
//! - A **step** is one call of a `#[step]` function in one run. Its id is derived from the run, from where
//!   in the workflow's structure the call stands, and from its name; never from input, time or
//!   attempt. It is claimed when the call is made. Its outcome is recorded once.
//! - A **scope** is what ids are counted in: the workflow's body, each `async` block in it, each call of a
//!   `#[workflow(inline)]` helper, each [`scope`].
//! - The **journal** of a run is append-only, numbered without gaps and chained by hashes. *An outcome is
//!   durable before the workflow sees it.*
//! - A **signal** is a named value that others send to a run; the run takes it with [`wait_for`]. A [`hook`] is
//!   a token that leads to a run whose id the sender does not know.
//! - A **child** is a run that belongs to a call in another run: a workflow that is awaited in a workflow.
//! - A **line** is runs that [continue](continue_as_new) each other. What is done to one of them is done to the newest.
//! - **Replay** is how a run is resumed: its code runs again from the top, and is given the recorded
//!   outcomes in the recorded order instead of running steps. Code that asks for something else than
//!   the journal holds is *parked* with a report, before anything is run.
//!
//! # Layout
//!
//! In the order data flows: [`step`](macro@step) and [`workflow`](macro@workflow) make calls
//! ([`StepCall`], [`WorkflowCall`]); an [`Engine`] starts and drives them; `replay` decides what a
//! recorded journal asks of the code; [`journal`] is what is written; a [`store`] keeps it. Beside all that,
//! [`idempotency`] guards work that is no workflow ([`Engine::once`]).
//!
//! # Features
//!
//! None is on by default.
//!
//! - `export`: `Engine::export`, a run's journal as one file (`export::JournalFile`).
//! - `http`: `idempotency::http`, a tower layer for the `Idempotency-Key` header.
//! - `redis`: `idempotency::RedisKeys`, keys that live in Redis.
//! - `testing`: `testing`, what users' tests need: an engine in virtual time, a ledger, crashes at every write.
//! - `proptest`: `testing::strategies`, keys and payloads for property tests.
//! - `encryption`: `encryption::Encryption`, a payload codec that encrypts at rest.

#[macro_use]
#[doc(hidden)]
pub mod seeded;

mod call;
mod context;
mod determinism;
mod engine;
mod replay;

pub mod audit;
mod diagram;
pub mod idempotency;

pub mod journal;

pub mod store;

pub mod repair;

#[cfg(feature = "export")]
pub mod export;

#[cfg(feature = "testing")]
pub mod testing;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod bounded;
pub mod clock;
mod codec;
mod digest;
mod duration;
#[cfg(feature = "encryption")]
pub mod encryption;
mod error;
mod hashing;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod hostile;
mod id_map;
mod ids;
mod key;
mod logs;
mod payload;
mod shape;
mod types;

pub use call::{
    Abort, CheckpointTaken, ChildRun, CloseHook, ContinueAsNew, Direct, Elapsed, Hook, Outbox,
    Signals, Sleep, Step, StepCall, TakeHook, Timeout, WaitFor, Workflow, WorkflowCall, abort,
    abort_keep, checkpoint, continue_as_new, deprecate_patch, hook, outbox, patched, publish,
    signals, sleep, sleep_until, start_child, timeout, undo_with, wait_for,
};
pub use context::{
    Scoped, StepMetadata, WorkflowMetadata, get_step_metadata, get_workflow_metadata, resource,
    scope, try_get_step_metadata, try_get_workflow_metadata,
};
pub use determinism::{Random, now, random, uuid};
pub use diagram::Diagram;
pub use digest::Digest;
#[cfg(feature = "export")]
pub use engine::Export;
pub use engine::{AcceptStart, Acceptance, Accepted, Delivery, Inbox, InboxError, InboxEvent};
pub use engine::{
    Cancel, CatchUp, Debounce, Debounced, Duplicate, DuplicateBody, DuplicateKind, Duplicates,
    Engine, EngineBuilder, EngineError, Fork, ForkPoint, Health, Lineage, Metrics, OnConflict,
    OnFailure, Overlap, ParseCursorError, Paused, Queue, QueueDescription, QueueHandle, Retention,
    RunCursor, RunError, RunHandle, RunStatus, Runs, RunsPage, Schedule, ScheduleDescription,
    ScheduleHandle, SendSignal, Sent, Shutdown, Start, StoreFailure, Terminate, Verification,
    Warning, Watch,
};
pub use engine::{Message, OutboxHandle, RelayOptions, SetAside};
pub use error::{Error, Interrupted, Result, ResultExt};
pub use ids::{MessageId, ParseIdError, RunId, StepId};
pub use key::{Key, KeyPart, KeyParts};
pub use logs::HideReplayed;
pub use payload::{CodecError, PayloadCodec, PayloadContext, PayloadError, PayloadKind};
pub use workflow_macros::{step, workflow};

/// Overrules the determinism check of a workflow for one expression.
///
/// The expression then has to be the same in every replay by other means.
#[macro_export]
macro_rules! nondeterministic {
    ($expression:expr) => {
        $expression
    };
}
