//! Lines: runs that continue each other, and the note that leads to the newest of them.
//!
//! Owns that note's name and bytes. It is the one note that a store reads itself: a letter to a run that went
//! on as a new one goes to the newest run of its line. It belongs to the line's first run and is deleted with it.

use bytes::Bytes;

use super::{EndKind, NoteKey, Origin, RunHeader, RunState};
use crate::ids::RunId;

/// The newest run of a line, as its note says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newest {
    /// The run.
    pub run: RunId,
    /// How many runs of the line came before it.
    pub ordinal: u64,
}

impl Newest {
    /// Names the note of the line that begins with a run.
    pub fn key(first: RunId) -> NoteKey {
        NoteKey::of_run(first, &[b"newest"])
    }

    /// Encodes the note: the run's 16 bytes, then the ordinal in 8, the highest first.
    pub fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(24);
        bytes.extend_from_slice(self.run.as_bytes());
        bytes.extend_from_slice(&self.ordinal.to_be_bytes());
        bytes.into()
    }

    /// Decodes the note; `None` if it is not well-formed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (run, ordinal) = bytes.split_first_chunk()?;
        Some(Self {
            run: RunId::from_bytes(*run),
            ordinal: u64::from_be_bytes(ordinal.try_into().ok()?),
        })
    }
}

impl RunHeader {
    /// Returns the first run of the line that this one is part of; a run that continues none is its own.
    pub fn first_of_line(&self) -> RunId {
        match self.origin {
            Some(Origin::Continued(first)) => first,
            _ => self.run,
        }
    }

    /// Says whether the run was forked from another one. It is nobody's child then, whatever its first record says, which it
    /// shares.
    pub fn is_fork(&self) -> bool {
        matches!(self.origin, Some(Origin::Forked(_)))
    }

    /// Says whether the run went on as a new one.
    pub fn went_on(&self) -> bool {
        matches!(&self.state, RunState::Ended(end) if end.kind == EndKind::Continued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_the_newest_run_are_frozen() {
        let newest = Newest {
            run: RunId::from_bytes([0xab; 16]),
            ordinal: 0x0102,
        };
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let bytes = newest.encode();
        assert_eq!(hex(&bytes), format!("{}0000000000000102", "ab".repeat(16)));
        assert_eq!(Newest::decode(&bytes), Some(newest));
        for len in 0..bytes.len() {
            assert_eq!(Newest::decode(&bytes[..len]), None, "cut at {len}");
        }
        let key = Newest::key(RunId::from_bytes([7; 16]));
        assert_eq!(
            hex(key.as_bytes()),
            format!("00{}0001{}0001", "07".repeat(16), hex(b"newest"))
        );
    }
}
