//! Stories: runs that get letters, change notes, sleep, fail, are taken up again and deleted.
//!
//! A story has numbered steps. Nearly every step writes its number into a note, in the same
//! write as everything else, so that a verifier sees what of a write is there and what is not.

use bytes::Bytes;
use workflow_runtime::clock::Timestamp;
use workflow_runtime::store::sled::SledStore;
use workflow_runtime::store::{
    Append, Changes, Commit, Committed, EndKind, Epoch, Guard, Letter, NoteChange, NoteKey,
    Released, Reopening, RunEnd, RunHeader, RunState, Store, StoreError, StoreResult,
};

use super::work::{Look, append, frame, id, new_run};

/// The last step: a run with an even number is deleted in it.
pub(super) const LAST: u64 = 10;

/// What must be there: story `n` with frames of `len` bytes got to this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) n: u64,
    pub(super) step: u64,
    pub(super) len: usize,
}

fn step_note(n: u64) -> NoteKey {
    NoteKey::new(5, &[&n.to_be_bytes()])
}

fn own_note(n: u64) -> NoteKey {
    NoteKey::of_run(id(n), &[b"own"])
}

fn value(step: u64) -> Bytes {
    Bytes::copy_from_slice(step.to_string().as_bytes())
}

fn note(n: u64, step: u64) -> NoteChange {
    NoteChange {
        key: step_note(n),
        value: Some(value(step)),
    }
}

fn letter(n: u64, number: u64, len: usize) -> Letter {
    Letter {
        to: id(n),
        body: frame(n, 1_000 + number, len),
    }
}

/// What a run has after each step that is in its note: frames, the numbers of the letters
/// that wait, and whether it has a note of its own.
fn after(step: u64) -> (u64, std::ops::Range<u64>, bool) {
    match step {
        0 => (1, 0..0, false),
        1 => (1, 0..2, false),
        2 => (2, 1..2, true),
        3 | 4 => (3, 2..2, true),
        5 => (3, 2..3, true),
        6 => (4, 3..3, true),
        7 => (5, 3..3, true),
        _ => (7, 3..3, true),
    }
}

/// Commits a step, guarded by the one before.
async fn commit(store: &SledStore, n: u64, step: u64, changes: Changes) -> StoreResult<()> {
    let guard = Guard {
        key: step_note(n),
        expected: step.checked_sub(1).map(value),
    };
    let mut changes = changes;
    changes.notes.push(note(n, step));
    let guards = vec![guard];
    let committed = store.commit(Commit { guards, changes }).await?;
    assert_eq!(committed, Committed::Done, "story {n}, step {step}");
    Ok(())
}

/// Returns the append of a step.
fn chapter(told: Told, epoch: Epoch, seq: u64, taken: u64) -> Append {
    let Told { n, step, len } = told;
    let mut one = append(n, epoch, seq, len);
    one.taken = taken;
    let mut notes = vec![note(n, step)];
    if step == 2 {
        notes.push(NoteChange {
            key: own_note(n),
            value: Some(frame(n, 2_000, len.min(30_000))),
        });
    }
    one.changes = Some(Box::new(Changes {
        notes,
        ..Changes::default()
    }));
    one
}

fn ended(kind: EndKind) -> Option<RunEnd> {
    let at = Timestamp::from_micros(77);
    Some(RunEnd { kind, at })
}

/// Takes one step of a story.
async fn take_step(store: &SledStore, told: Told) -> StoreResult<()> {
    let Told { n, step, len } = told;
    let run = id(n);
    let epoch = match step {
        2 | 3 | 4 | 6 | 7 | 9 => store.claim(run, 0).await?.expect("there").epoch,
        _ => Epoch::FIRST,
    };
    let mut changes = Changes::default();
    match step {
        0 => {
            changes.create.push(new_run(n, len));
            commit(store, n, 0, changes).await
        }
        1 => {
            changes.post = vec![letter(n, 0, len), letter(n, 1, len)];
            commit(store, n, 1, changes).await
        }
        2 | 3 => store.append(chapter(told, epoch, step - 1, step - 1)).await,
        4 => {
            let wake_at = n.is_multiple_of(3).then(|| Timestamp::from_micros(n));
            let released = store.put_to_sleep(run, epoch, wake_at).await?;
            assert_eq!(released, Released::Asleep, "story {n}");
            commit(store, n, 4, changes).await
        }
        5 => {
            changes.post.push(letter(n, 2, len));
            commit(store, n, 5, changes).await
        }
        6 => store.append(chapter(told, epoch, 3, 3)).await,
        7 => {
            let mut last = chapter(told, epoch, 4, 3);
            last.end = ended(EndKind::Failed);
            store.append(last).await
        }
        8 => {
            let (seq, frame) = (5, frame(n, 5, len));
            let (guards, notes) = (Vec::new(), Vec::new());
            let reopening = Reopening {
                run,
                seq,
                frame,
                guards,
                notes,
                letters: Vec::new(),
            };
            store.revive(reopening).await.map(drop)
        }
        9 => {
            let mut last = chapter(told, epoch, 6, 3);
            last.end = ended(EndKind::Completed);
            store.append(last).await
        }
        _ if n.is_multiple_of(2) => {
            let deleted = store.delete(vec![run]).await?;
            assert_eq!(deleted, 1, "story {n}");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Tells a story on from where it is, up to a step, and calls back after each one.
pub(super) async fn tell(store: &SledStore, to: Told, said: impl Fn(Told)) -> StoreResult<()> {
    let Some(first) = next_step(store, to.n).await? else {
        return Ok(());
    };
    for step in first..=to.step {
        let told = Told { step, ..to };
        take_step(store, told).await?;
        said(told);
    }
    Ok(())
}

/// Returns the next step of a story; `None` after the last.
async fn next_step(store: &SledStore, n: u64) -> StoreResult<Option<u64>> {
    let Some(step) = noted(store, n).await? else {
        return Ok(Some(0));
    };
    let frames = store.frames(id(n), 0, usize::MAX).await?.len();
    Ok(match (step, frames) {
        (7, 6) => Some(9),
        (9, 0) => None,
        (step, _) => Some(step + 1),
    })
}

async fn noted(store: &SledStore, n: u64) -> StoreResult<Option<u64>> {
    let note = store.note(step_note(n)).await?;
    let text = note.map(|note| String::from_utf8(note.to_vec()).expect("text"));
    Ok(text.map(|text| text.parse().expect("a number")))
}

/// Looks at a story: everything that was said must be there, and what its note tells must be
/// there as a whole.
pub(super) async fn look(store: &SledStore, told: Told) -> Look {
    match examine(store, told).await {
        Ok(look) => look,
        Err(StoreError::Corrupt { .. } | StoreError::Failed { .. } | StoreError::Io { .. }) => {
            Look::Refused
        }
        Err(other) => panic!("a read answers with {other:?}"),
    }
}

async fn examine(store: &SledStore, told: Told) -> StoreResult<Look> {
    let Told { n, step, len } = told;
    let run = id(n);
    let Some(noted) = noted(store, n).await? else {
        return Ok(Look::Lost);
    };
    let header = store.header(run).await?;
    let frames = store.frames(run, 0, usize::MAX).await?;
    let mail = store.mail(run, 0).await?;
    let own = store.note(own_note(n)).await?;
    let written = (0..)
        .zip(&frames)
        .all(|(seq, found)| *found == frame(n, seq, len));
    let posted = mail
        .iter()
        .all(|mail| mail.body == letter(n, mail.number, len).body);
    let own_is_right = own
        .as_ref()
        .is_none_or(|own| *own == frame(n, 2_000, len.min(30_000)));
    if !written || !posted || !own_is_right {
        return Ok(Look::Wrong);
    }
    // The steps that no note tells of.
    let (revived, deleted) = (
        noted == 7 && frames.len() == 6,
        noted == 9 && header.is_none(),
    );
    let reached = noted + u64::from(revived) + u64::from(deleted);
    if reached < step && !(step == LAST && !n.is_multiple_of(2) && reached == 9) {
        return Ok(Look::Lost);
    }
    let Some(header) = header else {
        let rest = !frames.is_empty() || !mail.is_empty() || own.is_some();
        return Ok(if deleted && !rest {
            Look::Sound
        } else {
            Look::Lost
        });
    };
    let (count, numbers, has_own) = after(noted);
    let count = count + u64::from(revived);
    let waiting: Vec<u64> = mail.iter().map(|mail| mail.number).collect();
    let whole = frames.len() as u64 == count
        && waiting == numbers.collect::<Vec<_>>()
        && own.is_some() == has_own
        && state_fits(&header, noted, revived)
        && is_listed(store, &header, !waiting.is_empty()).await?;
    Ok(if whole { Look::Sound } else { Look::Lost })
}

fn state_fits(header: &RunHeader, noted: u64, revived: bool) -> bool {
    match &header.state {
        RunState::Ended(end) if end.kind == EndKind::Failed => noted == 7 && !revived,
        RunState::Ended(_) => noted == 9,
        // It fell asleep just before that was noted, and may have been claimed since; that it
        // sleeps may be lost.
        RunState::Asleep { .. } => (3..=5).contains(&noted),
        RunState::Active => noted < 7 || revived,
        RunState::Parked(_) => false,
    }
}

/// Says whether a run that has not ended is found by whoever opens the store.
async fn is_listed(store: &SledStore, header: &RunHeader, has_mail: bool) -> StoreResult<bool> {
    let RunState::Asleep { wake_at } = header.state else {
        return Ok(true);
    };
    let wake_at = match has_mail {
        true => Some(Timestamp::default()),
        false => wake_at,
    };
    let mut after = None;
    loop {
        let page = store.asleep(after, 50).await?;
        if page
            .iter()
            .any(|one| one.run == header.run && one.wake_at == wake_at)
        {
            return Ok(true);
        }
        match page.last() {
            Some(last) => after = Some(last.clone()),
            None => return Ok(false),
        }
    }
}
