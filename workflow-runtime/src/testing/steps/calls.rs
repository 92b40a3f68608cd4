//! What was asked of steps: every call whose body ran, or what stood in for it.
//!
//! Owns the list as a test reads it, and the assertions over it. A call that was answered by the journal (in a
//! replay) or by its idempotency key runs nothing, and is not in it.

use std::fmt::{Debug, Write as _};
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::SystemTime;

use serde::de::DeserializeOwned;

use super::standing::arguments;
use super::{Control, StepKey, show};
use crate::call::{Step, TypedStep};
use crate::clock::Timestamp;
use crate::engine::tested::{ActKind, PlannedAttempt};
use crate::ids::{RunId, StepId};
use crate::payload::Payloads;

/// How many calls a failure shows.
const SHOWN: usize = 20;

/// A call of a step that ran its body, or what stood in for it.
#[derive(Debug, Clone)]
pub struct Call {
    made: PlannedAttempt,
    pub(super) attempts: Vec<CallAttempt>,
    payloads: Payloads,
}

/// One attempt of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallAttempt {
    /// Its number, from 1.
    pub number: u32,
    /// When it began, by the engine's clock.
    pub began_at: SystemTime,
    /// Whether something stood in for the body: a stub, a failure or a panic that the test asked for.
    pub stubbed: bool,
}

impl CallAttempt {
    pub(super) fn new(attempt: &PlannedAttempt, act: ActKind, at: Timestamp) -> Self {
        Self {
            number: attempt.attempt,
            began_at: at.into(),
            stubbed: act == ActKind::StandIn,
        }
    }
}

impl Call {
    pub(super) fn new(made: PlannedAttempt, first: CallAttempt, payloads: &Payloads) -> Self {
        Self {
            made,
            attempts: vec![first],
            payloads: payloads.clone(),
        }
    }

    /// Returns the step id, as the body sees it.
    pub fn step_id(&self) -> StepId {
        self.made.step
    }

    /// Returns the step's name.
    pub fn step_name(&self) -> &'static str {
        self.made.definition.name
    }

    /// Returns the run that made the call.
    pub fn run_id(&self) -> RunId {
        self.made.run
    }

    /// Returns its attempts in the order in which they began.
    pub fn attempts(&self) -> &[CallAttempt] {
        &self.attempts
    }

    /// Says whether something stood in for the body, in every attempt.
    pub fn is_stubbed(&self) -> bool {
        self.attempts.iter().all(|attempt| attempt.stubbed)
    }

    /// Reads the arguments as a type of the test's choice: nothing, the only one, or a tuple of all.
    ///
    /// # Panics
    ///
    /// If they are not that.
    #[track_caller]
    pub fn input_as<T: DeserializeOwned>(&self) -> T {
        arguments(&self.made, &self.payloads).unwrap_or_else(|problem| {
            panic!(
                "the arguments of {} are not what was asked for: {problem}",
                self.written()
            )
        })
    }

    /// The call as it would be written.
    fn written(&self) -> String {
        let input = self.made.input.as_deref();
        show::call(self.made.definition, input, &self.payloads)
    }

    fn line(&self) -> String {
        let stubbed = match (
            self.is_stubbed(),
            self.attempts.iter().any(|one| one.stubbed),
        ) {
            (true, _) => "stubbed",
            (false, true) => "partly stubbed",
            (false, false) => "for real",
        };
        let attempts = match self.attempts.len() {
            1 => "1 attempt".to_owned(),
            n => format!("{n} attempts"),
        };
        let PlannedAttempt { run, site, .. } = &self.made;
        let place = format!("{}:{}", site.file(), site.line());
        format!(
            "{} at {place}, {stubbed}, {attempts}, {run}",
            self.written()
        )
    }
}

/// The calls of one step, in the order in which they first began. See
/// [`TestEngine::calls`](crate::testing::TestEngine::calls).
pub struct Calls<S> {
    calls: Vec<Call>,
    /// The calls of other steps, for those who look for what was called instead.
    others: Vec<Call>,
    _step: PhantomData<fn() -> S>,
}

impl Control {
    pub(in crate::testing) fn calls<S: Step>(&self) -> Calls<S> {
        let key = StepKey::of(S::DEFINITION);
        let all = self.state().calls.clone();
        let (calls, others) = all
            .into_iter()
            .partition(|call| StepKey::of(call.made.definition) == key);
        Calls {
            calls,
            others,
            _step: PhantomData,
        }
    }

    /// The calls of all steps.
    pub(in crate::testing) fn all_calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }
}

impl<S> Deref for Calls<S> {
    type Target = [Call];

    fn deref(&self) -> &[Call] {
        &self.calls
    }
}

impl<S: TypedStep> Calls<S>
where
    S::Input: DeserializeOwned,
{
    /// Returns what each call was given.
    ///
    /// # Panics
    ///
    /// If an argument cannot be read back as its own type: its `Serialize` and `Deserialize` do not fit.
    #[track_caller]
    pub fn inputs(&self) -> Vec<S::Input> {
        self.calls.iter().map(Call::input_as).collect()
    }

    /// Fails the test unless the step was called with these inputs, in this order, and no others.
    ///
    /// # Panics
    ///
    /// With the calls that were made, if it was not.
    #[track_caller]
    pub fn assert_inputs(&self, expected: impl IntoIterator<Item = S::Input>)
    where
        S::Input: PartialEq + Debug,
    {
        let (expected, found): (Vec<_>, _) = (expected.into_iter().collect(), self.inputs());
        if expected == found {
            return;
        }
        let name = S::DEFINITION.name;
        let at = expected.iter().zip(&found).take_while(|(a, b)| a == b);
        let at = at.count();
        let shown = |input: Option<&S::Input>| match input {
            Some(input) => format!("{input:?}"),
            None => "no call".into(),
        };
        panic!(
            "step `{name}` was called with other inputs\n  call {} was expected with: {}\n  call {} was made with:     {}\n{}",
            at + 1,
            shown(expected.get(at)),
            at + 1,
            shown(found.get(at)),
            self.story()
        );
    }
}

impl<S: Step> Calls<S> {
    /// Fails the test unless the step was called once. Attempts of one call are one call.
    ///
    /// # Panics
    ///
    /// With the calls that were made, if it was not.
    #[track_caller]
    pub fn assert_called_once(&self) -> &Call {
        self.assert_called_times(1);
        &self.calls[0]
    }

    /// Fails the test if the step was called.
    ///
    /// # Panics
    ///
    /// With the calls that were made, if it was.
    #[track_caller]
    pub fn assert_not_called(&self) {
        self.assert_called_times(0);
    }

    /// Fails the test unless the step was called so many times. Attempts of one call are one call.
    ///
    /// # Panics
    ///
    /// With the calls that were made, if it was not.
    #[track_caller]
    pub fn assert_called_times(&self, times: usize) {
        let name = S::DEFINITION.name;
        let found = self.calls.len();
        assert!(
            found == times,
            "step `{name}` was {}; expected: {}\n{}",
            called(found),
            called(times),
            self.story()
        );
    }

    /// What was called, and what else.
    fn story(&self) -> String {
        let mut text = String::new();
        let name = S::DEFINITION.name;
        push_calls(&mut text, &format!("calls of `{name}`"), &self.calls);
        push_calls(&mut text, "calls of other steps", &self.others);
        text.truncate(text.trim_end().len());
        text
    }
}

fn called(times: usize) -> String {
    match times {
        0 => "not called".into(),
        1 => "called once".into(),
        n => format!("called {n} times"),
    }
}

fn push_calls(text: &mut String, title: &str, calls: &[Call]) {
    if calls.is_empty() {
        let _ = writeln!(text, "  {title}: none");
        return;
    }
    let _ = writeln!(text, "  {title}:");
    for (n, call) in calls.iter().enumerate().take(SHOWN) {
        let _ = writeln!(text, "    {}. {}", n + 1, call.line());
    }
    if calls.len() > SHOWN {
        let _ = writeln!(text, "    … and {} more", calls.len() - SHOWN);
    }
}
