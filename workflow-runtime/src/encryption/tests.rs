//! Encrypted payloads on their own: bytes, keys, places.

use proptest::prelude::*;

use super::*;
use crate::ids::{RunId, StepId};
use crate::payload::Place;

const RUN: RunId = RunId::from_bytes([3; 16]);

fn encryption(id: u32, byte: u8) -> Encryption {
    Encryption::new(id, EncryptionKey::from_bytes([byte; 32]))
}

fn here() -> PayloadContext<'static> {
    PayloadContext::new("shop", Place::run_input(RUN))
}

#[test]
fn what_was_encrypted_comes_back_and_is_never_the_same_twice() {
    let encryption = encryption(1, 7);
    for len in [0, 1, 100, 100_000] {
        let plain = vec![5; len];
        let first = encryption.seal(plain.clone(), &here()).expect("encrypts");
        let second = encryption.seal(plain.clone(), &here()).expect("encrypts");
        assert_eq!(first.len(), len + OVERHEAD);
        assert_ne!(first, second);
        assert_eq!(encryption.open(&first, &here()), Ok(plain));
    }
}

fn unhex(golden: &str) -> Vec<u8> {
    (0..golden.len() / 2)
        .map(|at| u8::from_str_radix(&golden[2 * at..2 * at + 2], 16).expect("hex"))
        .collect()
}

/// What format 1 is, byte for byte: the key is 32 times 7, the nonce 0 to 23, for each place a payload.
#[test]
fn format_1_is_written_as_these_bytes() {
    let nonce = std::array::from_fn(|at| at as u8);
    let step = StepId::from_bytes([9; 16]);
    for (place, plain, golden) in [
        (
            Place::run_input(RUN),
            &b"frozen"[..],
            "c10100000102a4fa206d000102030405060708090a0b0c0d0e0f1011121314151617ce65c4ff9f7240f4290725ecdc82785693c063c08fb4",
        ),
        (
            Place::step_outcome(step),
            &b""[..],
            "c10100000102a4fa206d000102030405060708090a0b0c0d0e0f101112131415161767e92d4bcfb2cf13dc15358c456c93fe",
        ),
        (
            Place::guarded_outcome(&[4; 32]),
            &[0xc0; 40][..],
            "c10100000102a4fa206d000102030405060708090a0b0c0d0e0f101112131415161768d76b453adc9b65e507418726226f6c9f16f8d7d437f7b133dd77415a0c5457c3fe4fac35549e303685777c3ac0a155bd38db786cdcfc32",
        ),
    ] {
        let context = PayloadContext::new("shop", place);
        let encryption = encryption(258, 7);
        let sealed = encryption.seal_with(nonce, plain.to_vec(), &context);
        let sealed = sealed.expect("encrypts");
        let hex: String = sealed.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden, "{place:?}");
        // Each of these bytes counts.
        assert_eq!(
            encryption.open(&unhex(golden), &context),
            Ok(plain.to_vec())
        );
        for at in 0..sealed.len() {
            let mut changed = unhex(golden);
            changed[at] ^= 1;
            assert!(encryption.open(&changed, &context).is_err(), "byte {at}");
        }
    }
}

/// Written by the first release that had it. It has to open for ever.
#[test]
fn golden_bytes_of_format_1_open() {
    let bytes = unhex(
        "c10100000102a4fa206d299a7f909ae64e021e89e10da47b88eb3e9433988c7895dab25fde5116185533e703b8c600073e04c9b383280d01",
    );
    assert_eq!(
        encryption(258, 7).open(&bytes, &here()),
        Ok(b"frozen".to_vec())
    );
    assert_eq!(bytes[..6], [ENCRYPTED, FORMAT, 0, 0, 1, 2]);
}

#[test]
fn a_payload_opens_at_its_own_place_only() {
    let encryption = encryption(1, 7);
    let sealed = encryption.seal(b"x".to_vec(), &here()).expect("encrypts");
    let step = StepId::from_bytes([3; 16]); // the same bytes, as another kind
    let elsewhere = [
        ("shop", Place::run_input(RunId::from_bytes([4; 16]))),
        ("shop", Place::run_end(RUN)),
        ("shop", Place::step_input(step)),
        ("shop", Place::NOWHERE),
        ("sho", Place::run_input(RUN)),
        ("", Place::run_input(RUN)),
    ];
    for (namespace, place) in elsewhere {
        let problem = encryption.open(&sealed, &PayloadContext::new(namespace, place));
        let problem = problem.expect_err("another place");
        assert!(problem.contains("key 1"), "{problem}");
        assert!(problem.contains("moved"), "{problem}");
    }
}

#[test]
fn every_changed_bit_is_found() {
    let encryption = encryption(1, 7);
    let sealed = encryption
        .seal(b"four".to_vec(), &here())
        .expect("encrypts");
    for at in 0..sealed.len() * 8 {
        let mut changed = sealed.clone();
        changed[at / 8] ^= 1 << (at % 8);
        assert!(encryption.open(&changed, &here()).is_err(), "bit {at}");
    }
    for len in 0..sealed.len() {
        assert!(encryption.open(&sealed[..len], &here()).is_err(), "{len}");
    }
}

#[test]
fn a_missing_and_a_wrong_key_are_named_by_their_id() {
    let sealed = encryption(9, 7).seal(b"x".to_vec(), &here());
    let sealed = sealed.expect("encrypts");
    let missing = encryption(1, 7).open(&sealed, &here());
    let missing = missing.expect_err("it has no key 9");
    assert!(
        missing.contains("the key 9, which this engine does not have"),
        "{missing}"
    );
    let wrong = encryption(9, 8).open(&sealed, &here());
    let wrong = wrong.expect_err("it is another key");
    assert!(wrong.contains("another key 9"), "{wrong}");
}

#[test]
fn what_is_not_encrypted_is_read_only_where_that_was_said() {
    let plain = [0x93, 1, 2, 3];
    let strict = encryption(1, 7);
    let refused = strict.open(&plain, &here()).expect_err("it is strict");
    assert!(refused.contains("also_reads_unencrypted"), "{refused}");
    let migrating = encryption(1, 7).also_reads_unencrypted();
    assert_eq!(migrating.open(&plain, &here()), Ok(plain.to_vec()));
}

#[test]
fn keys_are_shown_nowhere() {
    let key = EncryptionKey::from_bytes([0xab; 32]);
    let encryption = Encryption::new(1, EncryptionKey::from_bytes([0xab; 32]));
    let shown = format!("{key:?} {encryption:?}");
    assert_eq!(
        shown,
        "EncryptionKey(..) Encryption { writes: 1, reads: [1], unencrypted: Refuse }"
    );
}

#[test]
#[should_panic(expected = "an id names one key")]
fn an_id_is_given_to_one_key() {
    let _ = encryption(1, 7).also_reads(1, EncryptionKey::from_bytes([8; 32]));
}

#[test]
fn two_random_keys_differ() {
    let (one, other) = (EncryptionKey::random(), EncryptionKey::random());
    let (one, other) = (one.expect("random bytes"), other.expect("random bytes"));
    assert_ne!(one.expose(), other.expose());
}

proptest! {
    #[test]
    fn hostile_bytes_are_an_error_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let encryption = encryption(1, 7);
        prop_assert!(encryption.open(&bytes, &here()).is_err());
        let mut headed = vec![ENCRYPTED, FORMAT, 0, 0, 0, 1];
        headed.extend_from_slice(&encryption.keys[&1].mark);
        headed.extend_from_slice(&bytes);
        prop_assert!(encryption.open(&headed, &here()).is_err());
    }
}
