//! Portions: what a run has for the store at once may be more than a store takes in one write.
//!
//! A thousand children with large inputs, a hundred large outcomes in one poll, a full mailbox: all of it
//! leaves in several appends then. Owns what may go ahead of the rest. What must be one write stays one:
//! letters and the count of those taken, the end of a run and what it tells others.

use crate::journal::Draft;
use crate::store::{Changes, NewRun, NoteChange};

/// The bytes of one append, about. Far below what any store takes, far above what a run usually has.
pub(super) const PORTION: usize = 8 * 1024 * 1024;

/// One append that goes ahead of the rest.
pub(super) type Portion = (Vec<Draft>, Option<Box<Changes>>);

/// Takes what goes ahead out of an append that is too large; nearly always nothing.
///
/// Children go before the records that tell of them: a child that nobody knows is created again by the
/// same id, and that changes nothing; a child that is only known would be waited for in vain.
pub(super) fn ahead(drafts: &mut Vec<Draft>, changes: &mut Option<Box<Changes>>) -> Vec<Portion> {
    let mut portions = Vec::new();
    if let Some(some) = changes {
        while let Some(create) = take(&mut some.create, bytes_of_run, |_| true) {
            let part = Changes {
                create,
                ..Changes::default()
            };
            portions.push((Vec::new(), Some(Box::new(part))));
        }
        // The place of a checkpoint and the tokens let go are last in the list, and stay with their records.
        while let Some(notes) = take(&mut some.notes, bytes_of_note, |_| true) {
            let part = Changes {
                notes,
                ..Changes::default()
            };
            portions.push((Vec::new(), Some(Box::new(part))));
        }
        if some.is_empty() {
            *changes = None;
        }
    }
    while let Some(records) = take(drafts, Draft::size, Draft::may_go_ahead) {
        portions.push((records, None));
    }
    portions
}

/// Takes about a portion from the front, if there is more than that.
fn take<T>(all: &mut Vec<T>, bytes: fn(&T) -> usize, may: fn(&T) -> bool) -> Option<Vec<T>> {
    if all.len() < 2 || all.iter().map(bytes).sum::<usize>() <= PORTION {
        return None;
    }
    let (mut sum, mut count) = (0, 0);
    for one in all.iter().take_while(|one| may(one)) {
        sum += bytes(one);
        if sum > PORTION && count > 0 {
            break;
        }
        count += 1;
    }
    let rest = all.split_off(count);
    let front = std::mem::replace(all, rest);
    (!front.is_empty()).then_some(front)
}

fn bytes_of_run(new: &NewRun) -> usize {
    new.first.len()
}

fn bytes_of_note(note: &NoteChange) -> usize {
    note.value.as_ref().map_or(0, bytes::Bytes::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::digest::Digest;
    use crate::ids::RunId;
    use crate::store::{Durability, NoteKey, RunHeader, RunState};

    #[test]
    fn what_is_taken_is_in_order_and_about_a_portion() {
        let mut all: Vec<usize> = (0..40).map(|n| PORTION / 4 + n).collect();
        let whole = all.clone();
        let mut taken = Vec::new();
        while let Some(part) = take(&mut all, |n| *n, |_| true) {
            assert!(part.iter().sum::<usize>() <= PORTION);
            taken.extend(part);
        }
        assert!(all.iter().sum::<usize>() <= PORTION);
        taken.extend(all);
        assert_eq!(taken, whole);
    }

    #[test]
    fn one_that_is_too_large_by_itself_goes_alone_and_nothing_passes_what_must_stay() {
        let mut all = vec![2 * PORTION, 1, 2];
        assert_eq!(take(&mut all, |n| *n, |_| true), Some(vec![2 * PORTION]));
        assert_eq!(take(&mut all, |n| *n, |_| true), None);
        let mut all = vec![1, 2 * PORTION, 2];
        assert_eq!(take(&mut all, |n| *n, |n| *n < 2), Some(vec![1]));
        assert_eq!(take(&mut all, |n| *n, |n| *n < 2), None);
        assert_eq!(all, [2 * PORTION, 2]);
    }

    #[test]
    fn one_alone_stays_two_are_parted_and_what_fills_a_portion_is_in_it() {
        let mut alone = vec![2 * PORTION];
        assert_eq!(take(&mut alone, |n| *n, |_| true), None);
        assert_eq!(alone, [2 * PORTION]);
        let mut two = vec![PORTION, 1];
        assert_eq!(take(&mut two, |n| *n, |_| true), Some(vec![PORTION]));
        let mut full = vec![PORTION / 2, PORTION / 2, 1];
        let front = take(&mut full, |n| *n, |_| true);
        assert_eq!(front, Some(vec![PORTION / 2, PORTION / 2]));
    }

    fn child(n: u8, bytes: usize) -> NewRun {
        let run = RunId::from_bytes([n; 16]);
        NewRun {
            header: RunHeader {
                run,
                namespace: "n".into(),
                workflow: "w".into(),
                version: 1,
                key: None,
                input_digest: Digest::from_bytes([1; 16]),
                created_at: Timestamp::default(),
                origin: None,
                state: RunState::Active,
            },
            first: vec![n; bytes].into(),
            rest: Vec::new(),
            durability: Durability::Synced,
        }
    }

    fn note(n: u8, bytes: usize) -> NoteChange {
        NoteChange {
            key: NoteKey::of_run(RunId::from_bytes([n; 16]), &[b"x"]),
            value: Some(vec![n; bytes].into()),
        }
    }

    #[test]
    fn large_children_and_notes_go_ahead_and_what_is_small_stays_with_its_records() {
        let half = PORTION / 2;
        let mut changes = Some(Box::new(Changes {
            create: (0..5).map(|n| child(n, half)).collect(),
            notes: (0..3).map(|n| note(n, PORTION)).collect(),
            ..Changes::default()
        }));
        let portions = ahead(&mut Vec::new(), &mut changes);
        let runs = |changes: &Changes| -> Vec<u8> {
            let create = changes.create.iter();
            create.map(|new| new.header.run.as_bytes()[0]).collect()
        };
        let notes = |changes: &Changes| -> Vec<u8> {
            let values = changes.notes.iter().flat_map(|note| &note.value);
            values.map(|value| value[0]).collect()
        };
        let ahead: Vec<_> = portions
            .iter()
            .map(|(drafts, changes)| {
                assert!(drafts.is_empty());
                let changes = changes.as_ref().expect("they have no records");
                (runs(changes), notes(changes))
            })
            .collect();
        let none = Vec::new;
        let expected = [
            (vec![0, 1], none()),
            (vec![2, 3], none()),
            (none(), vec![0]),
            (none(), vec![1]),
        ];
        assert_eq!(ahead, expected);
        let left = changes.expect("the last ones stay");
        assert_eq!((runs(&left), notes(&left)), (vec![4], vec![2]));
    }
}
