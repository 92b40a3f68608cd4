//! Faults and restarts of the memory store; its contract is checked by the conformance
//! suite.

use std::task::{Context, Poll, Waker};

use super::*;
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::store::{Durability, EndKind, RunEnd, RunState, StoreError};

fn header(n: u8) -> RunHeader {
    RunHeader {
        run: RunId::from_bytes([n; 16]),
        namespace: "default".into(),
        workflow: "w".into(),
        version: 1,
        key: None,
        input_digest: Digest::from_bytes([n; 16]),
        created_at: Timestamp::from_micros(u64::from(n)),
        origin: None,
        state: RunState::Active,
    }
}

fn new_run(n: u8) -> NewRun {
    NewRun {
        header: header(n),
        first: Bytes::from_static(b"first"),
        rest: Vec::new(),
        durability: Durability::Synced,
    }
}

fn append(n: u8, seq: u64, durability: Durability) -> Append {
    Append {
        run: RunId::from_bytes([n; 16]),
        epoch: Epoch::FIRST,
        first_seq: seq,
        frames: Bytes::from_static(b"next").into(),
        end: None,
        taken: 0,
        changes: None,
        durability,
    }
}

/// Polls once: a dead process never wakes anybody.
fn poll_once<T>(mut future: BoxFuture<'_, T>) -> Poll<T> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

fn done<T>(future: BoxFuture<'_, StoreResult<T>>) -> T {
    match poll_once(future) {
        Poll::Ready(Ok(value)) => value,
        Poll::Ready(Err(error)) => panic!("{error}"),
        Poll::Pending => panic!("the call stayed pending"),
    }
}

/// Makes the same five writes every time: a run, three appends, a close.
fn script(store: &MemoryStore) -> usize {
    let mut acknowledged = 0;
    let mut count = |ready: bool| acknowledged += usize::from(ready);
    let ok = |r: Poll<StoreResult<()>>| matches!(r, Poll::Ready(Ok(())));
    count(matches!(
        poll_once(store.create(new_run(1))),
        Poll::Ready(Ok(_))
    ));
    for seq in 1..=3 {
        count(ok(poll_once(store.append(append(
            1,
            seq,
            Durability::Synced,
        )))));
    }
    count(ok(poll_once(store.close())));
    acknowledged
}

#[test]
fn a_crash_at_every_write_keeps_all_that_was_acknowledged() {
    let calm = MemoryStore::new();
    assert_eq!(script(&calm), 5);
    let writes = calm.writes();
    assert_eq!(writes, 5);
    for k in 0..writes {
        for fault in Fault::ALL {
            for surviving in [Surviving::Synced, Surviving::All, Surviving::Random(k)] {
                let store = MemoryStore::with_faults(FaultPlan::at(k, fault));
                let acknowledged = script(&store);
                assert_eq!(acknowledged as u64, k, "{fault:?}");
                let after = store.reopen(surviving);
                let frames = done(after.frames(RunId::from_bytes([1; 16]), 0, 10)).len();
                let certain = usize::try_from(k.min(4)).expect("small");
                let extra = frames - certain;
                match fault {
                    Fault::CrashBefore | Fault::Tear | Fault::FailWrite => assert_eq!(extra, 0),
                    Fault::CrashAfter => assert_eq!(extra, usize::from(k < 4)),
                    Fault::FailSync => assert!(extra <= 1),
                }
                match fault {
                    Fault::FailSync => {}
                    Fault::CrashAfter => assert_eq!(after.stopped_cleanly(), k == 4),
                    _ => assert!(!after.stopped_cleanly(), "{fault:?}"),
                }
            }
        }
    }
}

#[test]
fn after_a_crash_no_call_resolves() {
    let store = MemoryStore::with_faults(FaultPlan::at(1, Fault::CrashAfter));
    done(store.create(new_run(1)));
    assert!(!store.is_crashed());
    assert!(poll_once(store.append(append(1, 1, Durability::Synced))).is_pending());
    assert!(store.is_crashed());
    assert!(poll_once(store.header(RunId::from_bytes([1; 16]))).is_pending());
    assert!(poll_once(store.close()).is_pending());
    assert!(poll_once(Box::pin(store.crashed())).is_ready());
}

#[test]
fn after_an_io_error_every_call_is_stopped_with_the_first_error() {
    for fault in [Fault::FailWrite, Fault::FailSync] {
        let store = MemoryStore::with_faults(FaultPlan::at(1, fault));
        done(store.create(new_run(1)));
        let error = poll_once(store.append(append(1, 1, Durability::Synced)));
        assert!(matches!(error, Poll::Ready(Err(StoreError::Failed { .. }))));
        let later = poll_once(store.create(new_run(2)));
        let Poll::Ready(Err(StoreError::Failed { error: reason })) = later else {
            panic!("{later:?}");
        };
        assert!(reason.contains("injected fault"), "{reason}");
        assert_eq!(store.failure(), Some(reason));
    }
}

#[test]
fn a_power_cut_takes_buffered_writes_and_no_synced_one() {
    let store = MemoryStore::new();
    let run = RunId::from_bytes([1; 16]);
    done(store.create(new_run(1)));
    done(store.append(append(1, 1, Durability::Buffered)));
    done(store.append(append(1, 2, Durability::Synced)));
    for seq in 3..9 {
        done(store.append(append(1, seq, Durability::Buffered)));
    }
    let count = |surviving| done(store.reopen(surviving).frames(run, 0, 100)).len();
    assert_eq!(count(Surviving::Synced), 3);
    assert_eq!(count(Surviving::All), 9);
    let lengths: std::collections::BTreeSet<usize> = (0..100)
        .map(|seed| count(Surviving::Random(seed)))
        .collect();
    assert_eq!(lengths, (3..=9).collect());
}

#[test]
fn held_acknowledgements_come_when_they_are_released() {
    let store = MemoryStore::new();
    done(store.create(new_run(1)));
    store.hold();
    let mut first = store.append(append(1, 1, Durability::Synced));
    let second = store.append(append(1, 2, Durability::Synced));
    let mut context = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    let run = RunId::from_bytes([1; 16]);
    assert!(poll_once(store.claim(run, 0)).is_pending());
    store.release();
    assert!(matches!(
        first.as_mut().poll(&mut context),
        Poll::Ready(Ok(()))
    ));
    done(second);
    assert_eq!(
        done(store.reopen(Surviving::Synced).frames(run, 0, 9)).len(),
        3
    );
}

#[test]
fn a_crash_takes_what_was_held() {
    let store = MemoryStore::new();
    done(store.create(new_run(1)));
    store.hold();
    let first = store.append(append(1, 1, Durability::Synced));
    store.crash();
    assert!(poll_once(first).is_pending());
    let run = RunId::from_bytes([1; 16]);
    assert_eq!(
        done(store.reopen(Surviving::Synced).frames(run, 0, 9)).len(),
        1
    );
    assert_eq!(
        done(store.reopen(Surviving::All).frames(run, 0, 9)).len(),
        2
    );
}

#[test]
fn a_clean_stop_counts_once() {
    let store = MemoryStore::new();
    assert!(store.stopped_cleanly());
    done(store.create(new_run(1)));
    let mut last = append(1, 1, Durability::Synced);
    last.end = Some(RunEnd {
        kind: EndKind::Completed,
        at: Timestamp::from_micros(9),
    });
    done(store.append(last));
    done(store.close());
    let second = store.reopen(Surviving::Synced);
    assert!(second.stopped_cleanly());
    assert!(!second.reopen(Surviving::All).stopped_cleanly());
}
