//! The frames of one append.
//!
//! Owns their place in the queue. Nearly every append has one frame: it lies in the queue itself, and the list
//! it came in is freed by the thread that made it, not by the committer.

use bytes::Bytes;

/// Frames in order.
#[derive(Debug)]
pub(super) enum Frames {
    One(Bytes),
    Some(Vec<Bytes>),
}

impl Frames {
    pub(super) fn as_slice(&self) -> &[Bytes] {
        match self {
            Self::One(frame) => std::slice::from_ref(frame),
            Self::Some(frames) => frames,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.as_slice().len()
    }
}

impl From<Vec<Bytes>> for Frames {
    fn from(mut frames: Vec<Bytes>) -> Self {
        match frames.len() {
            1 => Self::One(frames.remove(0)),
            _ => Self::Some(frames),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_one_and_many_frames_stay_what_they_are() {
        for count in 0..4_u8 {
            let list: Vec<Bytes> = (0..count).map(|n| Bytes::from(vec![n])).collect();
            let frames = Frames::from(list.clone());
            assert_eq!((frames.as_slice(), frames.len()), (&list[..], list.len()));
        }
    }
}
