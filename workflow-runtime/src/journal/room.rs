//! Room for frames.
//!
//! Owns where a frame's bytes lie. A frame that is allocated by the thread of a run and freed by that of the store costs both more
//! than a copy, and the memory of a thousand runs is in no cache: so a thread writes the frames of all its runs one behind the other
//! into one larger piece of memory. A piece is freed with the last of its frames. They were written at about the same time, and a store that keeps
//! frames in memory lets go of them in that order, so no more is kept than is written in the time for which it keeps any. Never looks at a
//! byte.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};

/// So many frames of a run have memory of their own: most runs that wait for long have no more, and keep nothing else in memory.
const FEW: u64 = 4;

/// The bytes of one piece: some hundred frames.
const PIECE: usize = 64 * 1024;

/// A longer frame has memory of its own.
const MAX_FRAME: usize = 512;

thread_local! {
    /// What is left of the thread's piece.
    static LEFT: RefCell<BytesMut> = RefCell::default();
}

/// Says whether the frame of a run with this number and length is to be put in here.
pub(super) fn takes(seq: u64, len: usize) -> bool {
    seq >= FEW && len <= MAX_FRAME
}

/// Puts a frame of two parts in here.
pub(super) fn put(body: &[u8], link: &[u8]) -> Bytes {
    LEFT.with_borrow_mut(|left| {
        let len = body.len() + link.len();
        if left.capacity() < len {
            *left = BytesMut::with_capacity(PIECE.max(len));
        }
        left.extend_from_slice(body);
        left.extend_from_slice(link);
        left.split().freeze()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_in_one_piece_stay_what_they_were() {
        let frames: Vec<_> = (0..2_000_usize)
            .map(|n| put(&vec![n as u8; 1 + n % 400], b"ab"))
            .collect();
        for (n, frame) in frames.iter().enumerate() {
            assert_eq!(frame[..frame.len() - 2], vec![n as u8; 1 + n % 400]);
            assert_eq!(&frame[frame.len() - 2..], b"ab");
        }
    }

    #[test]
    fn a_short_run_and_a_long_frame_take_no_more_than_they_need() {
        for seq in 0..4 {
            assert!(!takes(seq, 100), "a run that waits keeps nothing else");
        }
        assert!(takes(4, 100) && takes(1_000_000, MAX_FRAME));
        assert!(!takes(4, MAX_FRAME + 1));
    }

    #[test]
    fn the_frames_of_a_thread_lie_behind_one_another() {
        let first = put(&[1; 90], &[2; 10]);
        let second = put(&[3; 90], &[4; 10]);
        assert_eq!(first.as_ptr().wrapping_add(100), second.as_ptr());
        LEFT.with_borrow(|left| assert_eq!(left.capacity(), PIECE - 200));
        let elsewhere = std::thread::spawn(|| put(&[5; 90], &[6; 10]));
        let elsewhere = elsewhere.join().expect("it ends");
        assert_ne!(second.as_ptr().wrapping_add(100), elsewhere.as_ptr());
    }
}
