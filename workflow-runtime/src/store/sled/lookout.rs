//! The lookout: whoever waits for sled hears that a write of sled's failed.
//!
//! sled 0.34.7 writes its log on threads of its own. If such a write fails, it keeps the error for all who ask later, but of the two
//! places that have a write done, one (`exit_reservation`: the last writer of a full buffer) wakes nobody: who waited for that
//! write already, waits for ever, whatever the disk does. Every other call that finds the error wakes all who wait. So as long
//! as somebody is inside of sled, a thread looks whether there is an error, and if there is, makes one such call.
//!
//! Owns that thread. It costs nothing while nobody calls sled, and never writes anything: with an error, sled does not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it is looked for an error while somebody is inside of sled: how much later at most a failed write is heard of.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Who is inside of sled, and whether the lookout knows.
#[derive(Debug, Default)]
struct Inside {
    calls: AtomicUsize,
    /// The thread looks by itself; if not, it has to be woken.
    looks: AtomicBool,
    stops: AtomicBool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lookout {
    inside: Arc<Inside>,
    thread: Option<JoinHandle<()>>,
}

/// Somebody is inside of sled for as long as this lives.
#[derive(Debug)]
pub(super) struct Watched<'a>(&'a Inside);

impl Lookout {
    /// Begins to look after a database that was opened with this configuration.
    ///
    /// # Errors
    ///
    /// If there can be no further thread.
    pub(super) fn new(sled: &sled::Db, config: &sled::Config) -> std::io::Result<Self> {
        let inside = Arc::new(Inside::default());
        let (watched, sled, config) = (Arc::clone(&inside), sled.clone(), config.clone());
        let thread = std::thread::Builder::new()
            .name("workflow-lookout".to_owned())
            .spawn(move || {
                let failed = || config.global_error().is_err();
                let wake_all = || drop(sled.flush());
                watched.look(failed, wake_all);
            })?;
        Ok(Self {
            inside,
            thread: Some(thread),
        })
    }

    /// Somebody is about to call sled.
    pub(super) fn watch(&self) -> Watched<'_> {
        self.inside.calls.fetch_add(1, Ordering::SeqCst);
        if !self.inside.looks.load(Ordering::SeqCst)
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
        Watched(&self.inside)
    }
}

impl Inside {
    /// Looks for an error as long as somebody is inside, and rests otherwise.
    fn look(&self, failed: impl Fn() -> bool, wake_all: impl Fn()) {
        while !self.stops.load(Ordering::SeqCst) {
            self.looks.store(true, Ordering::SeqCst);
            if self.calls.load(Ordering::SeqCst) > 0 {
                // Stopping ends it early.
                std::thread::park_timeout(LOOK_EVERY);
                if self.calls.load(Ordering::SeqCst) > 0 && failed() {
                    // Whatever sled does then, its panics are heard of by those who wait.
                    let _ = catch_unwind(AssertUnwindSafe(&wake_all));
                }
                continue;
            }
            self.looks.store(false, Ordering::SeqCst);
            // Whoever came before that did not wake this thread, whoever comes after it does.
            if self.calls.load(Ordering::SeqCst) == 0 && !self.stops.load(Ordering::SeqCst) {
                std::thread::park();
            }
        }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.inside.stops.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has a handle of sled's, which must be gone when this is. Its panics are caught.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    /// Has a thread look, and returns what stops it and what it says when it wakes all.
    fn looking(failed: Arc<AtomicBool>) -> (Lookout, mpsc::Receiver<()>) {
        let inside = Arc::new(Inside::default());
        let (woke, woken) = mpsc::channel();
        let watched = Arc::clone(&inside);
        let thread = std::thread::spawn(move || {
            watched.look(
                || failed.load(Ordering::SeqCst),
                || woke.send(()).expect("somebody listens"),
            );
        });
        let thread = Some(thread);
        (Lookout { inside, thread }, woken)
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn whoever_is_inside_when_a_write_fails_is_woken_until_gone() {
        let failed = Arc::new(AtomicBool::new(false));
        let (lookout, woken) = looking(failed.clone());
        for _ in 0..3 {
            failed.store(false, Ordering::SeqCst);
            std::thread::sleep(LOOK_EVERY / 2); // it rests, or is about to
            let first = lookout.watch();
            let second = lookout.watch();
            assert!(
                woken.recv_timeout(LOOK_EVERY * 3).is_err(),
                "nothing failed"
            );
            failed.store(true, Ordering::SeqCst);
            woken.recv_timeout(LONG).expect("woken");
            drop(first);
            woken.recv_timeout(LONG).expect("woken again: one is left");
            drop(second);
            while woken.recv_timeout(LOOK_EVERY * 3).is_ok() {}
        }
    }

    #[test]
    fn nobody_is_woken_who_is_not_inside_and_the_thread_rests() {
        let failed = Arc::new(AtomicBool::new(true));
        let (lookout, woken) = looking(failed);
        drop(lookout.watch());
        assert!(woken.recv_timeout(LOOK_EVERY * 5).is_err());
        assert!(!lookout.inside.looks.load(Ordering::SeqCst), "it rests");
    }

    #[test]
    fn it_stops_at_once_resting_and_looking() {
        for is_inside in [false, true] {
            let (lookout, _woken) = looking(Arc::default());
            std::thread::sleep(LOOK_EVERY * 2);
            if is_inside {
                std::mem::forget(lookout.watch());
            }
            let began = Instant::now();
            drop(lookout);
            assert!(began.elapsed() < LONG);
        }
    }
}
