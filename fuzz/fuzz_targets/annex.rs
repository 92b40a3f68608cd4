#![no_main]

use libfuzzer_sys::fuzz_target;
use workflow_runtime::hostile;

/// A record around bytes whose hash is right, which no fuzzer finds: whoever can write to a store can do that.
fn record(bytes: &[u8]) -> Vec<u8> {
    let hash = blake3::derive_key("workflow-runtime 2026-11 store annex", bytes);
    let len = (16 + bytes.len() as u32).to_le_bytes();
    [&len[..], &hash[..16], bytes].concat()
}

fuzz_target!(|bytes: &[u8]| {
    hostile::annex(bytes);
    hostile::annex(&record(bytes));
    // As a file that begins with such a record, behind what points to it.
    if let Some((pointer, rest)) = bytes.split_at_checked(24) {
        hostile::annex(&[pointer, &record(rest)].concat());
    }
});
