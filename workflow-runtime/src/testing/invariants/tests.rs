//! Each rule is broken once on purpose, and found.

use bytes::Bytes;

use super::*;
use crate::digest::{Digest, InputDigest};
use crate::journal::{
    AttemptFailed, ChildFinished, ChildStarted, End, Outcome, RunCompleted, RunFailed, RunReopened,
    RunStarted, SignalReceived, StaleOutcomeDiscarded, StepCompleted, TimerFired, TimerSet,
};
use crate::store::{EndKind, RunEnd, RunHeader};

fn run() -> RunId {
    RunId::from_bytes([1; 16])
}

fn id(n: u8) -> StepId {
    StepId::from_bytes([n; 16])
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn outcome() -> Outcome {
    Outcome::Ok(Bytes::new())
}

fn started() -> Event {
    Event::RunStarted(RunStarted {
        namespace: "default".into(),
        workflow: "w".into(),
        version: 1,
        key: None,
        generation: 0,
        derivation: 1,
        input_digest: Digest::from_bytes([0; 16]),
        input: Bytes::new(),
        parent: None,
    })
}

fn completed(step: u8, name: &str, attempts: u32) -> Event {
    Event::StepCompleted(StepCompleted {
        step: id(step),
        name: name.into(),
        scope: "".into(),
        source: "".into(),
        input_digest: InputDigest {
            strict: Digest::from_bytes([0; 16]),
            unordered: None,
        },
        input: None,
        attempts,
        called_at: at(0),
        attempt_began_at: at(0),
        outcome: outcome(),
    })
}

fn failed_attempt(step: u8, name: &str, attempt: u32) -> Event {
    Event::AttemptFailed(AttemptFailed {
        step: id(step),
        name: name.into(),
        attempt,
        next_at: at(0),
        failure: outcome(),
    })
}

fn set(timer: u8, second: u64) -> Event {
    Event::TimerSet(TimerSet {
        timer: id(timer),
        scope: "".into(),
        source: "".into(),
        deadline: at(second),
    })
}

fn fired(timer: u8) -> Event {
    Event::TimerFired(TimerFired { timer: id(timer) })
}

fn signal(key: Option<&str>) -> Event {
    Event::SignalReceived(SignalReceived {
        name: "go".into(),
        key: key.map(Into::into),
        sent_at: at(0),
        payload: Bytes::new(),
    })
}

fn child(call: u8) -> Event {
    Event::ChildStarted(ChildStarted {
        call: id(call),
        child: RunId::from_bytes([9; 16]),
        workflow: "child".into(),
        scope: "".into(),
        source: "".into(),
        input_digest: InputDigest {
            strict: Digest::from_bytes([0; 16]),
            unordered: None,
        },
        input: None,
        detached: false,
    })
}

fn child_ended(call: u8) -> Event {
    Event::ChildFinished(ChildFinished {
        call: id(call),
        child: RunId::from_bytes([9; 16]),
        end: End::Completed(Bytes::new()),
    })
}

fn end() -> Event {
    Event::RunCompleted(RunCompleted {
        output: Bytes::new(),
    })
}

fn failed_end() -> Event {
    Event::RunFailed(RunFailed { failure: outcome() })
}

fn reopened(voided: &[u64]) -> Event {
    Event::RunReopened(RunReopened {
        voided: voided.to_vec(),
    })
}

/// A journal of these events, each dated a second after the one before it.
fn journal(events: Vec<Event>) -> Journal {
    let ended = events.last().is_some_and(Event::is_end);
    let header = RunHeader {
        run: run(),
        namespace: "default".into(),
        workflow: "w".into(),
        version: 1,
        key: None,
        input_digest: Digest::from_bytes([0; 16]),
        created_at: at(0),
        origin: None,
        state: match ended {
            false => RunState::Active,
            true => RunState::Ended(RunEnd {
                kind: EndKind::Completed,
                at: at(0),
            }),
        },
    };
    let events = events.into_iter().enumerate();
    let records = events.map(|(seq, event)| Record {
        seq: seq as u64,
        time: at(seq as u64),
        event,
    });
    Journal::new(header, records.collect())
}

/// A journal as it would be after damage.
fn changed(journal: &Journal, change: impl FnOnce(&mut RunHeader, &mut Vec<Record>)) -> Journal {
    let (mut header, mut records) = (journal.header().clone(), journal.records().to_vec());
    change(&mut header, &mut records);
    Journal::new(header, records)
}

/// The rules that a journal breaks.
fn broken(journal: &Journal) -> Vec<Invariant> {
    let found = check_journal(journal);
    found.iter().map(|violation| violation.invariant).collect()
}

fn broken_by(events: Vec<Event>) -> Vec<Invariant> {
    broken(&journal(events))
}

#[test]
fn a_journal_that_keeps_every_rule_passes() {
    let whole = vec![
        started(),
        failed_attempt(1, "a", 1),
        completed(1, "a", 2),
        completed(2, "a", 1),
        set(3, 4),
        fired(3),
        signal(Some("k")),
        signal(Some("other")),
        signal(None),
        signal(None),
        child(4),
        child_ended(4),
        end(),
    ];
    assert_eq!(broken_by(whole), []);
    assert_eq!(broken_by(vec![started(), completed(1, "a", 1)]), []);
}

#[test]
fn a_gap_a_swap_and_a_date_before_the_last_one_are_found() {
    let intact = journal(vec![started(), end()]);
    let gap = changed(&intact, |_, records| records[1].seq = 2);
    assert_eq!(broken(&gap), [Invariant::Order]);
    let early = changed(&intact, |_, records| records[0].time = at(7));
    assert_eq!(broken(&early), [Invariant::Order]);
}

#[test]
fn a_second_outcome_is_found_unless_the_first_was_discarded_or_voided() {
    let twice = vec![started(), completed(1, "a", 1), completed(1, "a", 1), end()];
    assert_eq!(broken_by(twice), [Invariant::OneOutcome]);
    let stale = Event::StaleOutcomeDiscarded(StaleOutcomeDiscarded {
        step: id(1),
        name: "a".into(),
        discarded: 1,
    });
    let discarded = vec![
        started(),
        completed(1, "a", 1),
        stale,
        completed(1, "a", 1),
        end(),
    ];
    assert_eq!(broken_by(discarded), []);
    let voided = |seqs: &[u64]| {
        vec![
            started(),
            completed(1, "a", 3),
            failed_end(),
            reopened(seqs),
            completed(1, "a", 1),
            end(),
        ]
    };
    assert_eq!(broken_by(voided(&[1])), []);
    assert_eq!(broken_by(voided(&[])), [Invariant::OneOutcome]);
}

#[test]
fn one_id_for_two_calls_is_found() {
    let events = vec![
        started(),
        failed_attempt(1, "a", 1),
        completed(1, "b", 2),
        end(),
    ];
    assert_eq!(broken_by(events), [Invariant::OneCallPerId]);
}

#[test]
fn attempts_that_do_not_go_upwards_are_found() {
    let again = vec![
        started(),
        failed_attempt(1, "a", 1),
        failed_attempt(1, "a", 1),
    ];
    assert_eq!(broken_by(again), [Invariant::Attempts]);
    let fewer = vec![started(), failed_attempt(1, "a", 2), completed(1, "a", 1)];
    assert_eq!(broken_by(fewer), [Invariant::Attempts]);
    let after = vec![started(), completed(1, "a", 1), failed_attempt(1, "a", 2)];
    assert_eq!(broken_by(after), [Invariant::Attempts]);
}

#[test]
fn a_timer_that_fires_early_twice_or_unset_is_found() {
    let early = vec![started(), set(1, 99), fired(1), end()];
    assert_eq!(broken_by(early), [Invariant::Timers]);
    let twice = vec![started(), set(1, 2), fired(1), fired(1), end()];
    assert_eq!(broken_by(twice), [Invariant::Timers]);
    assert_eq!(
        broken_by(vec![started(), fired(1), end()]),
        [Invariant::Timers]
    );
}

#[test]
fn a_signal_that_is_received_twice_under_its_key_is_found() {
    let events = vec![started(), signal(Some("k")), signal(Some("k")), end()];
    assert_eq!(broken_by(events), [Invariant::Signals]);
}

#[test]
fn a_child_that_ends_twice_or_was_never_started_is_found() {
    let twice = vec![started(), child(1), child_ended(1), child_ended(1), end()];
    assert_eq!(broken_by(twice), [Invariant::Children]);
    let unknown = vec![started(), child_ended(1), end()];
    assert_eq!(broken_by(unknown), [Invariant::Children]);
}

#[test]
fn what_follows_an_end_and_an_end_that_nobody_knows_of_are_found() {
    let after = vec![started(), end(), completed(1, "a", 1), end()];
    assert_eq!(broken_by(after), [Invariant::EndsOnce, Invariant::EndsOnce]);
    let intact = journal(vec![started(), end()]);
    let unknown = changed(&intact, |header, _| header.state = RunState::Active);
    assert_eq!(broken(&unknown), [Invariant::EndsOnce]);
    let missing = changed(&intact, |_, records| drop(records.pop()));
    assert_eq!(broken(&missing), [Invariant::EndsOnce]);
}

#[test]
fn a_violation_names_the_run_the_records_and_the_rule() {
    let found = check_journal(&journal(vec![started(), set(1, 99), fired(1), end()]));
    let run = run();
    let timer = id(1);
    assert_eq!(
        found[0].to_string(),
        format!(
            "{run}: record 2 fires {timer} at 1970-01-01T00:00:02.000Z, before its deadline \
             1970-01-01T00:01:39.000Z (Timers)"
        )
    );
}
