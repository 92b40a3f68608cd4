//! Duplicates as their note keeps them. The order of fields is frozen.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Duplicate, DuplicateBody, DuplicateKind, Duplicates, KEPT};
use crate::clock::Timestamp;
use crate::engine::notes;

#[derive(Serialize, Deserialize)]
struct DuplicatesNote {
    /// Kind and count; kinds that did not occur are left out.
    counts: Vec<(u8, u64)>,
    recent: Vec<SeenNote>,
}

#[derive(Serialize, Deserialize)]
struct SeenNote {
    at: Timestamp,
    kind: u8,
    body: u8,
    origin: Box<str>,
}

pub(super) fn encode(duplicates: &Duplicates) -> Bytes {
    let counts = DuplicateKind::ALL.map(|kind| (kind as u8, duplicates.count(kind)));
    let recent = duplicates.recent.iter().map(|seen| SeenNote {
        at: seen.at,
        kind: seen.kind as u8,
        body: seen.body as u8,
        origin: seen.origin.clone(),
    });
    notes::encode(&DuplicatesNote {
        counts: counts.into_iter().filter(|(_, count)| *count > 0).collect(),
        recent: recent.collect(),
    })
}

/// Reads a note. Kinds that a newer release wrote are left out.
pub(super) fn decode(bytes: &[u8]) -> Result<Duplicates, String> {
    let note: DuplicatesNote = notes::decode(bytes)?;
    let mut duplicates = Duplicates::default();
    for (kind, count) in note.counts {
        if let Some(known) = duplicates.counts.get_mut(usize::from(kind)) {
            *known = count;
        }
    }
    for seen in note.recent.into_iter().take(KEPT) {
        let Some(kind) = DuplicateKind::ALL.get(usize::from(seen.kind)) else {
            continue;
        };
        duplicates.recent.push_back(Duplicate {
            at: seen.at,
            kind: *kind,
            origin: seen.origin,
            body: match seen.body {
                0 => DuplicateBody::Same,
                1 => DuplicateBody::Other,
                _ => DuplicateBody::Unknown,
            },
        });
    }
    Ok(duplicates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: u64, kind: DuplicateKind, body: DuplicateBody) -> Duplicates {
        let mut seen = Duplicates::default();
        seen.counts[kind as usize] = 1;
        seen.recent.push_back(Duplicate {
            at: Timestamp::from_micros(at),
            kind,
            origin: "api".into(),
            body,
        });
        seen
    }

    #[test]
    fn the_bytes_of_duplicates_are_frozen() {
        let mut duplicates = Duplicates::default();
        duplicates.then(seen(300, DuplicateKind::Start, DuplicateBody::Other));
        duplicates.then(seen(301, DuplicateKind::Signal, DuplicateBody::Same));
        duplicates.then(seen(302, DuplicateKind::Request, DuplicateBody::Unknown));
        let bytes = encode(&duplicates);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0103000101010401\
             03fb2c01000103617069fb2d01010003617069fb2e01040203617069"
        );
        assert_eq!(decode(&bytes), Ok(duplicates));
    }

    #[test]
    fn only_the_newest_are_kept_and_all_are_counted() {
        let mut duplicates = Duplicates::default();
        for at in 0..40 {
            duplicates.then(seen(at, DuplicateKind::Start, DuplicateBody::Same));
        }
        let mut both = duplicates.clone();
        both.then(duplicates.clone());
        for (duplicates, count) in [(&duplicates, 40), (&both, 80)] {
            assert_eq!(duplicates.total(), count);
            assert_eq!(duplicates.count(DuplicateKind::Start), count);
            let times: Vec<_> = duplicates.recent().map(|one| one.at.as_micros()).collect();
            assert_eq!(times, (24..40).collect::<Vec<_>>());
        }
    }
}
