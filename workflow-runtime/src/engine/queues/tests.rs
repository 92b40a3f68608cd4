//! Limits as pure functions, the order of entries, and the bytes of notes.

use std::time::Duration;

use super::limits::{Level, Queue, Rate};
use super::note::{
    Entry, Pending, Settings, Slot, Turn, delayed_key, pending_key, settings_key, slot_key,
    turn_key, waiting_key,
};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::engine::notes;
use crate::engine::prepared::EncodedCall;
use crate::ids::RunId;

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

fn rate(count: u32, per: Duration) -> Rate {
    let queue = Queue::named("q").rate(count, per);
    queue.limits.rate.expect("was set")
}

#[test]
fn a_bucket_is_full_at_first_and_refilled_evenly() {
    let ten = rate(10, Duration::from_secs(1));
    assert_eq!(ten.room(Level::default(), NOW), 10);
    let empty = ten.take(Level::default(), NOW, 10);
    assert_eq!(ten.room(empty, NOW), 0);
    assert_eq!(ten.wait(empty, NOW), Duration::from_millis(100));
    let later = |millis| NOW.after(Duration::from_millis(millis));
    assert_eq!(ten.room(empty, later(99)), 0);
    assert_eq!(ten.room(empty, later(100)), 1);
    assert_eq!(ten.room(empty, later(550)), 5);
    assert_eq!(
        ten.room(empty, later(9999)),
        10,
        "no more than the bucket holds"
    );
}

#[test]
fn no_more_begin_in_a_long_time_than_the_rate_allows() {
    let seven = rate(7, Duration::from_millis(30));
    let (mut level, mut begun) = (Level::default(), 0);
    for micros in (0..3_000_000).step_by(777) {
        let now = NOW.after(Duration::from_micros(micros));
        let room = seven.room(level, now);
        level = seven.take(level, now, room);
        begun += room;
    }
    assert!((700..=707).contains(&begun), "{begun}");
}

#[test]
fn a_clock_that_was_set_back_costs_one_bucket_at_most() {
    let ten = rate(10, Duration::from_secs(1));
    let empty = ten.take(Level::default(), NOW.after(Duration::from_secs(3600)), 10);
    assert_eq!(ten.room(empty, NOW), 0);
    assert_eq!(ten.wait(empty, NOW), Duration::from_millis(100));
    let taken = ten.take(empty, NOW, 0);
    assert_eq!(ten.room(taken, NOW.after(Duration::from_secs(1))), 10);
}

fn entry(priority: i32, ready_at: u64) -> Entry {
    Entry {
        run: RunId::from_bytes([3; 16]),
        queue_key: Some("k".into()),
        priority,
        ready_at: Timestamp::from_micros(ready_at),
    }
}

#[test]
fn entries_sort_by_priority_and_then_by_arrival() {
    let order = [
        (i32::MAX, 9),
        (1, 5),
        (1, 6),
        (0, 256),
        (0, 70_000),
        (-1, 0),
        (i32::MIN, 0),
    ];
    let keys: Vec<_> = order
        .iter()
        .map(|(priority, ready_at)| waiting_key("n", "q", &entry(*priority, *ready_at)))
        .collect();
    assert!(keys.is_sorted(), "{keys:?}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_bytes_of_a_queues_notes_are_frozen() {
    let limits = Queue::named("q").concurrency(2).per_key(1).limits;
    let run = RunId::from_bytes([3; 16]);
    let values = [
        hex(&notes::encode(&Settings {
            declared: limits.clone(),
            live: Queue::named("q").rate(9, Duration::from_secs(1)).limits,
            paused: true,
        })),
        hex(&notes::encode(&Turn {
            number: 7,
            level: Level { full_at_nanos: 5 },
        })),
        hex(&notes::encode(&entry(-1, 300))),
        hex(&notes::encode(&Slot {
            run,
            queue_key: None,
            since: Timestamp::from_micros(9),
        })),
        hex(&notes::encode(&Pending {
            run,
            call: EncodedCall {
                workflow: "w".into(),
                version: 1,
                input_digest: Digest::from_bytes([7; 16]),
                input: vec![0x80].into(),
            },
            queue_key: None,
            priority: 1,
            due_at: Timestamp::from_micros(9),
        })),
    ];
    assert_eq!(
        values,
        [
            "010102010100fd0060d71d1400000000000109fc40420f00fd0060d71d1400000001",
            "010705",
            "010303030303030303030303030303030301016b01fb2c01",
            "01030303030303030303030303030303030009",
            "0103030303030303030303030303030303017701070707070707070707070707070707070180000209",
        ]
    );
}

#[test]
fn the_keys_of_a_queues_notes_are_frozen() {
    let entry = entry(-1, 300);
    let keys = [
        settings_key("n", "q"),
        turn_key("n", "q"),
        waiting_key("n", "q", &entry),
        delayed_key("n", "q", &entry),
        slot_key("n", "q", entry.run),
        pending_key("n", "q", "w", "k"),
    ];
    let keys = keys.map(|key| hex(key.as_bytes()));
    assert_eq!(
        keys,
        [
            "506e0001710001",
            "516e0001710001",
            "526e00017100018000ff00ff00ff000100ff00ff00ff00ff00ff00ff012c0001\
             030303030303030303030303030303030001",
            "536e000171000100ff00ff00ff00ff00ff00ff012c0001030303030303030303030303030303030001",
            "546e0001710001030303030303030303030303030303030001",
            "556e00017100017700016b0001",
        ]
    );
}
