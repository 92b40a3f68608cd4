//! Rules about notes and atomic changes.

use super::letters::{letter, mail};
use super::*;
use crate::store::{Changes, Commit, Committed, Guard, NoteChange, NoteKey, Refusal, StoreError};

fn key(parts: &[&str]) -> NoteKey {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    NoteKey::new(9, &parts)
}

pub(super) fn change(key: NoteKey, value: Option<&str>) -> NoteChange {
    let value = value.map(|value| Bytes::copy_from_slice(value.as_bytes()));
    NoteChange { key, value }
}

pub(super) fn noting(notes: Vec<NoteChange>) -> Commit {
    Commit {
        guards: Vec::new(),
        changes: Changes {
            notes,
            ..Changes::default()
        },
    }
}

pub(super) async fn note(store: &dyn Store, key: &NoteKey) -> Option<String> {
    let value = store.note(key.clone()).await.expect("readable")?;
    Some(String::from_utf8(value.to_vec()).expect("text"))
}

pub(super) async fn set(store: &dyn Store, key: &NoteKey, value: Option<&str>) {
    let done = store.commit(noting(vec![change(key.clone(), value)])).await;
    assert_eq!(done.expect("an answer"), Committed::Done);
}

/// A note says what was written last, until it is removed.
pub async fn a_note_says_what_was_written_last(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let name = key(&["a"]);
    assert_eq!(note(&*store, &name).await, None);
    for value in [Some("1"), Some(""), None, None, Some("2")] {
        set(&*store, &name, value).await;
        assert_eq!(note(&*store, &name).await.as_deref(), value);
    }
    let twice = vec![
        change(name.clone(), Some("3")),
        change(name.clone(), Some("4")),
    ];
    store.commit(noting(twice)).await.expect("an answer");
    assert_eq!(note(&*store, &name).await.as_deref(), Some("4"), "in order");
    assert_eq!(note(&*store, &key(&["a", ""])).await, None);
    assert_eq!(note(&*store, &key(&[])).await, None);
}

/// Notes below a prefix come in the order of their keys, and pages join seamlessly, whatever
/// was written when and over restarts.
pub async fn notes_are_listed_below_a_prefix_in_pages(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    let mut expected = std::collections::BTreeMap::new();
    for round in 0..3u64 {
        for n in 0..60u64 {
            let n = (n * 37 + round * 17) % 100;
            let name = key(&["queue", &format!("{n:03}"), "\0x"]);
            let value = format!("{round} {n}");
            let value = (n % 7 != round).then_some(value.as_str());
            set(&*store, &name, value).await;
            match value {
                Some(value) => expected.insert(name, Bytes::copy_from_slice(value.as_bytes())),
                None => expected.remove(&name),
            };
        }
        set(&*store, &key(&["queu"]), Some("before")).await;
        set(&*store, &key(&["queued"]), Some("behind")).await;
        for limit in [1, 7, 1_000] {
            let mut paged: Vec<(NoteKey, Bytes)> = Vec::new();
            loop {
                let after = paged.last().map(|(key, _)| key.clone());
                let page = store.notes(key(&["queue"]), after, limit).await;
                let page = page.expect("listed");
                if page.is_empty() {
                    break;
                }
                assert!(page.len() <= limit);
                paged.extend(page);
            }
            assert_eq!(paged, expected.clone().into_iter().collect::<Vec<_>>());
        }
        let none = store.notes(key(&["queue"]), None, 0).await;
        assert!(none.expect("listed").is_empty());
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        store.check().await.expect("sound");
    }
}

/// Notes of every size up to the limit come back; a larger one is refused with its whole
/// write, and so is a long key.
pub async fn notes_have_limits(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    let sizes = [0, 1, 3_998, 3_999, 20_000, NoteChange::MAX_VALUE_BYTES];
    for (n, size) in (0..).zip(sizes) {
        let name = key(&["size", &format!("{size}")]);
        let value = Some(frame(n, 0, size));
        let done = store.commit(noting(vec![NoteChange { key: name, value }]));
        assert_eq!(done.await.expect("an answer"), Committed::Done);
    }
    let large = NoteChange {
        key: key(&["large"]),
        value: Some(frame(1, 1, NoteChange::MAX_VALUE_BYTES + 1)),
    };
    let long = change(key(&[&"k".repeat(NoteChange::MAX_KEY_BYTES)]), Some(""));
    for wrong in [large, long] {
        let both = vec![change(key(&["small"]), Some("1")), wrong];
        let refused = store.commit(noting(both)).await;
        assert!(matches!(refused, Err(StoreError::Io { .. })), "{refused:?}");
        assert_eq!(note(&*store, &key(&["small"])).await, None);
    }
    assert_eq!(store.failure(), None);
    for _ in 0..2 {
        for (n, size) in (0..).zip(sizes) {
            let found = store.note(key(&["size", &format!("{size}")])).await;
            assert_eq!(found.expect("readable"), Some(frame(n, 0, size)));
        }
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
    }
}

fn guarded(key: &NoteKey, expected: Option<&str>, value: &str) -> Commit {
    let expected = expected.map(|text| Bytes::copy_from_slice(text.as_bytes()));
    let guard = Guard {
        key: key.clone(),
        expected,
    };
    Commit {
        guards: vec![guard],
        ..noting(vec![change(key.clone(), Some(value))])
    }
}

/// A commit is made if all its guards hold, and otherwise says which one does not.
pub async fn a_guard_that_does_not_hold_refuses_the_commit(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    let (a, b) = (key(&["a"]), key(&["b"]));
    for again in [false, true] {
        let before = note(&*store, &a).await;
        let done = store.commit(guarded(&a, before.as_deref(), "1")).await;
        assert_eq!(done.expect("an answer"), Committed::Done);
        let mut commit = guarded(&a, Some("1"), "2");
        commit.guards.extend(guarded(&b, Some("9"), "").guards);
        commit.changes.create.push(new_run(1));
        let refused = store.commit(commit).await.expect("an answer");
        let refusal = Refusal::Note {
            guard: 1,
            found: None,
        };
        assert_eq!(refused, Committed::Refused(refusal));
        let refused = store.commit(guarded(&a, None, "2")).await;
        let refusal = Refusal::Note {
            guard: 0,
            found: Some(Bytes::from_static(b"1")),
        };
        assert_eq!(refused.expect("an answer"), Committed::Refused(refusal));
        assert_eq!(note(&*store, &a).await.as_deref(), Some("1"));
        assert_eq!(store.header(id(1)).await.expect("readable"), None);
        if !again {
            let Some(reopened) = harness.again(store).await else {
                return;
            };
            store = reopened;
        }
    }
}

/// Of racers that guard the same note, exactly one wins each turn, also when all are queued
/// before the first is written.
pub async fn guarded_commits_exclude_each_other(harness: &dyn Harness) {
    const TURNS: usize = 8;
    let store = harness.fresh().await;
    let name = key(&["turn"]);
    let mut last: Option<String> = None;
    for turn in 0..TURNS {
        let racers: Vec<_> = (0..6)
            .map(|racer| {
                let value = format!("{turn} {racer}");
                store.commit(guarded(&name, last.as_deref(), &value))
            })
            .collect();
        let mut won = Vec::new();
        for (racer, committed) in racers.into_iter().enumerate() {
            match committed.await.expect("an answer") {
                Committed::Done => won.push(format!("{turn} {racer}")),
                Committed::Refused(Refusal::Note { guard: 0, found }) => {
                    assert!(
                        found.is_some_and(|found| found.starts_with(turn.to_string().as_bytes()))
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(won.len(), 1, "{won:?}");
        assert_eq!(note(&*store, &name).await, Some(won[0].clone()));
        last = won.pop();
    }
}

/// A commit creates, posts and notes at once; a run whose id is taken refuses all of it, also
/// if another commit in front of it created the run.
pub async fn a_commit_is_made_as_a_whole_or_not_at_all(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    let name = key(&["made"]);
    let commit = |n: u64, value: &str| Commit {
        guards: Vec::new(),
        changes: Changes {
            create: vec![new_run(n), new_run(n + 1)],
            post: vec![letter(n, 0), letter(n, 1)],
            notes: vec![change(name.clone(), Some(value))],
        },
    };
    let first = store.commit(commit(1, "first"));
    let second = store.commit(commit(2, "second"));
    assert_eq!(first.await.expect("an answer"), Committed::Done);
    match second.await.expect("an answer") {
        Committed::Refused(Refusal::Exists(header)) => assert_eq!(header.run, id(2)),
        other => panic!("{other:?}"),
    }
    let mut twice = commit(5, "twice");
    twice.changes.create.push(new_run(5));
    match store.commit(twice).await.expect("an answer") {
        Committed::Refused(Refusal::Exists(header)) => assert_eq!(header.run, id(5)),
        other => panic!("{other:?}"),
    }
    let epoch = Epoch::FIRST;
    let created = append(2, epoch, 1, vec![frame(2, 1, 9)]);
    store.append(created).await.expect("owned by who made it");
    for _ in 0..2 {
        assert_eq!(note(&*store, &name).await.as_deref(), Some("first"));
        assert_eq!(store.mail(id(1), 0).await.expect("readable"), mail(1, 0..2));
        assert_eq!(store.mail(id(2), 0).await.expect("readable"), Vec::new());
        for absent in [3, 5, 6] {
            assert_eq!(store.header(id(absent)).await.expect("readable"), None);
        }
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
    }
}

/// An append brings its changes with it, or nothing if it is refused; an id that is taken is
/// left as it is.
pub async fn an_append_brings_its_changes(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    create(&*store, 2).await;
    let name = key(&["told"]);
    let mut child = new_run(2);
    child.header.version = 77;
    let changes = Changes {
        create: vec![child, new_run(3)],
        post: vec![letter(3, 0), letter(2, 0)],
        notes: vec![change(name.clone(), Some("yes"))],
    };
    let mut refused = append(1, epoch, 7, vec![frame(1, 7, 9)]);
    refused.changes = Some(Box::new(changes.clone()));
    assert!(store.append(refused).await.is_err());
    assert_eq!(store.header(id(3)).await.expect("readable"), None);
    assert_eq!(note(&*store, &name).await, None);
    // Without a frame of its own, and then with the last one.
    for (seq, taken_again) in [(1, false), (1, true)] {
        let mut telling = match taken_again {
            false => append(1, epoch, seq, Vec::new()),
            true => ending(1, epoch, seq, EndKind::Completed),
        };
        telling.changes = Some(Box::new(changes.clone()));
        store.append(telling).await.expect("appended");
    }
    for _ in 0..2 {
        assert_eq!(journal(&*store, 1).await.len(), 2);
        assert_eq!(journal(&*store, 3).await, vec![frame(3, 0, 40)]);
        let left = store.header(id(2)).await.expect("readable");
        assert_eq!(left.expect("there").version, header(2).version);
        let mail = store.mail(id(3), 0).await.expect("readable");
        assert_eq!(mail.len(), 2, "posted twice");
        assert_eq!(note(&*store, &name).await.as_deref(), Some("yes"));
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
    }
}
