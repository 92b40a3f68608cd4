//! Where a call was made, and the refusal to run anywhere else.
//!
//! Owns the claim of a step's id at the moment of the call, and the messages for calls that are made
//! or polled where they would have no journal: outside a run, inside a step, in a spawned task, in
//! another run. It never runs anything.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::Timestamp;
use crate::context::{Ambient, Scope, with_current};
use crate::ids::{CallKind, StepId};
use crate::key::Key;

/// Where the call was made.
pub(super) enum Home {
    Run {
        scope: Arc<Scope>,
        id: StepId,
        /// Which un-keyed call of its name it is; `None` if it has a key.
        occurrence: Option<u64>,
        called_at: Timestamp,
    },
    /// Outside any run.
    Nowhere,
    /// Inside the body of a step of this name.
    InStep(&'static str),
    /// In a run, with a key that it cannot have.
    BadKey(Arc<Scope>, String),
}

impl Home {
    /// Claims an id where the call is made.
    pub(super) fn claim(
        name: &'static str,
        key: Option<Key>,
        site: &'static Location<'static>,
    ) -> Self {
        let scope = match with_current(Ambient::clone) {
            Ambient::Workflow(scope) => scope,
            Ambient::Step(step) => return Self::InStep(step.name),
            Ambient::Outside => return Self::Nowhere,
        };
        match key {
            None => {
                let (id, occurrence) = scope.claim(CallKind::Step, name);
                Self::Run {
                    id,
                    occurrence: Some(occurrence),
                    called_at: scope.core().now(),
                    scope,
                }
            }
            Some(key) => Self::with_key(scope, name, &key, site),
        }
    }

    /// Claims the id of a key.
    pub(super) fn with_key(
        scope: Arc<Scope>,
        name: &'static str,
        key: &Key,
        site: &'static Location<'static>,
    ) -> Self {
        if let Some(problem) = key.problem() {
            return Self::BadKey(scope, format!("step `{name}` at {site}: {problem}"));
        }
        match scope.claim_key(CallKind::Step, name, key.as_str(), site) {
            Ok(id) => Self::Run {
                id,
                occurrence: None,
                called_at: scope.core().now(),
                scope,
            },
            Err(first) => {
                let problem = format!(
                    "step `{name}` has the key {key:?} twice in one scope, first at {first} and \
                     again at {site}: two calls would share one id; give each its own key",
                    key = key.as_str()
                );
                Self::BadKey(scope, problem)
            }
        }
    }
}

/// What is polled, for messages.
#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    Step(&'a str),
    Timer,
    Signal(&'a str),
    Child(&'a str),
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(name) => write!(f, "step `{name}`"),
            Self::Timer => write!(f, "sleep()"),
            Self::Signal(name) => write!(f, "wait_for(\"{name}\")"),
            Self::Child(name) => write!(f, "child workflow `{name}`"),
        }
    }
}

/// Panics unless the workflow that made a call is being polled now.
pub(super) fn assert_at_home(scope: &Scope, what: What<'_>, site: &Location<'_>) {
    let at_home = with_current(
        |ambient| matches!(ambient, Ambient::Workflow(here) if Arc::ptr_eq(here.core(), scope.core())),
    );
    if !at_home {
        refuse_away_from_home(scope, what, site);
    }
}

#[cold]
fn refuse_away_from_home(scope: &Scope, what: What<'_>, site: &Location<'_>) -> ! {
    let run = scope.core().run();
    match with_current(Ambient::clone) {
        Ambient::Workflow(here) => panic!(
            "{what} at {site} belongs to {run} but is polled in {}: a call cannot be moved to \
             another run",
            here.core().run()
        ),
        Ambient::Step(step) => {
            step.misused.store(true, Ordering::Release);
            panic!(
                "{what} at {site} was made in a workflow but is polled inside step `{}`: await it \
                 in the workflow and pass its result to the step",
                step.name
            )
        }
        Ambient::Outside => panic!(
            "{what} at {site} was made in {run} but is polled outside it (in a spawned task or \
             thread?): there it would run without its journal; await it in the workflow itself, \
             `join!` runs several at once"
        ),
    }
}

/// Refuses what only a workflow's code can do, where none is being polled.
#[cold]
pub(super) fn refuse_outside(what: fmt::Arguments<'_>, way_out: &str) -> ! {
    let step = with_current(|ambient| match ambient {
        Ambient::Step(step) => {
            step.misused.store(true, Ordering::Release);
            Some(step.name)
        }
        Ambient::Workflow(_) | Ambient::Outside => None,
    });
    match step {
        Some(step) => {
            panic!("{what} was called inside step `{step}`, not in a workflow: {way_out}")
        }
        None => panic!("{what} was called outside a workflow: {way_out}"),
    }
}

/// Refuses to run a call that was made where there is no journal.
#[cold]
pub(super) fn refuse_homeless(home: &Home, name: &str, site: &Location<'_>) -> ! {
    match home {
        Home::InStep(step) => {
            with_current(|ambient| {
                if let Ambient::Step(step) = ambient {
                    step.misused.store(true, Ordering::Release);
                }
            });
            panic!(
                "step `{name}` was called at {site} inside step `{step}`: a step's outcome is \
                 one record, so steps do not nest; call it from the workflow, or run its bare \
                 body with `.direct()`"
            )
        }
        _ => panic!(
            "step `{name}` was called at {site} outside a workflow run: it would run without \
             its journal; call it from a #[workflow] that an engine started, or run its bare \
             body on purpose with `.direct()`"
        ),
    }
}
