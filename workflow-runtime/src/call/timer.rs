//! Durable sleep: a deadline that is fixed in the journal before it is waited for.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use super::home::{What, assert_at_home};
use crate::clock::Timestamp;
use crate::context::{Scope, current_scope};
use crate::engine::core::{Delivered, Turn};
use crate::engine::signal::CallWaker;
use crate::engine::timers::Deadline;
use crate::ids::{CallKind, StepId};
use crate::journal::{Draft, Event, TimerFired, TimerSet};
use crate::replay::{Known, WaitingCall};

/// The name that the ids of all timers are derived from.
const TIMER: &str = "sleep";

/// Sleeps for `duration` of wall-clock time, through crashes and restarts.
///
/// The deadline is journaled when the sleep begins; a run that is resumed after it goes on at
/// once, one that is resumed before it sleeps on.
///
/// # Panics
///
/// Panics when polled outside a workflow: use `tokio::time::sleep` in steps and elsewhere.
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep::new(Until::After(duration))
}

/// Sleeps until a moment of the wall clock, through crashes and restarts.
///
/// # Panics
///
/// Panics when polled outside a workflow.
#[track_caller]
pub fn sleep_until(time: SystemTime) -> Sleep {
    Sleep::new(Until::At(time.into()))
}

/// The future of [`sleep`] and [`sleep_until`].
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    until: Until,
    site: &'static Location<'static>,
    /// Where the timer was made; `None` outside a workflow.
    made_in: Option<(Arc<Scope>, StepId)>,
    state: State,
}

#[derive(Clone, Copy)]
enum Until {
    After(Duration),
    At(Timestamp),
}

enum State {
    Made,
    /// Registered; live, the deadline is known and pending.
    Waiting(Option<(Deadline, Arc<CallWaker>)>),
    Done,
}

impl Sleep {
    #[track_caller]
    fn new(until: Until) -> Self {
        Self {
            until,
            site: Location::caller(),
            made_in: current_scope().map(|scope| {
                let (id, _) = scope.claim(CallKind::Timer, TIMER);
                (scope, id)
            }),
            state: State::Made,
        }
    }

    /// Sets the timer, or takes up the one that an earlier process set.
    fn begin(&mut self, scope: &Scope, id: StepId, known: Option<Known>, waker: &Waker) {
        let deadline = match known {
            Some(Known::Timer { deadline }) => deadline,
            Some(Known::Failed(_) | Known::Tried(..) | Known::Child(_)) | None => {
                let deadline = match self.until {
                    Until::After(duration) => scope.core().services.clock.now().after(duration),
                    Until::At(time) => time,
                };
                scope.core().annotate(&Event::TimerSet(TimerSet {
                    timer: id,
                    scope: scope.path().into(),
                    source: format!("{}:{}", self.site.file(), self.site.line()).into(),
                    deadline,
                }));
                deadline
            }
        };
        scope.core().set_due(id, deadline);
        let waker = CallWaker::new(waker);
        let timers = &scope.core().services.timers;
        let due = match seeded!(EarlyTimer) {
            true => {
                let now = scope.core().services.clock.now();
                now.after(deadline.since(now) / 2)
            }
            false => deadline,
        };
        let pending = timers.wake_at(due, Waker::from(waker.clone()));
        self.state = State::Waiting(Some((pending, waker)));
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (scope, id) = self.made_in.clone().unwrap_or_else(|| {
            panic!(
                "sleep() at {} was called outside a workflow: use `tokio::time::sleep` there",
                self.site
            )
        });
        assert_at_home(&scope, What::Timer, self.site);
        let core = scope.core();
        if let State::Made = self.state {
            let view = WaitingCall {
                id,
                kind: CallKind::Timer,
                name: TIMER,
                site: self.site,
                digest: None,
                fresh_for: None,
            };
            core.register(view, cx.waker());
            self.state = State::Waiting(None);
        }
        match core.turn(id, cx.waker()) {
            Turn::Take(Delivered::Recorded(_) | Delivered::Durable) => {
                self.state = State::Done;
                Poll::Ready(())
            }
            Turn::Wait { .. } => Poll::Pending,
            Turn::Run(known) => {
                if let State::Waiting(None) = self.state
                    && core.is_live()
                {
                    self.begin(&scope, id, known, cx.waker());
                }
                if let State::Waiting(Some((deadline, waker))) = &self.state {
                    waker.follow(cx.waker());
                    if !deadline.is_over() {
                        deadline.rearm(&Waker::from(waker.clone()));
                    } else if core.is_live() {
                        let fired = Event::TimerFired(TimerFired { timer: id });
                        core.hand_in(id, Draft::of(&fired));
                    }
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let (State::Waiting(_), Some((scope, id))) = (&self.state, &self.made_in) {
            scope.core().drop_call(*id);
        }
    }
}
