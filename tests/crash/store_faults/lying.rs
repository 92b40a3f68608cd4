//! Where the records of an annex lie, read from the book's page on the store's bytes.
//!
//! Owns nothing of the product's code on purpose: it is a second reading of the format. The tests of the store and of the
//! repair damage files with it, and know whom they hit.

use std::ops::Range;

use workflow_runtime::RunId;

/// A record in a file of the annex.
#[derive(Debug, Clone)]
pub(crate) struct Lying {
    pub(crate) at: Range<usize>,
    pub(crate) run: RunId,
    /// What the store calls it.
    pub(crate) place: String,
}

/// Bytes before a record's name: length, hash, archive, length of the name.
const HEAD: usize = 4 + 16 + 8 + 2;

/// Reads a file that is whole.
pub(crate) fn lying(file: &[u8]) -> Vec<Lying> {
    let mut found = Vec::new();
    let mut from = 0;
    while from < file.len() {
        let head = &file[from..from + HEAD];
        let len = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
        let name = usize::from(u16::from_le_bytes([head[28], head[29]]));
        let name = &file[from + HEAD..from + HEAD + name];
        let run = |at: usize| {
            let bytes: [u8; 16] = name[at..at + 16].try_into().expect("an id");
            RunId::from_bytes(bytes)
        };
        let number = u64::from_be_bytes(name[name.len() - 8..].try_into().expect("a number"));
        let (run, place) = match name[0] {
            b's' => (
                run(9),
                format!("the segment of {} at record {number}", run(9)),
            ),
            b'm' => (run(1), format!("letter {number} to {}", run(1))),
            other => panic!("a record of kind {other} at {from}"),
        };
        let at = from..from + 4 + len;
        from = at.end;
        found.push(Lying { at, run, place });
    }
    found
}
