//! Driving runs from a test: wait until a run waits for something, then send it.
//!
//! Owns the waiting, by virtual time and with an end, and the text of a wait that was in vain. It never sends
//! anything itself.

use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use super::engine::{SETTLING, TestEngine, TestEngineBuilder};
use super::waiting_text::{Deep, Expected, InVain, Why};
use crate::call::Workflow;
use crate::engine::core::waits::{Awaited, Wait};
use crate::engine::standing::{Standing, StartedChild};
use crate::engine::{EngineError, RunHandle, tokens};
use crate::ids::RunId;

/// How much virtual time may pass until a run does what a test waits for, unless the test says otherwise.
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);

/// How often all that can go on is let go on before the engine is said never to come to rest. That is a run of
/// thousands of steps in a row.
const RESTLESS: usize = 200;

impl TestEngineBuilder {
    /// Sets how much virtual time may pass until a run does what the test waits for; an hour otherwise.
    pub fn patience(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }
}

/// # Driving runs
///
/// Each of these lets virtual time pass, as far as it has to, until a run waits for something. If the run ends or
/// is parked first, or the [patience](TestEngineBuilder::patience) of the test is at its end, the test fails and is
/// told what the run waits for instead.
impl TestEngine {
    /// Waits until a run waits for a signal.
    ///
    /// ```
    /// use workflow_runtime::testing::TestEngine;
    /// use workflow_runtime::{Result, wait_for, workflow};
    ///
    /// #[workflow]
    /// async fn approval() -> Result<String> {
    ///     wait_for::<String>("approved").await
    /// }
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<()> {
    ///     let engine = TestEngine::builder().register::<approval>().open().await?;
    ///     let run = engine.start(approval()).await?;
    ///     engine.until_waiting_for_signal(&run, "approved").await;
    ///     run.signal("approved", "ada").await?;
    ///     assert_eq!(run.result().await?, "ada");
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    #[track_caller]
    pub fn until_waiting_for_signal<W: Workflow>(
        &self,
        run: &RunHandle<W>,
        name: &str,
    ) -> impl Future<Output = ()> {
        let expected = Expected::Signal(name.into());
        self.until(run, expected, move |wait| match &wait.what {
            Awaited::Signal(signal) if **signal == *name => Some(()),
            _ => None,
        })
    }

    /// Waits until a run waits for what is sent to a hook, and returns the hook's token. Of several hooks, that
    /// is the one whose token is the first in alphabetical order.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    #[track_caller]
    pub fn until_waiting_for_hook<W: Workflow>(
        &self,
        run: &RunHandle<W>,
    ) -> impl Future<Output = String> {
        self.until(run, Expected::Hook, |wait| match &wait.what {
            Awaited::Signal(signal) => tokens::token_of(signal).map(str::to_owned),
            _ => None,
        })
    }

    /// Waits until a run sleeps, in a [`sleep`](crate::sleep) or a [`timeout`](crate::timeout), and returns when the
    /// first of its timers is due. The wait for the next attempt of a step is none.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    #[track_caller]
    pub fn until_sleeping<W: Workflow>(
        &self,
        run: &RunHandle<W>,
    ) -> impl Future<Output = SystemTime> {
        self.until(run, Expected::Timer, |wait| match wait.what {
            Awaited::Timer(due) => due.map(SystemTime::from),
            _ => None,
        })
    }

    /// Waits until a run has a child of a workflow that has not ended, and returns the first of these.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    #[track_caller]
    pub fn child<C: Workflow>(
        &self,
        run: &RunHandle<impl Workflow>,
    ) -> impl Future<Output = RunHandle<C>> {
        let waiting = self.waiting(run, Expected::Child(C::DEFINITION.name));
        async move {
            let found = waiting.until(|seen| {
                let unended = seen.children.iter().find(|child| !child.ended);
                unended.map(|child| child.run)
            });
            self.engine.handle_of(found.await)
        }
    }

    /// Returns the children of a workflow that a run has started by now, in order, those that have ended too.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn children<C: Workflow>(
        &self,
        run: &RunHandle<impl Workflow>,
    ) -> Result<Vec<RunHandle<C>>, EngineError> {
        let children = self
            .engine
            .children_of(run.id(), C::DEFINITION.name)
            .await?;
        let handles = children
            .iter()
            .map(|child| self.engine.handle_of(child.run));
        Ok(handles.collect())
    }

    /// Waits until nothing happens any more before time passes or something is sent. No time passes meanwhile.
    ///
    /// # Panics
    ///
    /// If runs go on and on without waiting for anything.
    #[track_caller]
    pub fn until_idle(&self) -> impl Future<Output = ()> {
        let asked_at = Location::caller();
        async move {
            for _ in 0..RESTLESS {
                let before = self.control().rests();
                let mut rested = pin!(self.control().rested.notified());
                rested.as_mut().enable();
                self.settle().await;
                if self.control().rests() != before {
                    continue;
                }
                if !self.engine.has_blocking_bodies() {
                    return;
                }
                rested.await;
            }
            panic!(
                "the engine does not come to rest: runs go on without waiting for anything (asked at {asked_at})"
            );
        }
    }

    /// Lets all go on that can without time.
    pub(super) async fn settle(&self) {
        for _ in 0..SETTLING {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until `pick` takes one of the things that a run waits for.
    #[track_caller]
    fn until<W: Workflow, T>(
        &self,
        run: &RunHandle<W>,
        expected: Expected,
        pick: impl Fn(&Wait) -> Option<T> + Send,
    ) -> impl Future<Output = T> {
        let waiting = self.waiting(run, expected);
        async move {
            let found = waiting.until(|seen| match &seen.standing {
                Standing::Waits(waits) => waits.iter().find_map(&pick),
                _ => None,
            });
            found.await
        }
    }

    #[track_caller]
    fn waiting<W: Workflow>(&self, run: &RunHandle<W>, expected: Expected) -> Waiting<'_> {
        Waiting {
            engine: self,
            run: run.id(),
            workflow: W::DEFINITION.name,
            expected,
            asked_at: Location::caller(),
        }
    }
}

/// One wait of a test.
struct Waiting<'a> {
    engine: &'a TestEngine,
    run: RunId,
    workflow: &'static str,
    expected: Expected,
    asked_at: &'static Location<'static>,
}

/// What a look at a run has shown.
struct Seen {
    standing: Standing,
    /// Its children, where one is waited for.
    children: Vec<StartedChild>,
}

impl Waiting<'_> {
    /// Waits until `pick` takes something of what is seen.
    async fn until<T>(&self, pick: impl Fn(&Seen) -> Option<T>) -> T {
        let engine = self.engine;
        let until = engine.clock().now().after(engine.patience);
        let (mut woken_with, mut woken_at_last) = (None, false);
        loop {
            // Enlisted before looking, so that nothing in between is missed.
            let mut rested = pin!(engine.control().rested.notified());
            let mut left = pin!(engine.engine.run_left());
            rested.as_mut().enable();
            left.as_mut().enable();
            let seen = match self.look().await {
                Ok(seen) => seen,
                Err(error) => self.fail(&Why::Engine(error)),
            };
            if let Some(found) = pick(&seen) {
                return found;
            }
            let is_over = engine.clock().now() >= until;
            match seen.standing {
                Standing::Ended(end, payloads) => self.fail(&Why::Ended(end, payloads)),
                Standing::Parked(parking, payloads) => self.fail(&Why::Parked(parking, payloads)),
                Standing::Waits(waits) if is_over => {
                    let waits = self.deepen(waits).await;
                    self.fail(&Why::Waits(waits, ended(&seen.children)));
                }
                // Once for what it has on record, as it is looked at then; and at last, to be shown.
                Standing::Asleep(records)
                    if woken_with != Some(records) || (is_over && !woken_at_last) =>
                {
                    (woken_with, woken_at_last) = (Some(records), is_over);
                    if let Err(error) = engine.engine.wake(self.run).await {
                        self.fail(&Why::Engine(error));
                    }
                    engine.settle().await;
                    continue;
                }
                _ if is_over => self.fail(&Why::Waits(Vec::new(), ended(&seen.children))),
                Standing::Waits(_) | Standing::OnItsWay | Standing::Asleep(_) => {}
            }
            let pause = engine.clock().pace(until.since(engine.clock().now()));
            let mut limit = pin!(tokio::time::sleep(pause));
            std::future::poll_fn(|cx| {
                let told = rested.as_mut().poll(cx).is_ready() || left.as_mut().poll(cx).is_ready();
                match told || limit.as_mut().poll(cx).is_ready() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
    }

    async fn look(&self) -> Result<Seen, EngineError> {
        let engine = &self.engine.engine;
        Ok(Seen {
            children: match self.expected {
                Expected::Child(name) => engine.children_of(self.run, name).await?,
                _ => Vec::new(),
            },
            standing: engine.standing(self.run).await?,
        })
    }

    /// Looks at what the children wait for that the run waits for.
    async fn deepen(&self, waits: Vec<Wait>) -> Vec<Deep> {
        let mut deep = Vec::new();
        for wait in waits {
            let of_child = match wait.what {
                Awaited::Child(_, child) => self.waits_of(child).await,
                _ => Vec::new(),
            };
            deep.push(Deep { wait, of_child });
        }
        deep
    }

    async fn waits_of(&self, child: RunId) -> Vec<Wait> {
        let engine = &self.engine.engine;
        if let Ok(Standing::Asleep(_)) = engine.standing(child).await {
            let _ = engine.wake(child).await;
            self.engine.settle().await;
        }
        match engine.standing(child).await {
            Ok(Standing::Waits(waits)) => waits,
            _ => Vec::new(),
        }
    }

    fn fail(&self, why: &Why) -> ! {
        let in_vain = InVain {
            run: self.run,
            workflow: self.workflow,
            expected: &self.expected,
            patience: self.engine.patience,
            now: self.engine.clock().now(),
            asked_at: self.asked_at,
        };
        panic!("{}", in_vain.text(why));
    }
}

/// Children that a test may look for too late.
fn ended(children: &[StartedChild]) -> Vec<RunId> {
    let ended = children.iter().filter(|child| child.ended);
    ended.map(|child| child.run).collect()
}
