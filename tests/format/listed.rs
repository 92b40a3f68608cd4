//! The list of records in `docs/journal-format.md` against the fixtures.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The tags in the documentation's table of records.
fn listed() -> Vec<u8> {
    let page = include_str!("../../docs/journal-format.md");
    let (_, records) = page.split_once("### Records").expect("a section");
    let (records, _) = records.split_once("**Outcome**").expect("an end of it");
    records
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
        .collect()
}

/// The tags of all frames in fixtures of whole journals.
fn frozen() -> BTreeSet<u8> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("format/fixtures");
    let mut tags = BTreeSet::new();
    for entry in fs::read_dir(fixtures).expect("reads") {
        let path = entry.expect("reads").path();
        if path.extension().is_none_or(|extension| extension != "hex") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("reads");
        // A comment and the run's id stand before the frames; `closing` and `carried` freeze the fields of their records.
        for frame in text.lines().skip(2) {
            tags.insert(u8::from_str_radix(&frame[2..4], 16).expect("a tag"));
        }
    }
    tags.extend([13, 19]);
    tags
}

#[test]
fn every_listed_record_is_listed_once_in_order_and_has_a_fixture() {
    let listed = listed();
    assert!(listed.is_sorted_by(|a, b| a < b), "{listed:?}");
    assert_eq!(listed, Vec::from_iter(frozen()));
}
