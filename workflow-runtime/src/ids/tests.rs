//! Ids: their vectors, which are frozen, and what they never have in common.

use super::*;

#[test]
fn an_id_survives_its_text_form() {
    for bytes in [[0; 16], [255; 16], *RunId::random().as_bytes()] {
        let run = RunId::from_bytes(bytes);
        assert_eq!(run.to_string().parse::<RunId>(), Ok(run));
        let step = StepId::from_bytes(bytes);
        assert_eq!(step.to_string().parse::<StepId>(), Ok(step));
    }
}

#[test]
fn a_text_that_is_no_id_is_refused_with_the_rule() {
    for text in [
        "",
        "run_",
        "step_0",
        "run_zzzzzzzzzzzzzzzzzzzzzzzzzz",
        "run_0000000000000000000000000i",
    ] {
        let error = text.parse::<RunId>().expect_err(text);
        assert!(error.to_string().contains("expected `run_`"), "{error}");
    }
}

#[test]
fn run_ids_without_a_key_are_ordered_by_time() {
    let first = RunId::random();
    let second = RunId::random();
    assert!(first < second);
}

#[test]
fn moving_a_byte_between_fields_changes_the_id() {
    assert_ne!(
        RunId::derive("a", "bc", "d", 0),
        RunId::derive("ab", "c", "d", 0)
    );
}

/// Whatever is gathered before it is hashed, the bytes that are hashed stay the same.
#[test]
fn long_fields_are_hashed_like_short_ones() {
    let lengths = [
        0, 1, 63, 64, 239, 240, 247, 248, 249, 255, 256, 257, 1_000, 5_000,
    ];
    for first in lengths {
        for second in lengths {
            let (a, b) = (vec![1; first], vec![2; second]);
            let mut gathered = Derivation::new(&EFFECT_CONTEXT);
            let mut plain = EFFECT_CONTEXT.hasher();
            for field in [&a, &b, &a] {
                gathered.field(field);
                plain.update(&(field.len() as u64).to_le_bytes());
                plain.update(field);
            }
            let expected = plain.finalize();
            let expected = &expected.as_bytes()[..16];
            assert_eq!(gathered.finish(), expected, "{first} and {second} bytes");
        }
    }
}

#[test]
fn ids_that_are_begun_once_are_those_that_are_derived() {
    let run = RunId::from_bytes([3; 16]);
    for kind in [CallKind::Step, CallKind::Timer, CallKind::Child] {
        // With the longest not all is gathered any more, so that nothing is begun.
        for len in [0, 1, 9, 10, 11, 40, 80, 120, 300] {
            let (scope, name) = ("a".repeat(len), "n".repeat(len / 3 + 1));
            let mut ids = CallIds::new(run, scope.as_bytes(), kind, &name);
            assert_eq!(ids.is_some(), len < 300, "{len} bytes");
            let one_by_one = (0..12).chain([255, 256, 258, 260, 3, 4, 5]);
            for n in one_by_one.chain(u64::MAX - 5..=u64::MAX) {
                let which = Discriminator::Occurrence(n);
                let derived = StepId::derive(run, scope.as_bytes(), kind, &name, which);
                let begun = ids.as_mut().map_or(derived, |ids| ids.id(n));
                assert_eq!(begun, derived, "{len} bytes, call {n}");
            }
        }
    }
}

#[test]
fn the_id_of_a_message_is_frozen_and_no_other_one_s() {
    let step = StepId::from_bytes([7; 16]);
    let id = MessageId::derive(step, "mail", 1);
    assert_eq!(id.to_string(), "msg_45ggnkk16w1jt6na8bzsagwxn9");
    assert_eq!(id.to_string().parse::<MessageId>(), Ok(id));
    assert_ne!(id, MessageId::derive(step, "mail", 0));
    assert_ne!(id, MessageId::derive(step, "sms", 1));
    assert_ne!(id, MessageId::derive(step.for_effect("x"), "mail", 1));
}

#[test]
fn an_effect_has_a_key_of_its_own() {
    let step = StepId::from_bytes([7; 16]);
    assert_ne!(step.for_effect("email"), step);
    assert_ne!(step.for_effect("email"), step.for_effect("sms"));
    assert_eq!(step.for_effect("email"), step.for_effect("email"));
}
