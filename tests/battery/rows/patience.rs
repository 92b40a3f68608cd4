//! How long is waited before something is said to hang.
//!
//! Owns the only measure of that. A second counts once, however long it took: a process that was stopped, or a machine that was
//! busy elsewhere, has waited no longer for it. (Two cases were once said to hang that had been stopped for a minute.)

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// What is counted.
const SECOND: Duration = Duration::from_secs(1);

/// Waits for a future, for so many seconds at most. `None`: it hangs.
pub(super) async fn patiently<T>(seconds: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..seconds {
        if let Ok(value) = tokio::time::timeout(SECOND, &mut future).await {
            return Some(value);
        }
    }
    None
}

/// How far somebody got.
#[derive(Debug, Clone, Default)]
pub(super) struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// Something more is done.
    pub(super) fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for an answer of somebody who goes on, and for so many seconds in which nothing is done. `None`: it hangs, or nobody
    /// will ever answer.
    pub(super) fn wait<T>(&self, seconds: u32, answer: &Receiver<T>) -> Option<T> {
        let (mut seen, mut idle) = (self.0.load(Ordering::Relaxed), 0);
        while idle < seconds {
            match answer.recv_timeout(SECOND) {
                Ok(value) => return Some(value),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.0.load(Ordering::Relaxed);
            idle = if now == seen { idle + 1 } else { 0 };
            seen = now;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_goes_on_is_waited_for_and_who_does_not_is_said_to_hang() {
        let (pulse, (done, answer)) = (Pulse::default(), mpsc::channel());
        let slow = pulse.clone();
        let worker = std::thread::spawn(move || {
            for _ in 0..8 {
                std::thread::sleep(SECOND / 2);
                slow.beat();
            }
            done.send(7).expect("heard");
        });
        assert_eq!(
            pulse.wait(2, &answer),
            Some(7),
            "four seconds, two without a beat"
        );
        worker.join().expect("ends");
        assert_eq!(pulse.wait(2, &answer), None, "nobody is left to answer");
        let (_silent, answer) = mpsc::channel::<u32>();
        assert_eq!(pulse.wait(1, &answer), None, "it hangs");
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_has_its_seconds_and_no_more() {
        let slow = |seconds| tokio::time::sleep(SECOND * seconds);
        assert_eq!(patiently(3, slow(2)).await, Some(()));
        assert_eq!(patiently(2, slow(3)).await, None);
    }
}
