//! The frames of one append.
//!
//! Owns where they lie on their way to a store. Nearly every append has one frame: it lies in the append itself, and no
//! list is allocated for it. Never looks at a byte.

use std::ops::Deref;

use bytes::Bytes;

/// Frames in order: a slice that is made from one frame or from a list.
#[derive(Debug, Clone)]
pub struct Frames(Held);

#[derive(Debug, Clone)]
enum Held {
    One(Bytes),
    List(Vec<Bytes>),
}

impl Frames {
    /// Adds a frame behind the others.
    pub fn push(&mut self, frame: Bytes) {
        match &mut self.0 {
            Held::List(list) if list.capacity() == 0 => self.0 = Held::One(frame),
            Held::List(list) => list.push(frame),
            Held::One(first) => self.0 = Held::List(vec![std::mem::take(first), frame]),
        }
    }

    /// Hands the frames on, one by one.
    pub(super) fn for_each(self, mut take: impl FnMut(Bytes)) {
        match self.0 {
            Held::One(frame) => take(frame),
            Held::List(list) => list.into_iter().for_each(take),
        }
    }
}

impl Default for Frames {
    fn default() -> Self {
        Self(Held::List(Vec::new()))
    }
}

impl Deref for Frames {
    type Target = [Bytes];

    fn deref(&self) -> &[Bytes] {
        match &self.0 {
            Held::One(frame) => std::slice::from_ref(frame),
            Held::List(list) => list,
        }
    }
}

impl From<Bytes> for Frames {
    fn from(frame: Bytes) -> Self {
        Self(Held::One(frame))
    }
}

impl From<Vec<Bytes>> for Frames {
    fn from(mut list: Vec<Bytes>) -> Self {
        match list.len() {
            1 => list.remove(0).into(),
            _ => Self(Held::List(list)),
        }
    }
}

impl FromIterator<Bytes> for Frames {
    fn from_iter<I: IntoIterator<Item = Bytes>>(frames: I) -> Self {
        let mut all = Self::default();
        frames.into_iter().for_each(|frame| all.push(frame));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_one_and_many_frames_stay_what_they_are() {
        for count in 0..5_u8 {
            let list: Vec<Bytes> = (0..count).map(|n| Bytes::from(vec![n])).collect();
            let frames = Frames::from(list.clone());
            let pushed: Frames = list.iter().cloned().collect();
            let mut handed_on = Vec::new();
            pushed.clone().for_each(|frame| handed_on.push(frame));
            assert_eq!(
                (&*frames, &*pushed, &handed_on),
                (&list[..], &list[..], &list)
            );
        }
    }

    #[test]
    fn a_single_frame_has_no_list() {
        let mut frames = Frames::default();
        frames.push(Bytes::from_static(b"one"));
        assert!(matches!(frames.0, Held::One(_)));
        assert!(matches!(Frames::from(vec![Bytes::new()]).0, Held::One(_)));
    }
}
