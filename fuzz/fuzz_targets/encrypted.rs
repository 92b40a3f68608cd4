#![no_main]

use libfuzzer_sys::fuzz_target;
use workflow_runtime::encryption::{Encryption, EncryptionKey};
use workflow_runtime::{PayloadCodec, PayloadContext};

fuzz_target!(|bytes: &[u8]| {
    let encryption = Encryption::new(1, EncryptionKey::from_bytes([7; 32]));
    let here = PayloadContext::detached("shop");
    assert!(
        encryption.decode_at(bytes, &here).is_err(),
        "nobody wrote that"
    );
    let sealed = encryption
        .encode_at(bytes.to_vec(), &here)
        .expect("encrypts");
    assert_eq!(encryption.decode_at(&sealed, &here).as_deref(), Ok(bytes));
});
