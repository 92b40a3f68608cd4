//! Journals with a gap: which sequence numbers the frames have that are left.
//!
//! Owns the arithmetic of journals of which records were forgotten. The first two are always kept (what a run
//! is and what it was left), then those from some number on. Pure: it knows numbers, no frames.

/// Records below this number are never forgotten.
pub(super) const ALWAYS_KEPT: u64 = 2;

/// The places of frames that follow each other from `start` on, but for those that were forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) start: u64,
    /// Records from [`ALWAYS_KEPT`] up to this number were forgotten. 0: none.
    pub(super) kept_from: u64,
}

impl Layout {
    /// Returns how many frames stand before the gap, if there are that many.
    pub(super) fn lead(self) -> usize {
        usize::try_from(ALWAYS_KEPT.saturating_sub(self.start)).expect("a small number")
    }

    /// Returns the number of the first frame behind the gap.
    pub(super) fn behind(self) -> u64 {
        self.start.max(ALWAYS_KEPT).max(self.kept_from)
    }

    /// Returns the number of a frame.
    pub(super) fn seq(self, index: usize) -> u64 {
        match index.checked_sub(self.lead()) {
            None => self.start + index as u64,
            Some(index) => self.behind() + index as u64,
        }
    }

    /// Returns the number behind the last of so many frames.
    pub(super) fn end(self, frames: usize) -> u64 {
        match frames.checked_sub(self.lead()) {
            None | Some(0) => self.start + frames as u64,
            Some(rest) => self.behind() + rest as u64,
        }
    }

    /// Says whether frames `from..until` would have to hold forgotten ones.
    pub(super) fn misses(self, from: u64, until: u64) -> bool {
        from.max(ALWAYS_KEPT) < until.min(self.kept_from)
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn frames_without_a_gap_are_numbered_one_by_one() {
        for start in 0..4 {
            let layout = Layout {
                start,
                kept_from: 0,
            };
            for index in 0..6 {
                assert_eq!(layout.seq(index), start + index as u64);
                assert_eq!(layout.end(index), start + index as u64);
            }
        }
    }

    #[test]
    fn a_gap_is_behind_the_first_two() {
        let at = |start| Layout {
            start,
            kept_from: 9,
        };
        let seqs = |start| (0..4).map(|index| at(start).seq(index)).collect::<Vec<_>>();
        assert_eq!(seqs(0), [0, 1, 9, 10]);
        assert_eq!(seqs(1), [1, 9, 10, 11]);
        assert_eq!(seqs(2), [9, 10, 11, 12]);
        assert_eq!(seqs(12), [12, 13, 14, 15]);
        let ends = |start| (0..4).map(|len| at(start).end(len)).collect::<Vec<_>>();
        assert_eq!(ends(0), [0, 1, 2, 10]);
        assert_eq!(ends(1), [1, 2, 10, 11]);
        assert_eq!(ends(12), [12, 13, 14, 15]);
        assert!(at(0).misses(0, 3) && at(0).misses(8, 100) && at(0).misses(4, 5));
        assert!(!at(0).misses(0, 2) && !at(0).misses(9, 100) && !at(0).misses(1, 1));
    }
}
