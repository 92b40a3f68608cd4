//! The line of sleeping runs against a store that is a sorted list.

use std::ops::Bound;

use super::*;
use crate::hashing::scramble;

fn run(n: u64) -> RunId {
    // Tables rely on ids being spread.
    let spread = (u128::from(scramble(n)) << 64) | u128::from(scramble(!n));
    RunId::from_bytes(spread.to_be_bytes())
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// What the store says behind a place.
fn read(store: &BTreeSet<Place>, behind: Option<&Sleeper>) -> Vec<Place> {
    let behind = behind.map_or(Bound::Unbounded, |last| Bound::Excluded(place(last)));
    let all = store.range((behind, Bound::Unbounded));
    all.take(PAGE).copied().collect()
}

/// Puts what was read in line.
fn enter(sleepers: &Sleepers, page: &[Place]) {
    let line = &mut sleepers.index().line;
    for (at, run) in page {
        line.set(*at, *run);
    }
    let last = page.last().filter(|_| page.len() == PAGE);
    line.end_reading(last.map(|(at, run)| Sleeper {
        wake_at: Some(*at),
        run: *run,
        namespace: Box::default(),
    }));
}

/// Reads until the line is long enough.
fn lengthen(sleepers: &Sleepers, store: &BTreeSet<Place>) {
    while let Some(behind) = { sleepers.index().line.begin_reading() } {
        enter(sleepers, &read(store, behind.as_ref()));
    }
}

fn in_line(sleepers: &Sleepers) -> usize {
    let line = &sleepers.index().line;
    assert_eq!(line.due.len(), line.at.len());
    line.due.len()
}

#[test]
fn each_run_is_due_once_at_its_newest_time() {
    let sleepers = Sleepers::default();
    lengthen(&sleepers, &BTreeSet::new());
    for n in 0..100 {
        sleepers.add(at(1_000 + n), run(n));
    }
    for n in 0..50 {
        sleepers.add(at(5_000 - n), run(n));
    }
    sleepers.add(at(1_060), run(60)); // the same once more
    assert!(sleepers.take(run(99)).is_none(), "nobody waits for it");
    assert_eq!(in_line(&sleepers), 99);
    let (due, next) = sleepers.take_due(at(2_000));
    let expected: Vec<_> = (50..99).map(|n| (at(1_000 + n), run(n))).collect();
    assert_eq!(due, expected);
    assert_eq!(next, Some(at(4_951)));
    sleepers.add(at(10), run(200));
    let (due, _) = sleepers.take_due(at(9_000));
    assert_eq!(due[0], (at(10), run(200)));
    let expected: Vec<_> = (0..50).rev().map(|n| (at(5_000 - n), run(n))).collect();
    assert_eq!(due[1..], expected);
    assert_eq!(in_line(&sleepers), 0);
}

#[test]
fn times_of_runs_that_woke_up_otherwise_do_not_pile_up() {
    let sleepers = Sleepers::default();
    lengthen(&sleepers, &BTreeSet::new());
    sleepers.add(at(1), run(0));
    for n in 1..20_000 {
        sleepers.add(at(1_000 + n), run(n % 10 + 1));
        sleepers.take(run(n % 10 + 1));
    }
    assert_eq!(in_line(&sleepers), 1);
    assert_eq!(sleepers.take_due(at(1)).0, [(at(1), run(0))]);
}

#[test]
fn who_is_behind_a_page_that_could_not_be_read_is_read_later() {
    let store: BTreeSet<_> = (0..10_000).map(|n| (at(10 * n), run(n))).collect();
    let sleepers = Sleepers::default();
    let (mut woken, mut failures) = (Vec::new(), 0);
    while woken.len() < store.len() {
        let reading = sleepers.index().line.begin_reading();
        if let Some(behind) = reading {
            sleepers.index().line.read_nothing(behind);
            failures += 1;
        }
        lengthen(&sleepers, &store);
        let (due, _) = sleepers.take_due(at(u64::MAX));
        assert!(!due.is_empty(), "only {} are woken", woken.len());
        woken.extend(due);
    }
    assert!(woken.into_iter().eq(store));
    assert!(failures > 2, "{failures}");
}

#[test]
fn the_line_is_short_however_many_sleep() {
    let sleepers = Sleepers::default();
    let mut store = BTreeSet::new();
    lengthen(&sleepers, &store);
    for n in 0..100_000_u64 {
        let place = (at(n * 7_919 % 1_000_003), run(n));
        store.insert(place);
        sleepers.add(place.0, place.1);
        assert!(in_line(&sleepers) <= LONG_LINE);
    }
}

#[test]
fn who_falls_asleep_while_the_store_is_read_stands_in_line_wherever_the_page_ends() {
    let mut store: BTreeSet<_> = (0..10_000).map(|n| (at(10 * n), run(n))).collect();
    let sleepers = Sleepers::default();
    let behind = sleepers.index().line.begin_reading().expect("it begins");
    let page = read(&store, behind.as_ref());
    // Just too late for the page, and before its end.
    let (early, late) = ((at(15), run(77_777)), (at(99_995), run(77_778)));
    for place in [early, late] {
        store.insert(place);
        sleepers.add(place.0, place.1);
    }
    enter(&sleepers, &page);
    lengthen(&sleepers, &store);
    let (due, _) = sleepers.take_due(at(20));
    assert_eq!(due.iter().filter(|place| **place == early).count(), 1);
    assert!(
        !sleepers.index().line.at.contains_key(&late.1),
        "the store has it"
    );
}

#[test]
fn however_many_fall_asleep_while_the_store_is_read_none_is_forgotten() {
    let sleepers = Sleepers::default();
    let mut store = BTreeSet::new();
    let behind = sleepers.index().line.begin_reading().expect("it begins");
    let page = read(&store, behind.as_ref());
    for n in 0..2 * LONG_LINE as u64 {
        store.insert((at(n), run(n)));
        sleepers.add(at(n), run(n));
    }
    enter(&sleepers, &page);
    let mut woken = Vec::new();
    while woken.len() < store.len() {
        lengthen(&sleepers, &store);
        let (due, _) = sleepers.take_due(at(u64::MAX));
        assert!(!due.is_empty(), "only {} are woken", woken.len());
        woken.extend(due);
    }
    assert!(woken.into_iter().eq(store));
}

/// Runs fall asleep, are woken by letters and sleep again at other times, while the clock goes on and pages are read, sometimes with
/// something between the reading and the entering.
#[test]
fn of_any_number_of_sleepers_each_is_woken_at_its_time_and_none_is_forgotten() {
    for seed in 0..8_u64 {
        let mut drawn = seed << 32;
        let mut below = |limit: u64| {
            drawn += 1;
            scramble(drawn) % limit
        };
        let sleepers = Sleepers::default();
        let (mut store, mut asleep) = (BTreeSet::new(), IdMap::default());
        let mut now = 0;
        for n in 0..15_000_u64 {
            let reading = match below(4) {
                0 => sleepers.index().line.begin_reading(),
                _ => None,
            };
            let page = reading.clone().map(|behind| read(&store, behind.as_ref()));
            for _ in 0..below(6) {
                let run = run(below(30_000));
                if let Some(before) = asleep.remove(&run) {
                    store.remove(&(before, run));
                    sleepers.take(run); // a letter woke it
                }
                let due = at(now + below(1_000_000));
                store.insert((due, run));
                asleep.insert(run, due);
                sleepers.add(due, run);
            }
            if let Some(behind) = reading.filter(|_| below(5) == 0) {
                sleepers.index().line.read_nothing(behind);
            } else if let Some(page) = page {
                // As `lengthen` leaves out who is in memory: here those that sleep at another time by now.
                let still: Vec<_> = page
                    .iter()
                    .filter(|place| store.contains(place))
                    .copied()
                    .collect();
                let line = &mut sleepers.index().line;
                for (at, run) in still {
                    line.set(at, run);
                }
                let last = page.last().filter(|_| page.len() == PAGE);
                line.end_reading(last.map(|(at, run)| Sleeper {
                    wake_at: Some(*at),
                    run: *run,
                    namespace: Box::default(),
                }));
            }
            if n % 8 == 0 {
                now += below(2_000);
                lengthen(&sleepers, &store);
                loop {
                    let (woken, _) = sleepers.take_due(at(now));
                    for place in &woken {
                        assert!(store.remove(place), "seed {seed}: {place:?} does not sleep");
                        asleep.remove(&place.1);
                    }
                    lengthen(&sleepers, &store);
                    if woken.is_empty() {
                        break;
                    }
                }
                let forgotten = store.first().filter(|(due, _)| *due <= at(now));
                assert_eq!(forgotten, None, "seed {seed}, step {n}");
            }
        }
    }
}

#[test]
fn the_last_of_a_page_that_falls_asleep_again_at_its_time_stays_in_line() {
    // What is read next begins behind it: a line without it would never wake it.
    let store: BTreeSet<_> = (0..10_000).map(|n| (at(10 * n), run(n))).collect();
    let sleepers = Sleepers::default();
    lengthen(&sleepers, &store);
    let last = match &sleepers.index().line.end {
        End::Behind(last) => place(last),
        _ => panic!("the store has more"),
    };
    sleepers.add(last.0, last.1);
    let mut woken = Vec::new();
    loop {
        lengthen(&sleepers, &store);
        let (due, _) = sleepers.take_due(at(u64::MAX));
        if due.is_empty() {
            break;
        }
        woken.extend(due);
    }
    assert!(woken.contains(&last), "it is never woken");
    assert!(woken.iter().eq(&store), "each once, in order");
}

#[test]
fn who_is_due_before_all_others_has_the_line_looked_at_and_nobody_else_has() {
    let sleepers = Sleepers::default();
    lengthen(&sleepers, &BTreeSet::new());
    let is_looked_at = || {
        let mut told = std::pin::pin!(sleepers.earlier.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        told.as_mut().poll(&mut context).is_ready()
    };
    sleepers.add(at(1_000), run(1));
    assert!(is_looked_at(), "nobody was in line");
    sleepers.add(at(2_000), run(2));
    assert!(!is_looked_at(), "another one is due before");
    sleepers.add(at(500), run(3));
    assert!(is_looked_at(), "it would sleep too long");
}
