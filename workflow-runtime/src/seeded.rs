//! Mistakes on purpose, to see that they are noticed (feature `seeded-bugs`).
//!
//! Owns the switch and the list. Where the engine or a store asks `seeded!(SomeBug)`, it is a constant `false` in every build
//! without the feature, and a release build with the feature does not compile. The switch is one thread's: tests beside
//! each other do not share their mistakes.

/// Says whether a mistake is to be made here.
#[cfg(feature = "seeded-bugs")]
macro_rules! seeded {
    ($bug:ident) => {
        $crate::seeded::is($crate::seeded::Bug::$bug)
    };
}

/// Says whether a mistake is to be made here: never, without the feature `seeded-bugs`.
#[cfg(not(feature = "seeded-bugs"))]
macro_rules! seeded {
    ($bug:ident) => {
        $crate::seeded::never()
    };
}

/// What every question for a mistake is answered without the feature.
#[cfg(not(feature = "seeded-bugs"))]
#[inline(always)]
pub(crate) const fn never() -> bool {
    false
}

#[cfg(all(feature = "seeded-bugs", not(debug_assertions)))]
compile_error!(
    "the feature `seeded-bugs` is for tests of the tests: it has no place in a release build"
);

#[cfg(feature = "seeded-bugs")]
pub(crate) use switch::is;
#[cfg(feature = "seeded-bugs")]
pub use switch::{Bug, Seeded, seed};

#[cfg(feature = "seeded-bugs")]
mod switch {
    use std::cell::Cell;
    use std::marker::PhantomData;

    /// A mistake that can be switched on.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Bug {
        /// The store in memory acknowledges before it has synced.
        SkippedSync,
        /// The store in memory drops the first of several records that are written together.
        JournalGap,
        /// A run that is claimed has lost its last record, and the next one takes its number.
        OutcomeOverwritten,
        /// Some outcomes on record are not seen by a replay, so that their steps run again.
        StepRunAgain,
        /// What a body is given as its id is not the id of its record.
        AnotherIdOutside,
        /// All calls of a name in a scope have one id.
        SharedStepId,
        /// Two outcomes are delivered in the other order.
        ReplayOutOfOrder,
        /// A key that names a run which goes on gives a second one.
        SecondRunPerKey,
        /// Another input under a key gives its run.
        OtherInputTaken,
        /// A key names its run for half the time that was promised.
        KeyExpiredEarly,
        /// A timer fires when half its time is over.
        EarlyTimer,
        /// A signal is acknowledged and not delivered.
        LostSignal,
        /// A signal is delivered twice.
        SignalTwice,
        /// The store in memory does not look at epochs.
        SkippedFencing,
        /// Runs that sleep when the engine is opened are never woken.
        OrphanedRun,
        /// A run whose code panics takes the queues down with it.
        PoisonStopsQueues,
        /// The store in memory takes records behind the end of a run.
        TerminalReopened,
        /// Failed attempts of an earlier process do not count.
        AttemptsForgotten,
        /// The chain of a journal is not checked.
        CorruptionUnnoticed,
        /// The store in memory goes on after an error of the disk.
        AcknowledgedAfterError,
        /// The sweep takes runs that have not ended.
        RetentionRemovesLive,
        /// A listing shows all namespaces.
        NamespaceLeak,
    }

    thread_local! {
        static ON: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// A mistake that is made on this thread until this is dropped.
    #[derive(Debug)]
    #[must_use = "the mistake is not made any more when this is dropped"]
    pub struct Seeded(PhantomData<*const ()>);

    /// Has this thread make a mistake.
    pub fn seed(bug: Bug) -> Seeded {
        ON.set(Some(bug));
        Seeded(PhantomData)
    }

    impl Drop for Seeded {
        fn drop(&mut self) {
            ON.set(None);
        }
    }

    pub(crate) fn is(bug: Bug) -> bool {
        ON.get() == Some(bug)
    }
}
