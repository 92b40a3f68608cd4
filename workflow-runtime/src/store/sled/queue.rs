//! The queue: what waits for the next group commit.
//!
//! Owns how much one group takes of it. Never looks into what is queued, unless that is too much for one.

use super::op::Op;

/// The most appends one group commit takes. Far more than ever wait; it bounds the time
/// until the first of them is told.
const MAX_GROUP: usize = 8_192;

/// The most payload bytes one group commit takes, if it is more than one append.
const MAX_GROUP_BYTES: usize = 4 * 1024 * 1024;

/// What was asked for and not taken yet, in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ops: Vec<Op>,
    /// About how many bytes they take in blocks.
    bytes: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds something of so many bytes.
    pub(super) fn push(&mut self, op: Op, bytes: usize) {
        self.ops.push(op);
        self.bytes += bytes;
    }

    /// Takes all there is.
    pub(super) fn take_all(&mut self) -> Vec<Op> {
        self.bytes = 0;
        std::mem::take(&mut self.ops)
    }

    /// Takes what one group commit holds. `group` comes empty.
    pub(super) fn take_group(&mut self, group: &mut Vec<Op>) {
        if self.ops.len() <= MAX_GROUP && self.bytes <= MAX_GROUP_BYTES {
            self.bytes = 0;
            return std::mem::swap(&mut self.ops, group);
        }
        let (mut bytes, mut fits) = (0, 0);
        for op in self.ops.iter().take(MAX_GROUP) {
            let more = op.bytes();
            if fits > 0 && bytes + more > MAX_GROUP_BYTES {
                break;
            }
            bytes += more;
            fits += 1;
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        group.extend(self.ops.drain(..fits));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::super::op::Appending;
    use super::*;
    use crate::ids::RunId;
    use crate::store::{AckSender, AckSlot, Durability};

    fn queue(lengths: impl Iterator<Item = usize>) -> Queue {
        let mut queue = Queue::default();
        for (seq, len) in lengths.enumerate() {
            let append = Appending {
                run: RunId::from_bytes([1; 16]),
                first_seq: seq as u64,
                frames: vec![Bytes::from(vec![0; len])].into(),
                end: None,
                taken: 0,
                changes: None,
                durability: Durability::Synced,
            };
            let op = Op::Append(append, AckSender::new(&Arc::new(AckSlot::default())));
            let bytes = op.bytes();
            queue.push(op, bytes);
        }
        queue
    }

    /// How many each group takes, and that all come in order.
    fn groups(mut queue: Queue) -> Vec<usize> {
        let (mut sizes, mut next) = (Vec::new(), 0);
        while !queue.is_empty() {
            let mut group = Vec::new();
            queue.take_group(&mut group);
            for op in &group {
                let Op::Append(append, _) = op else {
                    panic!("only appends were queued");
                };
                assert_eq!(append.first_seq, next);
                next += 1;
            }
            sizes.push(group.len());
        }
        assert_eq!(queue.bytes, 0);
        sizes
    }

    #[test]
    fn a_group_takes_all_that_waits_if_that_is_not_too_much() {
        assert_eq!(groups(queue([10; 3].into_iter())), [3]);
        assert_eq!(groups(queue([0; MAX_GROUP].into_iter())), [MAX_GROUP]);
    }

    #[test]
    fn what_is_too_much_for_one_group_is_left_for_the_next() {
        let many = std::iter::repeat_n(0, 2 * MAX_GROUP + 1);
        assert_eq!(groups(queue(many)), [MAX_GROUP, MAX_GROUP, 1]);
        let third = MAX_GROUP_BYTES / 3;
        assert_eq!(groups(queue([third; 5].into_iter())), [2, 2, 1]);
    }

    #[test]
    fn one_append_that_is_too_large_is_a_group_of_its_own() {
        let large = 2 * MAX_GROUP_BYTES;
        assert_eq!(groups(queue([1, large, 1].into_iter())), [1, 1, 1]);
        assert_eq!(groups(queue([large].into_iter())), [1]);
    }
}
