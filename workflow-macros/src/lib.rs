//! The `#[workflow]` and `#[step]` attributes of `workflow-runtime`.
//!
//! Use them through that crate, which re-exports both.
//!
//! An attribute becomes code in four moves, one module each, in this order: its options are
//! read (`args`), the function is taken apart (`model`), refused if it cannot be what it is
//! asked to be (`check`), and expanded (`expand`) or replaced by a stub (`fallback`). All
//! mistakes of an item are reported at once (`diagnostics`).

mod args;
mod attributes;
mod check;
mod determinism;
mod diagnostics;
mod duration;
mod entry;
mod expand;
#[cfg(test)]
mod expansions;
mod fallback;
#[cfg(test)]
mod hostile;
mod lifetimes;
mod model;
mod scopes;
mod shape;
mod together;
mod tokens;
mod types;
mod written;

use crate::entry::{expand_step, expand_workflow};

/// Makes a function a step: a side effect whose outcome is journaled.
///
/// ```ignore
/// #[step(max_attempts = 5, backoff = "200ms..30s", timeout = "10s")]
/// async fn charge(#[resource] payments: &Payments, customer: &str, cents: u64) -> Result<Receipt> {
///     payments.charge(customer, cents, get_step_metadata().step_id).await
/// }
/// ```
///
/// Calling `charge(customer, cents)` runs nothing: it makes a `StepCall`, which is a future.
/// Awaited in a workflow, it runs the body, journals the outcome and hands it over; when the
/// run is replayed it hands over the journaled outcome, and the body does not run. So:
///
/// - Arguments are journaled and cloned for every attempt: `Serialize + Clone + Send`. They may
///   be borrowed (`&str`, `&[T]`, `Option<&T>`), but not `&mut`. At most twelve.
/// - What is returned is read back: `Serialize + DeserializeOwned + Send + 'static`, for `T` and
///   `E` of a `Result<T, E>` alike. Whether a step can fail is read from the resolved type, so an
///   alias of `Result` counts as one. `Option<Option<T>>` does not survive the journal and is refused.
/// - A `#[resource]` parameter (`&T` or `Arc<T>`, `T` may be `dyn Trait`) is provided by the
///   engine and is not an argument of the call.
///
/// Beside the function stands a type of the same name, with `charge::NAME`.
///
/// # Options
///
/// | option | meaning |
/// |---|---|
/// | `name = "…"` | what the journal calls it; keeps ids through a rename |
/// | `max_attempts = 5` | how often it is tried, from 1 |
/// | `backoff = "200ms..30s"` | first and longest wait between attempts; `"1s"` waits always as long |
/// | `timeout = "10s"` | how long one attempt may take |
/// | `retry_if = path` | `fn(&E) -> bool`: which errors are worth another attempt |
/// | `key = expr` | names the call by a business key instead of its position; an expression over the arguments by their names, `Into<Key>` |
/// | `undo = refund` | the step that takes this one back if the run fails, aborts or is cancelled: it is given the same arguments, owned, and what this one returned, as an `Option` |
/// | `at_most_once` | after a crash or a timeout it is not run again but returns `Interrupted`; one attempt; the error type is the crate's `Error`, or one that is `From<Interrupted>` |
/// | `intent` | records that it is about to run, so that an edit to a call that was in flight at a crash is seen |
/// | `effect = "read"` | what it does to the world: `read`, `create`, `update`, `payment` or `message`; a classification, which `fresh_for` asks for |
/// | `fresh_for = "30s"` | an outcome that is older when a resumed run reaches it, and of which nothing was made yet, counts no more |
/// | `on_stale = "abort"` | ends the run then; otherwise (`"rerun"`, with `effect = "read"` only) the step runs again under its id |
/// | `audit = "…"` | why what the audit finds about this step is right as it is; shown there |
/// | `durability = "buffered"` | its outcome survives the process, not the power, until a later record is synced; `"synced"` in an engine that buffers |
/// | `blocking` | on a plain `fn` with owned arguments: runs on the blocking pool |
/// | `marker = false` | leaves out the type, for a module of the same name |
/// | `crate = "…"` | the path of workflow-runtime, if it is renamed |
///
/// A duration is a whole number and `ms`, `s`, `m`, `h` or `d`.
///
/// # Other attributes
///
/// Docs, lint levels, `deprecated`, `must_use`, `inline` and `cold` stay on the function, `cfg`
/// goes on everything that is generated. Attributes for functions that are called by their
/// symbol or by a harness (`no_mangle`, `test`) are refused. All others, such as
/// `#[tracing::instrument]`, go on an inner function `__body` that holds the body (so give a
/// span a name of its own).
#[proc_macro_attribute]
pub fn step(
    options: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand_step(options.into(), item.into()).into()
}

/// Makes a function a workflow: code that survives crashes, restarts and deploys.
///
/// ```ignore
/// #[workflow]
/// async fn checkout(order: Order) -> Result<Receipt> {
///     let receipt = charge(&order.customer, order.total).await?;
///     sleep(Duration::from_hours(24)).await;
///     ask_for_review(&order, &receipt).await?;
///     Ok(receipt)
/// }
/// ```
///
/// Calling `checkout(order)` runs nothing: it makes a `WorkflowCall<checkout>`. Give it to
/// `engine.start(..)`, or await it in another workflow, where it is a child run. The type
/// `checkout` beside the function is what `register::<checkout>()` takes; it has
/// `checkout::NAME`, `checkout::VERSION` and `checkout::diagram()`.
///
/// A run is resumed by running the function again from its beginning, with the outcomes of
/// its steps out of the journal. So:
///
/// - Arguments are owned and, like what is returned, `Serialize + DeserializeOwned + Send +
///   'static`. A workflow is not generic.
/// - The body must take the same way every time. Clocks, randomness, environment, files,
///   network, threads, `tokio::spawn`, timers and unbiased `select!` are refused where the
///   macro sees them, with the durable replacement named. `nondeterministic!(…)` overrules it
///   for one expression, `unchecked` for the whole body.
/// - Every `async` block in the body is a scope of its own for step ids, so that an edit in one
///   branch of a `join!` moves no id in another. So is the body of an `async` closure.
///
/// # Options
///
/// | option | meaning |
/// |---|---|
/// | `name = "…"` | what the journal calls it |
/// | `version = 2` | which version new runs begin with, from 1 |
/// | `changes = "tolerant"` | calls that a recorded journal does not know run as inserted steps, and outcomes that nobody asks for are reported; default `"strict"`: such a run is parked |
/// | `key_ttl = "90d"` | how long the key of a run names it after the run has ended; 24 hours otherwise |
/// | `on_failure = "release"` | the key of a run that failed, was cancelled or aborted names a new run; default `"keep"` |
/// | `unchecked` | leaves out the determinism check |
/// | `inline` | a helper that is part of the run that calls it: may borrow and be generic, has a scope of its own |
/// | `marker = false` | calls the type `checkout_workflow`, for a module named `checkout`; leaves it out beside a helper |
/// | `crate = "…"` | the path of workflow-runtime, if it is renamed |
///
/// Other attributes go where those of a [`macro@step`] go.
#[proc_macro_attribute]
pub fn workflow(
    options: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand_workflow(options.into(), item.into()).into()
}
