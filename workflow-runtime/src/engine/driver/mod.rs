//! The driver: one run's future, its journal, and the order between them.
//!
//! Owns the loop that polls a workflow to quiescence, writes what its calls handed in, and delivers
//! outcomes one at a time in journal order: recorded ones first, then live ones as they become
//! durable. Because live and replayed outcomes reach the workflow in the same order and the same
//! way, any concurrency in it comes out the same. It never decides whether a recorded outcome
//! fits (that is `replay`) and never runs a body itself (calls do, while they are polled).

mod appending;
mod closing;
mod continuing;
mod ending;
mod mail;
mod passes;
mod permit;
mod polling;
mod portions;
mod probe;
mod replaying;
mod resting;
mod stale;
mod tolerant;
#[cfg(feature = "testing")]
mod verifying;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::Future;
use std::hint::cold_path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use self::closing::{Ending, WindingDown};
use self::mail::Mailbox;
use self::passes::NextPass;
use self::permit::Permit;
pub(crate) use self::probe::Probed;
use self::resting::Resting;
use self::stale::Staleness;
#[cfg(feature = "testing")]
pub(crate) use self::verifying::{Verified, Verifying};
use super::core::{Delivered, RunCore, Woken};
use super::obstacle::Obstacle;
use super::poison::Marked;
use super::registry::WorkflowFuture;
#[cfg(feature = "testing")]
use super::tested::TellRested;
use super::timers::Deadline;
use super::warnings::Warning;
use super::writer::{Commit, Due, Writer};
use crate::call::CodeChanges;
use crate::clock::{Timestamp, wall_clock};
use crate::context::{Ambient, Scope};
use crate::id_map::IdMap;
use crate::ids::StepId;
use crate::journal::{Draft, End, Parent};
use crate::replay::Delivery;
use crate::store::{Durability, Mail, Parking, StoreError};

/// How long a body that could go on may stay unpolled before it is reported.
const UNPOLLED_AFTER: Duration = Duration::from_secs(1);

/// Why a driver stopped.
#[derive(Debug)]
pub(crate) enum Exit {
    /// The run has ended, durably.
    Ended(End),
    /// The run cannot go on without help.
    Park(Parking),
    /// The store stopped acknowledging.
    StoreFailed(StoreError),
    /// The engine is stopping; the run is left for the next process.
    Left,
    /// The run only waits, and needs no memory until then.
    Asleep(Option<Timestamp>),
    /// Nothing but a replay was wanted, and it came to its end.
    #[cfg(feature = "testing")]
    Verified(Box<Verified>),
}

/// How far the driver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Recorded outcomes are left.
    Replaying,
    /// The record of the recovery is being written; bodies start when it is durable.
    Recovering,
    /// Bodies run.
    Live,
    /// The workflow has returned; its terminal record is being written.
    Ending,
}

/// What a run comes with when a driver takes it up.
pub(crate) struct Inherited {
    /// Recorded outcomes, in order.
    pub(crate) recorded: VecDeque<Delivery>,
    /// Steps that were about to run and have no outcome.
    pub(crate) intents: IdMap<StepId, Delivery>,
    /// Letters that are not in the journal yet.
    pub(crate) mail: Vec<Mail>,
    /// The number that the next letter will have.
    pub(crate) next_letter: u64,
    /// The call that the run is the child of.
    pub(crate) parent: Option<Parent>,
    /// The generation of the key that the run has.
    pub(crate) generation: u64,
    /// What an unclean stop means for it.
    pub(crate) crash: AfterCrash,
}

/// What an unclean stop means for a run.
#[derive(Default)]
pub(crate) struct AfterCrash {
    /// Steps may have been in flight when the last process died.
    pub(super) after_crash: bool,
    /// The process died while it was driven, and it has achieved nothing since.
    pub(super) marked: Option<Box<Marked>>,
}

/// Drives one run until it ends or cannot go on.
pub(crate) struct Driver {
    core: Arc<RunCore>,
    /// What the workflow is polled in: its outermost scope.
    ambient: Ambient,
    /// The waker of the task that drives, as the run's signal knows it.
    task: Option<Waker>,
    /// A delivery woke the workflow: all else that does is in the run's signal.
    woken: bool,
    workflow: Option<WorkflowFuture>,
    writer: Writer,
    stage: Stage,
    /// Recorded outcomes that are left.
    recorded: VecDeque<Delivery>,
    /// Steps that were about to run and have no outcome.
    intents: IdMap<StepId, Delivery>,
    /// What is known of outcomes that are too old.
    staleness: Staleness,
    changes: CodeChanges,
    replayed: u64,
    /// Appends that are not acknowledged yet, in order.
    commits: VecDeque<Commit>,
    /// What is durable and waits for its turn to be delivered.
    durable: VecDeque<(Due, Timestamp)>,
    mailbox: Mailbox,
    /// The call that this run is the child of.
    parent: Option<Box<Parent>>,
    /// The generation of the key that this run has.
    generation: u64,
    /// Room for the records of one append.
    drafts: Vec<Draft>,
    end: Option<End>,
    winding_down: Option<Box<WindingDown>>,
    ending: Option<Box<Ending>>,
    /// What comes after the workflow as it is: it begins anew, or goes on as a new run.
    next_pass: Option<Box<NextPass>>,
    /// How often it began anew, and the record since which this pass goes on.
    pass: (u64, u64),
    resting: Resting,
    /// Steps may have been in flight when the last process died.
    after_crash: bool,
    /// Nothing but a replay is wanted.
    probing: bool,
    /// Nothing but a replay is wanted, and all that it comes to is.
    #[cfg(feature = "testing")]
    verifying: Option<Box<Verifying>>,
    /// The process died while it was driven, and it has achieved nothing since.
    marked: Option<Box<Marked>>,
    permit: Permit,
    started: bool,
    warned_idle: bool,
    warned_long: bool,
    warned_owed: bool,
    /// Something of the journal may be buffered only.
    buffers: bool,
    warned_foreign: bool,
    /// When to look whether a woken body was polled.
    watch: Option<Deadline>,
    span: tracing::Span,
}

/// What the loop does next.
enum Next {
    Again,
    Wait,
    Exit(Exit),
}

impl Driver {
    pub(crate) fn new(
        core: Arc<RunCore>,
        workflow: WorkflowFuture,
        writer: Writer,
        changes: CodeChanges,
        inherited: Inherited,
    ) -> Self {
        let Inherited {
            mut recorded,
            intents,
            mail,
            next_letter,
            parent,
            generation,
            crash,
        } = inherited;
        if seeded!(ReplayOutOfOrder) && recorded.len() > 1 {
            recorded.swap(0, 1);
        }
        let ambient = Ambient::Workflow(Scope::root(core.clone()));
        let buffers = writer.durability == Durability::Buffered;
        let stage = if core.is_replaying() {
            Stage::Replaying
        } else {
            Stage::Live
        };
        if recorded.is_empty() {
            core.stop_repeating();
        }
        core.letters_read(mail.len());
        let identity = core.identity();
        let span = tracing::info_span!(
            "run", run = %identity.run_id, workflow = &*identity.workflow_name
        );
        Self {
            span,
            workflow: Some(workflow),
            task: None,
            woken: false,
            core,
            ambient,
            writer,
            stage,
            recorded,
            intents,
            staleness: Staleness::default(),
            changes,
            replayed: 0,
            commits: VecDeque::new(),
            durable: VecDeque::new(),
            mailbox: Mailbox::new(mail, next_letter),
            parent: parent.map(Box::new),
            generation,
            drafts: Vec::new(),
            end: None,
            winding_down: None,
            ending: None,
            next_pass: None,
            pass: (0, 0),
            resting: Resting::No,
            after_crash: crash.after_crash,
            marked: crash.marked,
            probing: false,
            #[cfg(feature = "testing")]
            verifying: None,
            permit: Permit::Released,
            started: false,
            warned_idle: false,
            warned_long: false,
            warned_owed: false,
            buffers,
            warned_foreign: false,
            watch: None,
        }
    }

    /// Decides what comes next when the workflow waits.
    fn next(&mut self) -> Next {
        if self.end.is_some() {
            cold_path();
            return self.finish();
        }
        if self.core.is_leaving() {
            cold_path();
            return self.close();
        }
        if self.winding_down.is_some() {
            cold_path();
            return self.wind_down();
        }
        if self.reads_owed() {
            cold_path();
            return Next::Wait;
        }
        if self.next_pass.is_some() {
            cold_path();
            return self.begin_next_pass();
        }
        match self.stage {
            Stage::Replaying => self.replay_next(),
            Stage::Recovering if self.commits.is_empty() => {
                // Letters that waited are heard before any body starts.
                if !self.deliver_durable() {
                    self.go_live();
                }
                Next::Again
            }
            Stage::Recovering | Stage::Ending => Next::Wait,
            Stage::Live => self.deliver_next(),
        }
    }

    /// Delivers the next outcome of a live run; recorded ones, that only tolerant replay leaves, first.
    fn deliver_next(&mut self) -> Next {
        if let Some(next) = self.deliver_waiting() {
            return next;
        }
        if self.deliver_durable() {
            return Next::Again;
        }
        match self.journal_mail() {
            Ok(true) => Next::Again,
            Ok(false) => {
                self.note_idleness();
                Next::Wait
            }
            Err(exit) => Next::Exit(exit),
        }
    }

    /// Delivers what is durable and next in line. `false` if nothing is.
    fn deliver_durable(&mut self) -> bool {
        let due = self.durable.pop_front();
        if self.durable.is_empty() {
            self.durable.clear(); // as with commits
        }
        match due {
            Some((Due::Call(id), time)) => {
                self.core.services.counters.executed();
                let woken = self.core.deliver(id, time, Delivered::Durable);
                self.wake(woken);
                true
            }
            Some((Due::Letter(letter), time)) => {
                cold_path();
                self.core.pass_all();
                self.receive(*letter, time);
                true
            }
            None => false,
        }
    }

    /// The workflow's outermost scope.
    fn root(&self) -> &Arc<Scope> {
        match &self.ambient {
            Ambient::Workflow(scope) => scope,
            Ambient::Outside | Ambient::Step(_) => {
                unreachable!("it is lent only while the workflow is polled or dropped")
            }
        }
    }

    /// Wakes whom a delivery was for.
    fn wake(&mut self, woken: Option<Woken>) {
        self.woken |= woken.is_some_and(Woken::wake);
    }

    /// Says whether the workflow wants to be polled, and that it is about to be.
    fn take_woken(&mut self) -> bool {
        let by_others = self.core.signal.take_woken();
        std::mem::take(&mut self.woken) || by_others
    }

    /// Tells the run's signal which task drives it, if that is another one than before.
    fn follow_task(&mut self, task: &Waker) {
        let known = self.task.as_ref();
        if !known.is_some_and(|known| known.will_wake(task)) {
            self.core.signal.set_task(task);
            self.task = Some(task.clone());
        }
    }

    fn park(&self, obstacle: Obstacle) -> Exit {
        Exit::Park(obstacle.into_parking(&self.core.services, self.core.run()))
    }

    fn warn(&self, message: impl Into<Cow<'static, str>>) {
        if self.probing {
            return;
        }
        let identity = self.core.identity();
        self.core.services.warnings.push(Warning {
            run: Some(identity.run_id),
            workflow: identity.workflow_name.clone(),
            message: message.into(),
        });
    }

    /// Reports a run that waits for nothing the engine knows of.
    fn note_idleness(&mut self) {
        if self.workflow.is_some()
            && !self.warned_idle
            && self.commits.is_empty()
            && self.core.waits_on_nothing()
        {
            self.warned_idle = true;
            self.warn(Warning::WAITS_ON_NOTHING);
        }
    }

    /// Names bodies that were woken and have not been polled for a while.
    fn watch_bodies(&mut self, cx: &Context<'_>) {
        if let Some(watch) = &self.watch
            && watch.is_over()
        {
            self.watch = None;
            for call in self.core.take_unpolled(wall_clock().before(UNPOLLED_AFTER)) {
                self.warn(Warning::unpolled(call.name, call.site));
            }
        }
        if self.watch.is_none() && self.core.signal.has_unpolled() {
            let at = self.core.services.clock.now().after(UNPOLLED_AFTER);
            self.watch = Some(self.core.services.timers.wake_at(at, cx.waker().clone()));
        }
    }

    /// The run only waits: it gives up its right to be active, and memory it may not need for days.
    fn rest(&mut self) {
        self.permit = Permit::Released;
        self.commits.shrink_to_fit();
        self.durable.shrink_to_fit();
        self.drafts.shrink_to_fit();
        self.writer.rest();
        self.core.rest();
    }
}

impl Future for Driver {
    type Output = Exit;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Exit> {
        let this = self.get_mut();
        let span = this.span.clone();
        let _entered = span.enter();
        #[cfg(feature = "testing")]
        let _rests = this.core.services.tested.clone().map(TellRested);
        this.follow_task(cx.waker());
        if !this.started && this.core.is_leaving() {
            cold_path();
            return Poll::Ready(this.leave());
        }
        if this
            .permit
            .poll(&this.core.services.active, cx)
            .is_pending()
        {
            return Poll::Pending;
        }
        this.core.signal.begin_driving();
        // Right after a delivery nothing else is looked for: the workflow is polled first.
        let mut looks = true;
        loop {
            if looks && this.is_leaving() {
                cold_path();
                // Until the store answers, nothing may be written under an epoch that may be gone.
                match this.fall_asleep(cx) {
                    Ok(Some(exit)) => return Poll::Ready(exit),
                    Ok(None) if this.is_leaving() => return Poll::Pending,
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(Exit::StoreFailed(error)),
                }
            }
            if std::mem::replace(&mut looks, true)
                && let Err(exit) = this.collect(cx)
            {
                return Poll::Ready(exit);
            }
            // To quiescence: as long as the workflow wakes itself, it is polled again before
            // anything else is delivered.
            if this.take_woken() || !this.started {
                this.started = true;
                this.resting = Resting::No;
                if let Some(exit) = this.poll_workflow() {
                    return Poll::Ready(exit);
                }
                if this.end.is_none() {
                    this.write_outbox(None);
                }
                continue;
            }
            match this.next() {
                Next::Again => looks = !this.woken && !this.core.signal.is_woken(),
                Next::Exit(exit) => return Poll::Ready(exit),
                Next::Wait => {
                    if !this.core.signal.may_rest() {
                        continue;
                    }
                    this.watch_bodies(cx);
                    if this.commits.is_empty() && this.core.bodies() == 0 {
                        if this.stage == Stage::Live && this.marked.is_some() {
                            this.append(None, false, true); // it has come to a wait, and the process lives
                            continue;
                        }
                        this.rest();
                        match this.fall_asleep(cx) {
                            Ok(Some(exit)) => return Poll::Ready(exit),
                            Ok(None) => {}
                            Err(error) => return Poll::Ready(Exit::StoreFailed(error)),
                        }
                        if this.core.signal.has_mail() {
                            continue;
                        }
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.replayed > 0 && !self.probing {
            self.core.services.counters.replayed(self.replayed);
        }
        self.drop_workflow();
        // Kept calls point back to the core.
        drop(self.core.take_undo());
    }
}
