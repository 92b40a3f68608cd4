//! When schedules tick, in particular when clocks are put forward and back; and their bytes.

use std::time::Duration;

use super::CatchUp;
use super::note::{Definition, ScheduleNote, tick_key, trigger_key};
use super::timing::{Clockwork, GRACE, Timing};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::engine::prepared::EncodedCall;
use crate::ids::RunId;

fn at(text: &str) -> Timestamp {
    let time: jiff::Timestamp = text.parse().expect("a time");
    Timestamp::from_micros(time.as_microsecond().try_into().expect("after 1970"))
}

fn cron(pattern: &str, zone: &str) -> Clockwork {
    let timing = Timing::Cron {
        pattern: pattern.into(),
        zone: zone.into(),
    };
    timing.clockwork(Timestamp::default()).expect("is valid")
}

fn every(interval: Duration, anchor: Timestamp) -> Clockwork {
    let micros = interval.as_micros().try_into().expect("fits");
    let timing = Timing::Every { micros };
    timing.clockwork(anchor).expect("is valid")
}

/// The ticks between two moments, in UTC.
fn ticks(clockwork: &Clockwork, from: &str, to: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut last = at(from);
    while let Some(tick) = clockwork.next_after(last).filter(|tick| *tick <= at(to)) {
        assert!(tick > last);
        found.push(tick.to_string().replace(":00.000Z", "Z"));
        last = tick;
    }
    found
}

#[test]
fn a_daily_tick_keeps_its_local_hour_through_the_year() {
    let berlin = cron("0 2 * * *", "Europe/Berlin");
    assert_eq!(
        ticks(&berlin, "2026-01-10T12:00:00Z", "2026-01-11T12:00:00Z"),
        ["2026-01-11T01:00Z"]
    );
    assert_eq!(
        ticks(&berlin, "2026-07-10T12:00:00Z", "2026-07-11T12:00:00Z"),
        ["2026-07-11T00:00Z"]
    );
}

/// Europe/Berlin, 2026-03-29: 02:00 CET becomes 03:00 CEST, at 01:00 UTC.
#[test]
fn a_fixed_time_in_the_gap_ticks_once_at_the_first_moment_after_it() {
    let berlin = cron("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        ticks(&berlin, "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z"),
        [
            "2026-03-28T01:30Z",
            "2026-03-29T01:00Z",
            "2026-03-30T00:30Z"
        ]
    );
    // America/New_York, 2026-03-08: 02:00 EST becomes 03:00 EDT, at 07:00 UTC.
    let new_york = cron("30 2 * * *", "America/New_York");
    assert_eq!(
        ticks(&new_york, "2026-03-07T00:00:00Z", "2026-03-09T12:00:00Z"),
        [
            "2026-03-07T07:30Z",
            "2026-03-08T07:00Z",
            "2026-03-09T06:30Z"
        ]
    );
}

#[test]
fn several_fixed_times_in_the_gap_are_one_tick() {
    let berlin = cron("0,20,40 2 * * *", "Europe/Berlin");
    assert_eq!(
        ticks(&berlin, "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z"),
        ["2026-03-29T01:00Z"]
    );
    let with_the_hour_after = cron("30 2,3 * * *", "Europe/Berlin");
    assert_eq!(
        ticks(
            &with_the_hour_after,
            "2026-03-29T00:00:00Z",
            "2026-03-29T12:00:00Z"
        ),
        ["2026-03-29T01:00Z", "2026-03-29T01:30Z"]
    );
}

#[test]
fn two_times_of_a_day_stay_two_when_clocks_are_changed() {
    let berlin = cron("30 2,14 * * *", "Europe/Berlin");
    assert_eq!(
        ticks(&berlin, "2026-03-29T00:00:00Z", "2026-03-29T20:00:00Z"),
        ["2026-03-29T01:00Z", "2026-03-29T12:30Z"]
    );
    assert_eq!(
        ticks(&berlin, "2026-10-24T22:00:00Z", "2026-10-25T20:00:00Z"),
        ["2026-10-25T00:30Z", "2026-10-25T13:30Z"]
    );
}

#[test]
fn a_gap_at_midnight_moves_the_tick_and_not_the_day() {
    // America/Santiago, 2026-09-06: 00:00 becomes 01:00, at 04:00 UTC.
    let santiago = cron("0 0 * * *", "America/Santiago");
    assert_eq!(
        ticks(&santiago, "2026-09-05T12:00:00Z", "2026-09-07T12:00:00Z"),
        ["2026-09-06T04:00Z", "2026-09-07T03:00Z"]
    );
}

#[test]
fn a_wildcard_has_no_tick_in_the_gap() {
    for (zone, from, to, expected) in [
        (
            "Europe/Berlin",
            "2026-03-28T23:45:00Z",
            "2026-03-29T02:15:00Z",
            ["2026-03-29T00:30Z", "2026-03-29T01:30Z"],
        ),
        (
            "America/New_York",
            "2026-03-08T05:45:00Z",
            "2026-03-08T08:15:00Z",
            ["2026-03-08T06:30Z", "2026-03-08T07:30Z"],
        ),
    ] {
        assert_eq!(
            ticks(&cron("30 * * * *", zone), from, to),
            expected,
            "{zone}"
        );
    }
}

/// Europe/Berlin, 2026-10-25: 03:00 CEST becomes 02:00 CET, at 01:00 UTC.
#[test]
fn a_fixed_time_that_is_repeated_ticks_once_the_first_time() {
    let berlin = cron("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        ticks(&berlin, "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"),
        ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]
    );
    // America/New_York, 2026-11-01: 02:00 EDT becomes 01:00 EST, at 06:00 UTC.
    let new_york = cron("30 1 * * *", "America/New_York");
    assert_eq!(
        ticks(&new_york, "2026-10-31T12:00:00Z", "2026-11-02T12:00:00Z"),
        ["2026-11-01T05:30Z", "2026-11-02T06:30Z"]
    );
}

#[test]
fn a_fixed_time_that_is_repeated_does_not_tick_again_for_one_who_asks_in_between() {
    let berlin = cron("30 2 * * *", "Europe/Berlin");
    for asked in [
        "2026-10-25T00:45:00Z",
        "2026-10-25T01:10:00Z",
        "2026-10-25T01:40:00Z",
    ] {
        assert_eq!(
            berlin.next_after(at(asked)),
            Some(at("2026-10-26T01:30:00Z")),
            "{asked}"
        );
    }
    let new_york = cron("30 1 * * *", "America/New_York");
    for asked in ["2026-11-01T05:45:00Z", "2026-11-01T06:10:00Z"] {
        assert_eq!(
            new_york.next_after(at(asked)),
            Some(at("2026-11-02T06:30:00Z")),
            "{asked}"
        );
    }
}

#[test]
fn a_wildcard_ticks_in_both_of_the_repeated_hours() {
    assert_eq!(
        ticks(
            &cron("30 * * * *", "Europe/Berlin"),
            "2026-10-24T23:45:00Z",
            "2026-10-25T02:45:00Z"
        ),
        [
            "2026-10-25T00:30Z",
            "2026-10-25T01:30Z",
            "2026-10-25T02:30Z"
        ]
    );
    assert_eq!(
        ticks(
            &cron("30 * * * *", "America/New_York"),
            "2026-11-01T04:45:00Z",
            "2026-11-01T07:45:00Z"
        ),
        [
            "2026-11-01T05:30Z",
            "2026-11-01T06:30Z",
            "2026-11-01T07:30Z"
        ]
    );
}

#[test]
fn six_fields_begin_with_seconds_and_seven_are_refused() {
    let seconds = cron("*/20 * * * * *", "UTC");
    let found = ticks(&seconds, "2026-01-01T00:00:05Z", "2026-01-01T00:01:00Z");
    assert_eq!(found.len(), 3, "{found:?}");
    for (pattern, zone) in [
        ("0 0 0 1 1 * 2027", "UTC"),
        ("0 2 * *", "UTC"),
        ("61 * * * *", "UTC"),
        ("0 2 * * *", "Europe/Bielefeld"),
    ] {
        let timing = Timing::Cron {
            pattern: pattern.into(),
            zone: zone.into(),
        };
        let problem = timing.clockwork(Timestamp::default());
        assert!(problem.is_err(), "{pattern} {zone}");
    }
}

#[test]
fn an_expression_that_fits_no_day_has_no_tick() {
    assert_eq!(
        cron("0 0 30 2 *", "UTC").next_after(at("2026-01-01T00:00:00Z")),
        None
    );
}

#[test]
fn the_zones_come_with_the_library() {
    // Nothing asks the machine: the feature that would is off.
    assert!(
        format!("{:?}", jiff::tz::db()).contains("undled"),
        "{:?}",
        jiff::tz::db()
    );
    for zone in ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC"] {
        cron("0 0 * * *", zone);
    }
}

#[test]
fn intervals_are_counted_from_their_anchor() {
    let anchor = at("2026-01-01T00:00:00Z");
    let hourly = every(Duration::from_secs(3600), anchor);
    assert_eq!(hourly.next_after(anchor.before(GRACE)), Some(anchor));
    assert_eq!(hourly.next_after(anchor), Some(at("2026-01-01T01:00:00Z")));
    assert_eq!(
        hourly.next_after(at("2026-01-01T05:59:59Z")),
        Some(at("2026-01-01T06:00:00Z"))
    );
    let forever = every(Duration::from_secs(u64::MAX / 2_000_000), anchor);
    let next = forever.next_after(anchor).expect("far away");
    assert_eq!(forever.next_after(next), None);
}

#[test]
fn what_is_due_after_a_pause_follows_the_policy() {
    let anchor = at("2026-01-01T00:00:00Z");
    let hourly = every(Duration::from_secs(3600), anchor);
    let now = at("2026-01-01T05:30:00Z");
    let hours = |catch_up| -> Vec<u64> {
        let due = hourly
            .due(anchor, now, None, catch_up)
            .expect("some are due");
        assert_eq!(due.settled, now);
        let hour = |tick: &Timestamp| tick.since(anchor).as_secs() / 3600;
        due.ticks.iter().map(hour).collect()
    };
    assert_eq!(hours(CatchUp::None), [0u64; 0]);
    assert_eq!(hours(CatchUp::Last), [5]);
    assert_eq!(hours(CatchUp::All { at_most: 2 }), [4, 5]);
    assert_eq!(hours(CatchUp::All { at_most: 99 }), [1, 2, 3, 4, 5]);
    assert_eq!(
        hourly.due(at("2026-01-01T05:00:00Z"), now, None, CatchUp::Last),
        None
    );
}

#[test]
fn a_late_tick_is_run_whatever_the_policy() {
    let anchor = at("2026-01-01T00:00:00Z");
    let hourly = every(Duration::from_secs(3600), anchor);
    let tick = at("2026-01-01T05:00:00Z");
    let late = hourly.due(
        anchor,
        tick.after(GRACE - Duration::from_secs(1)),
        None,
        CatchUp::None,
    );
    assert_eq!(late.expect("is due").ticks, [tick]);
    let missed = hourly.due(anchor, tick.after(GRACE), None, CatchUp::None);
    assert!(missed.expect("is settled").ticks.is_empty());
}

#[test]
fn nothing_is_due_behind_the_end() {
    let anchor = at("2026-01-01T00:00:00Z");
    let hourly = every(Duration::from_secs(3600), anchor);
    let end = at("2026-01-01T02:00:00Z");
    let now = at("2026-01-01T05:30:00Z");
    let all = CatchUp::All { at_most: 99 };
    let due = hourly
        .due(anchor, now, Some(end), all)
        .expect("some are due");
    assert_eq!((due.ticks.len(), due.settled), (2, end));
    assert_eq!(hourly.due(end, now, Some(end), all), None);
}

#[test]
fn years_of_missed_seconds_cost_no_more_than_what_is_kept() {
    let seconds = cron("* * * * * *", "Europe/Berlin");
    let now = at("2026-01-01T00:00:00.5Z");
    let due = seconds.due(
        at("2016-01-01T00:00:00Z"),
        now,
        None,
        CatchUp::All { at_most: 3 },
    );
    let ticks = due.expect("some are due").ticks;
    assert_eq!(ticks.len(), 3 + 10, "three missed ones and ten late ones");
    assert!(ticks.is_sorted());
}

fn story() -> ScheduleNote {
    let definition = Definition {
        call: EncodedCall {
            workflow: "report".into(),
            version: 1,
            input_digest: Digest::from_bytes([7; 16]),
            input: vec![0x81, 0xa1, b'x', 1].into(),
        },
        timing: Timing::Cron {
            pattern: "0 2 * * *".into(),
            zone: "Europe/Berlin".into(),
        },
        overlap: super::Overlap::BufferOne,
        catch_up: CatchUp::All { at_most: 9 },
        start_at: None,
        end_at: Some(Timestamp::from_micros(3)),
        queue: None,
    };
    ScheduleNote {
        last_run: Some(RunId::from_bytes([5; 16])),
        skipped: 4,
        ..ScheduleNote::new(definition, Timestamp::from_micros(2))
    }
}

#[test]
fn the_bytes_of_a_schedule_are_frozen() {
    let hex: String = story()
        .encode()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        hex,
        "01067265706f727401070707070707070707070707070707070481a178010009302032202a202a202a0d4575726f\
         70652f4265726c696e020209000103020200000001050505050505050505050505050505050004"
    );
}

#[test]
fn a_queue_stands_behind_the_bytes_of_a_schedule_and_is_read_back() {
    let plain = story();
    let mut queued = plain.clone();
    queued.definition.queue = Some("mail".into());
    let bytes = queued.encode();
    assert_eq!(bytes[..bytes.len() - 5], plain.encode());
    assert_eq!(bytes[bytes.len() - 5..], *b"\x04mail");
    assert_eq!(ScheduleNote::decode(&bytes), Ok(queued));
    assert_eq!(ScheduleNote::decode(&plain.encode()), Ok(plain));
    assert!(ScheduleNote::decode(&bytes[..bytes.len() - 1]).is_err());
}

#[test]
fn the_keys_of_a_schedules_runs_are_frozen() {
    let time = at("2026-01-01T02:00:00.000001Z");
    assert_eq!(
        tick_key("nightly", time),
        "schedule/nightly/2026-01-01T02:00:00.000001Z"
    );
    assert_eq!(
        trigger_key("nightly", time),
        "schedule/nightly/triggered/2026-01-01T02:00:00.000001Z"
    );
}

#[test]
fn declared_as_before_nothing_changes_and_another_timing_ticks_from_now_on() {
    let mut note = story();
    note.cursor = Timestamp::from_micros(50);
    let before = note.clone();
    note.redeclare(before.definition.clone(), Timestamp::from_micros(100));
    assert_eq!(note, before);
    let mut other = before.definition.clone();
    other.timing = Timing::Every { micros: 7000 };
    note.redeclare(other, Timestamp::from_micros(100));
    assert_eq!(note.cursor, Timestamp::from_micros(100));
    assert_eq!(note.skipped, before.skipped);
}
