//! How a test says what its steps do: on the builder, and on an open engine for tests that go in stages.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::standing::{Failing, Stub};
use super::{AsyncAnswer, Call, Calls, Control, Fallible, Rule, Then};
use crate::call::{Step, TypedStep};
use crate::testing::{TestEngine, TestEngineBuilder};

impl Rule {
    fn stub(&mut self, stub: Stub) {
        self.then = Then::Stub(stub);
    }
}

/// # What steps do
///
/// Whatever stands in for a body goes through the same retries, timeouts and journal as the body would. Of
/// `stub`, `stub_async`, `stub_as`, `panic_in` and `run_for_real` of one step the last one counts; failures and delays come
/// before it.
impl TestEngineBuilder {
    /// Has a closure answer in place of a step's body.
    ///
    /// It takes the step's arguments as the journal has them: the only one, or a tuple of all, owned where the
    /// function borrows. It returns what the function returns. Resources of the step are not needed.
    /// [`get_step_metadata`](crate::get_step_metadata) works in it. A stub that panics fails the test.
    ///
    /// ```
    /// use workflow_runtime::testing::TestEngine;
    /// use workflow_runtime::{Result, step, workflow};
    ///
    /// #[step]
    /// async fn charge(customer: &str, cents: u64) -> Result<String> {
    ///     unreachable!("the test has no payment provider")
    /// }
    ///
    /// #[workflow]
    /// async fn checkout(customer: String) -> Result<String> {
    ///     charge(&customer, 500).await
    /// }
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<()> {
    ///     let engine = TestEngine::builder()
    ///         .register::<checkout>()
    ///         .stub::<charge>(|(customer, cents)| Ok(format!("{customer} paid {cents}")))
    ///         .open()
    ///         .await?;
    ///     let run = engine.start(checkout("ada".into())).await?;
    ///     assert_eq!(run.result().await?, "ada paid 500");
    ///     engine.calls::<charge>().assert_inputs([("ada".to_owned(), 500)]);
    ///     Ok(())
    /// }
    /// ```
    pub fn stub<S: TypedStep>(
        self,
        answer: impl Fn(S::Input) -> S::Output + Send + Sync + 'static,
    ) -> Self
    where
        S::Input: DeserializeOwned + Send + 'static,
        S::Output: Send + 'static,
    {
        self.control.rule::<S>(|rule| rule.stub(Stub::new(answer)));
        self
    }

    /// Has an async closure answer in place of a step's body; what it waits for counts into the step's `timeout`.
    pub fn stub_async<S: TypedStep>(
        self,
        answer: impl AsyncAnswer<S::Input, S::Output> + 'static,
    ) -> Self
    where
        S::Input: DeserializeOwned + Send + 'static,
        S::Output: Send + 'static,
    {
        self.control
            .rule::<S>(|rule| rule.stub(Stub::new_async(answer)));
        self
    }

    /// Has a closure answer that takes the arguments as another type than the step's own: one that has fewer
    /// fields, or can be deserialized where the step's type cannot.
    ///
    /// If the arguments are not that, the test fails.
    pub fn stub_as<S: TypedStep, A: DeserializeOwned + Send + 'static>(
        self,
        answer: impl Fn(A) -> S::Output + Send + Sync + 'static,
    ) -> Self
    where
        S::Output: Send + 'static,
    {
        self.control.rule::<S>(|rule| rule.stub(Stub::new(answer)));
        self
    }

    /// Fails the next `times` attempts of a step, whichever calls they belong to; then it goes on with its stub
    /// or its body.
    pub fn fail_times<S: TypedStep>(self, times: u32, error: <S::Output as Fallible>::Error) -> Self
    where
        S::Output: Fallible<Error: Clone + Send + 'static> + Send + 'static,
    {
        self.control.fail_times::<S>(times, error);
        self
    }

    /// Asks a closure for every attempt of a step, by its number from 1, whether it fails and with what.
    pub fn fail_with<S: TypedStep>(
        self,
        error: impl Fn(u32) -> Option<<S::Output as Fallible>::Error> + Send + Sync + 'static,
    ) -> Self
    where
        S::Output: Fallible + Send + 'static,
    {
        self.control.fail_with::<S>(error);
        self
    }

    /// Lets this much virtual time pass in every attempt of a step before anything else; it counts into the
    /// step's `timeout`.
    pub fn delay<S: Step>(self, time: Duration) -> Self {
        self.control.rule::<S>(|rule| rule.delay = time);
        self
    }

    /// Has every attempt of a step panic, as a bug in its body would.
    pub fn panic_in<S: Step>(self, message: &str) -> Self {
        self.control.panic_in::<S>(message);
        self
    }

    /// Fails the test if a step would run that has no stub; [`run_for_real`](Self::run_for_real) makes
    /// exceptions. Steps run for real otherwise.
    pub fn refuse_unstubbed(self) -> Self {
        self.control.refuse_unstubbed();
        self
    }

    /// Has the body of a step run.
    pub fn run_for_real<S: Step>(self) -> Self {
        self.control.rule::<S>(|rule| rule.then = Then::Body);
        self
    }
}

/// # What steps do
///
/// The same as on the builder, for tests that go in stages: what is said here counts for attempts that begin from
/// now on.
impl TestEngine {
    /// Has a closure answer in place of a step's body; see [`TestEngineBuilder::stub`].
    pub fn stub<S: TypedStep>(&self, answer: impl Fn(S::Input) -> S::Output + Send + Sync + 'static)
    where
        S::Input: DeserializeOwned + Send + 'static,
        S::Output: Send + 'static,
    {
        self.control()
            .rule::<S>(|rule| rule.stub(Stub::new(answer)));
    }

    /// Has an async closure answer in place of a step's body; see [`TestEngineBuilder::stub_async`].
    pub fn stub_async<S: TypedStep>(&self, answer: impl AsyncAnswer<S::Input, S::Output> + 'static)
    where
        S::Input: DeserializeOwned + Send + 'static,
        S::Output: Send + 'static,
    {
        self.control()
            .rule::<S>(|rule| rule.stub(Stub::new_async(answer)));
    }

    /// Fails the next `times` attempts of a step; see [`TestEngineBuilder::fail_times`].
    pub fn fail_times<S: TypedStep>(&self, times: u32, error: <S::Output as Fallible>::Error)
    where
        S::Output: Fallible<Error: Clone + Send + 'static> + Send + 'static,
    {
        self.control().fail_times::<S>(times, error);
    }

    /// Asks a closure for every attempt of a step whether it fails; see [`TestEngineBuilder::fail_with`].
    pub fn fail_with<S: TypedStep>(
        &self,
        error: impl Fn(u32) -> Option<<S::Output as Fallible>::Error> + Send + Sync + 'static,
    ) where
        S::Output: Fallible + Send + 'static,
    {
        self.control().fail_with::<S>(error);
    }

    /// Lets this much virtual time pass in every attempt of a step; see [`TestEngineBuilder::delay`].
    pub fn delay<S: Step>(&self, time: Duration) {
        self.control().rule::<S>(|rule| rule.delay = time);
    }

    /// Has every attempt of a step panic; see [`TestEngineBuilder::panic_in`].
    pub fn panic_in<S: Step>(&self, message: &str) {
        self.control().panic_in::<S>(message);
    }

    /// Has the body of a step run, whatever stood in for it.
    pub fn run_for_real<S: Step>(&self) {
        self.control().rule::<S>(|rule| rule.then = Then::Body);
    }

    /// Returns the calls of a step since the engine was opened: those that ran its body, or what stood in for it.
    pub fn calls<S: Step>(&self) -> Calls<S> {
        self.control().calls()
    }

    /// Returns the calls of all steps, in the order in which they first began.
    pub fn all_calls(&self) -> Vec<Call> {
        self.control().all_calls()
    }
}

impl Control {
    fn fail_times<S: TypedStep>(&self, times: u32, error: <S::Output as Fallible>::Error)
    where
        S::Output: Fallible<Error: Clone + Send + 'static> + Send + 'static,
    {
        let failing = Failing::times::<S::Output>(times, error);
        self.rule::<S>(|rule| rule.failing = Some(failing));
    }

    fn fail_with<S: TypedStep>(
        &self,
        error: impl Fn(u32) -> Option<<S::Output as Fallible>::Error> + Send + Sync + 'static,
    ) where
        S::Output: Fallible + Send + 'static,
    {
        let failing = Failing::ask::<S::Output>(error);
        self.rule::<S>(|rule| rule.failing = Some(failing));
    }

    fn panic_in<S: Step>(&self, message: &str) {
        let message = Arc::from(message);
        self.rule::<S>(|rule| rule.then = Then::Panic(message));
    }
}
