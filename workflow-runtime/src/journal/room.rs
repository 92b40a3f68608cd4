//! Room for the frames of a run.
//!
//! Owns where a frame's bytes lie: a run that goes on for long writes its frames one behind the other into a larger
//! piece of memory, because one that is allocated by the thread of a run and freed by that of the store costs both more
//! than the copy. Never looks at a byte.

use bytes::{Bytes, BytesMut};

/// So many frames have memory of their own: most runs that wait for long have no more, and none to spare.
const FEW: usize = 4;

/// The most bytes of one piece.
const MAX_PIECE: usize = 4 * 1024;

/// A longer frame has memory of its own.
const MAX_FRAME: usize = 512;

/// The room that is left for the frames of one run.
#[derive(Default)]
pub(crate) struct Room {
    left: BytesMut,
    /// How many frames were written.
    frames: usize,
}

impl Room {
    /// Says whether a frame of this length is to be put in here, and counts it.
    pub(super) fn takes(&mut self, len: usize) -> bool {
        self.frames += 1;
        self.frames > FEW && len <= MAX_FRAME
    }

    /// Puts a frame of two parts in here.
    pub(super) fn put(&mut self, body: &[u8], link: &[u8]) -> Bytes {
        let len = body.len() + link.len();
        if self.left.capacity() < len {
            // In proportion to what the run has written: as much again.
            let piece = (len * self.frames).min(MAX_PIECE).max(len);
            self.left = BytesMut::with_capacity(piece);
        }
        self.left.extend_from_slice(body);
        self.left.extend_from_slice(link);
        self.left.split().freeze()
    }

    /// Gives back what is left.
    pub(crate) fn give_back(&mut self) {
        self.left = BytesMut::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_in_one_piece_stay_what_they_were() {
        let mut room = Room::default();
        let mut frames = Vec::new();
        for n in 0..200_u8 {
            if n == 100 {
                room.give_back();
            }
            let body = vec![n; 1 + usize::from(n)];
            if room.takes(body.len() + 2) {
                frames.push((n, room.put(&body, b"ab")));
            }
        }
        assert_eq!(frames.len(), 200 - FEW);
        for (n, frame) in frames {
            assert_eq!(frame[..frame.len() - 2], vec![n; 1 + usize::from(n)]);
            assert_eq!(&frame[frame.len() - 2..], b"ab");
        }
    }

    #[test]
    fn a_short_run_and_a_long_frame_take_no_more_than_they_need() {
        let mut room = Room::default();
        for _ in 0..4 {
            assert!(!room.takes(100), "a run that waits has none to spare");
        }
        assert!(room.takes(100) && room.takes(MAX_FRAME));
        assert!(!room.takes(MAX_FRAME + 1));
        room.put(&[0; 100], &[]);
        // Seven were asked for: there is room for as many of this length, less this one.
        assert_eq!(room.left.capacity(), 7 * 100 - 100);
        room.frames = 1_000_000;
        room.give_back();
        room.put(&[0; 100], &[]);
        assert!(room.left.capacity() <= MAX_PIECE);
    }

    #[test]
    fn frames_of_a_long_run_lie_behind_one_another_until_the_room_is_given_back() {
        let mut room = Room::default();
        let taken = (0..FEW + 20).filter(|_| room.takes(100)).count();
        assert_eq!(taken, 20);
        let first = room.put(&[1; 90], &[2; 10]);
        let second = room.put(&[3; 90], &[4; 10]);
        assert_eq!(first.as_ptr().wrapping_add(100), second.as_ptr());
        assert!(room.left.capacity() > 0);
        room.give_back();
        assert_eq!(room.left.capacity(), 0);
    }
}
