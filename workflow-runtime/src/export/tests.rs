//! Every kind of record, with any payload, through both forms and back.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;
use crate::digest::{Digest, InputDigest};
use crate::error::Interrupted;
use crate::ids::StepId;
use crate::journal::*;

const RUN: RunId = RunId::from_bytes([7; 16]);

fn step(n: u8) -> StepId {
    StepId::from_bytes([n; 16])
}

fn run(n: u8) -> RunId {
    RunId::from_bytes([n; 16])
}

fn at(n: u64) -> Timestamp {
    Timestamp::from_micros(n)
}

fn digest(unordered: bool) -> InputDigest {
    InputDigest {
        strict: Digest::from_bytes([1; 16]),
        unordered: unordered.then(|| Digest::from_bytes([2; 16])),
    }
}

/// One record of each kind and of each form that its fields can have, with these payloads in turn.
fn events(payloads: &[Bytes], text: &str) -> Vec<Event> {
    let mut payloads = payloads.iter().cycle().cloned();
    let mut payload = || payloads.next().expect("there is one");
    let mut outcomes = vec![
        Outcome::Ok(payload()),
        Outcome::Err(payload()),
        Outcome::Broken(payload()),
        Outcome::Interrupted(Interrupted::since(2, at(5))),
        Outcome::AlreadyDone(payload()),
    ];
    let ends = vec![
        End::Completed(payload()),
        End::Failed(Outcome::Err(payload())),
        End::Aborted(RunAborted {
            reason: text.into(),
            kept: true,
        }),
        End::Cancelled(RunCancelled {
            reason: text.into(),
            terminated: false,
        }),
        End::Continued(RunContinued {
            first: run(1),
            next: run(2),
            ordinal: 3,
        }),
    ];
    let mut events = vec![Event::RunStarted(RunStarted {
        namespace: text.into(),
        workflow: "checkout".into(),
        version: 3,
        key: Some(text.into()),
        generation: u64::MAX,
        derivation: 1,
        input_digest: Digest::from_bytes([9; 16]),
        input: payload(),
        parent: Some(Parent {
            run: run(3),
            call: step(4),
        }),
    })];
    for (n, outcome) in (0..).zip(outcomes.clone()) {
        events.push(Event::StepCompleted(StepCompleted {
            step: step(n),
            name: text.into(),
            scope: "a0/n:undo".into(),
            source: "src/main.rs:7".into(),
            input_digest: digest(n % 2 == 0),
            input: (n % 2 == 0).then(&mut payload),
            attempts: n.into(),
            called_at: at(0),
            attempt_began_at: at(u64::MAX),
            outcome,
        }));
    }
    events.push(Event::AttemptFailed(AttemptFailed {
        step: step(1),
        name: text.into(),
        attempt: 1,
        next_at: at(1_893_456_000_000_001),
        failure: outcomes.remove(1),
    }));
    events.push(Event::StepIntent(StepIntent {
        step: step(1),
        name: text.into(),
        scope: "".into(),
        source: "s".into(),
        input_digest: digest(true),
        input: Some(payload()),
        attempt: 1,
    }));
    events.push(Event::TimerSet(TimerSet {
        timer: step(1),
        scope: "".into(),
        source: "s".into(),
        deadline: at(7),
    }));
    events.push(Event::TimerFired(TimerFired { timer: step(1) }));
    for key in [None, Some(text.into())] {
        events.push(Event::SignalReceived(SignalReceived {
            name: text.into(),
            key,
            sent_at: at(1),
            payload: payload(),
        }));
    }
    events.push(Event::ChildStarted(ChildStarted {
        call: step(2),
        child: run(4),
        workflow: text.into(),
        scope: "".into(),
        source: "s".into(),
        input_digest: digest(false),
        input: Some(payload()),
        detached: true,
    }));
    for end in &ends {
        events.push(Event::ChildFinished(ChildFinished {
            call: step(2),
            child: run(4),
            end: end.clone(),
        }));
    }
    events.extend(others(text, &mut payload));
    for end in ends {
        events.push(Event::RunClosing(Closing {
            cause: end.clone(),
            undo: vec![UndoStep {
                step: step(1),
                name: text.into(),
                input: Some(payload()),
                completed: true,
            }],
        }));
        events.push(end.into_event());
    }
    events
}

fn others(text: &str, payload: &mut dyn FnMut() -> Bytes) -> Vec<Event> {
    let signals = vec![
        (text.into(), vec![payload(), payload()]),
        ("b".into(), vec![]),
    ];
    let children = vec![CarriedChild {
        call: step(2),
        child: run(4),
        detached: false,
    }];
    vec![
        Event::CancelRequested(CancelRequested {
            reason: text.into(),
            sent_at: at(3),
        }),
        Event::RunRecovered(RunRecovered {
            replayed: 3,
            in_flight: vec![step(1), step(2)],
        }),
        Event::RunReopened(RunReopened { voided: vec![1, 2] }),
        Event::Checkpoint(Checkpoint {
            pass: 2,
            input: payload(),
            now: at(4),
            signals: signals.clone(),
            patches: vec![(text.into(), true)],
            children: children.clone(),
            tokens: vec![text.into()],
        }),
        Event::UndoCarried(UndoCarried {
            since: 1,
            steps: vec![CarriedUndo {
                step: step(1),
                name: text.into(),
                module: "m".into(),
                input: payload(),
                output: Some(payload()),
            }],
            owed: 1,
            before: Some(0),
        }),
        Event::StaleOutcomeDiscarded(StaleOutcomeDiscarded {
            step: step(1),
            name: text.into(),
            discarded: 4,
        }),
        Event::PatchMarker(PatchMarker { name: text.into() }),
        Event::RunForked(RunForked { origin: run(9) }),
        Event::RunSucceeds(RunSucceeds {
            first: run(1),
            ordinal: 1,
            previous: run(1),
            signals,
            children,
            tokens: vec![],
        }),
        Event::MessagePushed(MessagePushed {
            call: step(1),
            outbox: text.into(),
        }),
    ]
}

fn file(payloads: &[Bytes], text: &str) -> JournalFile {
    let events = events(payloads, text);
    let records = (0..).zip(events).map(|(seq, event)| Record {
        seq,
        time: at(1_893_456_000_000_000 + seq),
        event,
    });
    let file = JournalFile::new(RUN, [3; 32], Some(text.to_owned()), records.collect());
    file.expect("is a journal")
}

fn payloads() -> impl Strategy<Value = Vec<Bytes>> {
    let any_bytes = prop::collection::vec(any::<u8>(), 0..30).prop_map(Bytes::from);
    let values = value::strategies::values().prop_map(|value| Bytes::from(value::encode(&value)));
    prop::collection::vec(prop_oneof![1 => any_bytes, 4 => values], 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_record_comes_back_byte_for_byte(payloads in payloads(), text in any::<String>()) {
        let file = file(&payloads, &text);
        let json = file.to_json();
        let from_json = JournalFile::from_json(&json);
        prop_assert_eq!(from_json.as_ref(), Ok(&file));
        let bytes = file.to_binary();
        let from_binary = JournalFile::from_binary(bytes.clone()).expect("reads");
        prop_assert_eq!(&from_binary, &file);
        for (record, again) in file.records.iter().zip(&from_json.expect("reads").records) {
            prop_assert_eq!(record.body(), again.body());
        }
        prop_assert_eq!(from_binary.to_json(), json);
    }

    #[test]
    fn what_was_taken_out_comes_back_as_such(payloads in payloads(), text in any::<String>()) {
        let mut turn = 0;
        let file = file(&payloads, &text).redact(|_, value| {
            turn += 1;
            match turn % 3 {
                0 => Redact::Keep,
                1 => Redact::Blank,
                _ if value.as_str().is_some() => Redact::With("else".to_owned()),
                _ => Redact::Keep,
            }
        });
        let json = file.to_json();
        prop_assert_eq!(&JournalFile::from_json(&json).expect("reads"), &file);
        prop_assert_eq!(&JournalFile::from_binary(file.to_binary()).expect("reads"), &file);
        let all = file.redact_all();
        prop_assert_eq!(&JournalFile::from_json(&all.to_json()).expect("reads"), &all);
    }

    #[test]
    fn damaged_files_are_refused_and_never_panic(
        payloads in payloads(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let file = file(&payloads, "text");
        let mut bytes = file.to_binary();
        let place = at.index(bytes.len());
        if cut {
            bytes.truncate(place);
        } else {
            bytes[place] ^= byte.max(1);
        }
        prop_assert!(JournalFile::from_binary(bytes).is_err());
        let mut text = file.to_json().into_bytes();
        let place = at.index(text.len() - 1);
        if cut {
            text.truncate(place);
        } else {
            text[place] = byte;
        }
        // A space in another place is the same file.
        if let Ok(Ok(read)) = String::from_utf8(text).map(|text| JournalFile::from_json(&text)) {
            prop_assert_eq!(read, file);
        }
    }
}

#[test]
fn the_bytes_of_a_file_are_frozen() {
    let payload = Bytes::from_static(b"\x81\xa4card\xa44111");
    let file = file(&[payload], "t").redact_fields(["card"]);
    let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex()[..32].to_owned();
    assert_eq!(
        hash(file.to_json().as_bytes()),
        "164343dc461f8e0002b72ef1daeea656"
    );
    assert_eq!(hash(&file.to_binary()), "d3cab6acbbd472d05cab040f755220b2");
}

#[test]
fn the_bytes_of_a_coded_file_are_frozen() {
    // As an encrypted payload begins: the key's id is 258.
    let payload = Bytes::from_static(b"\xc1\x01\x00\x00\x01\x02sealed");
    let mut file = file(&[payload], "t");
    file.mark_coded();
    assert_eq!(file.key_ids(), [258]);
    let (json, bytes) = (file.to_json(), file.to_binary());
    assert!(json.starts_with("{\n  \"journal_file\": 2,"), "{json}");
    assert!(json.contains("\n  \"key_ids\": [258],\n"), "{json}");
    assert_eq!(bytes[..9], *b"wfjournl\x02");
    let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex()[..32].to_owned();
    assert_eq!(hash(json.as_bytes()), "a80deb97fee19127009109e80a684662");
    // The other form has another number, and nothing else.
    let mut plain = file.clone();
    plain.coded = false;
    let mut expected = plain.to_binary();
    expected.truncate(expected.len() - 32);
    expected[8] = 2;
    let check = *blake3::hash(&expected).as_bytes();
    expected.extend_from_slice(&check);
    assert_eq!(bytes, expected);
    assert_eq!(JournalFile::from_json(&json).as_ref(), Ok(&file));
    assert_eq!(JournalFile::from_binary(bytes).as_ref(), Ok(&file));
}

#[test]
fn lengths_that_no_memory_has_are_refused() {
    let mut bytes = b"wfjournl\x01".to_vec();
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    let seal = |bytes: &[u8]| [bytes, blake3::hash(bytes).as_bytes()].concat();
    let error = JournalFile::from_binary(seal(&bytes)).expect_err("there is no more");
    assert!(error.to_string().contains("ends within"), "{error}");
    let mut good = file(&[Bytes::from_static(b"\xc0")], "t");
    good.records.truncate(1);
    let bytes = good.to_binary();
    // One record is there, and the preface says that there are more than fit anywhere.
    let at = bytes.len() - 32 - good.records[0].body().len() - 4 - 1;
    let mut forged = bytes[..bytes.len() - 32].to_vec();
    assert_eq!(forged[at], 1);
    let len = u32::from_le_bytes(forged[9..13].try_into().expect("four")) + 8;
    forged[9..13].copy_from_slice(&len.to_le_bytes());
    forged.splice(at..=at, [253, 255, 255, 255, 255, 255, 255, 255, 255]);
    let error = JournalFile::from_binary(seal(&forged)).expect_err("there are no more");
    assert!(
        error.to_string().contains("record 1: it ends within"),
        "{error}"
    );
}
