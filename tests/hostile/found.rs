//! What was found, each as a test of its own.

use super::*;

/// Found by reading: bincode asked for as much as a length claimed, up to 1 GiB, whatever the size of the input.
#[test]
fn a_short_record_that_claims_a_gigabyte_gets_no_gigabyte() {
    let claim = 900_000_000_u64.to_le_bytes();
    for tag in 0..64 {
        for before in 0..40 {
            let mut body = vec![tag];
            body.resize(1 + before, 0);
            body.push(253);
            body.extend_from_slice(&claim);
            feed_all(&body);
        }
    }
}

/// Found by reading: a map of headers panics when it is given more than 32,768.
#[test]
fn a_stored_response_of_too_many_headers_is_an_error() {
    let count = 40_000_u16;
    let mut bytes = vec![1, 200]; // format, status
    bytes.push(251);
    bytes.extend_from_slice(&count.to_le_bytes());
    for number in 0..count {
        let name = format!("x-{number}");
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&[1, b'v']);
    }
    bytes.push(0); // no body
    feed("stored response", hostile::stored_response, &bytes);
}
