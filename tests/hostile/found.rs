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

/// Found by reading: as much memory as a pointer to the annex claimed was asked for before anybody looked how long its file is.
#[test]
fn a_pointer_that_claims_four_gigabytes_of_a_short_file_gets_none() {
    let mut bytes = 0_u64.to_le_bytes().to_vec(); // the file
    bytes.extend_from_slice(&0_u32.to_le_bytes()); // where in it
    bytes.extend_from_slice(&u32::MAX.to_le_bytes()); // and how long
    bytes.extend_from_slice(&[0; 8 + 100]); // its hash, and all that there is
    feed("annex", hostile::annex, &bytes);
}

/// Found by reading: one more than the most that a count can be was a panic.
#[test]
fn a_count_that_cannot_be_more_is_not_made_more() {
    feed("annex", hostile::annex, &[0xff; 24 + 100]);
}

/// Found by reading: in search of the next record a repair hashed all that each place claims which looks like one. Of a file that was
/// made so, that is the square of its length.
#[test]
fn a_file_in_which_a_long_record_seems_to_begin_everywhere_is_searched_in_time() {
    const LEN: usize = 8 * 1024 * 1024;
    let mut file = vec![0; 24];
    while file.len() < LEN {
        let claimed = ((LEN - file.len()) / 2) as u32;
        file.extend_from_slice(&claimed.to_le_bytes());
        file.extend_from_slice(&[0; 16 + 8]);
        file.extend_from_slice(&[33, 0, b's', 0]);
    }
    let begun = std::time::Instant::now();
    feed("annex", hostile::annex, &file);
    let took = begun.elapsed();
    assert!(took < std::time::Duration::from_secs(120), "{took:?}");
}
