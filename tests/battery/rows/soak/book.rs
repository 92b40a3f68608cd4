//! What the soaked processes said, compared as it comes: an order that ended as it should is forgotten, so that hours of
//! them fit into memory.
//!
//! Owns the judgement over lines, and what the checker of invariants is told. It never opens a store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use workflow_runtime::testing::Witness;
use workflow_runtime::{RunId, Sent, StepId};

use super::super::workload::{Line, Transferred};
use super::orders::{AT_ONCE, ATTEMPTS, BACKOFF, BEATS, GIVES_UP, KEEPS, Open, expected, key};

/// The namespace of an engine that was given none.
const NAMESPACE: &str = "default";

/// A witness that has looked at the store is asked again within this time: what it saw then cannot have ended and been
/// removed since.
const FRESH: Duration = KEEPS.checked_div(2).expect("not by zero");

/// An order that gave up began this long ago at least. Its beginning may have been heard of late.
const GAVE_UP: Duration = GIVES_UP.checked_div(2).expect("not by zero");

/// More violations than this are not written down.
const ENOUGH: usize = 20;

/// What is known of an order that has not been told to have ended.
#[derive(Debug, Default)]
struct Order {
    run: Option<RunId>,
    sent: bool,
    began_at: Option<Instant>,
    heard_at: Option<Instant>,
    /// What was done under each id.
    effects: BTreeMap<StepId, (String, BTreeSet<u64>)>,
}

/// All that was said.
#[derive(Debug, Default)]
pub(super) struct Book {
    open: BTreeMap<u64, Order>,
    ended: BTreeSet<u64>,
    /// Executions of steps, with those that were repeated.
    pub(super) steps: u64,
    /// Runs that were deleted, children and ticks included.
    pub(super) swept: u64,
    /// Orders that ended while nobody was told, and were removed.
    pub(super) unseen: u64,
    /// No number above it was heard of, and none up to it is given to a process any more.
    highest: u64,
    pub(super) is_ready: bool,
    pub(super) stopped: Option<String>,
    pub(super) violations: Vec<String>,
    witness: Option<(Witness, Instant)>,
}

impl Book {
    /// Hears one line.
    pub(super) fn hear(&mut self, line: Line) {
        match line {
            Line::Ready => self.is_ready = true,
            Line::Stopped(why) => self.stopped = Some(why),
            Line::Trouble(what) => self.wrong(what),
            Line::Effect(_, BEATS, ..) => self.steps += 1,
            Line::Effect(step, number, what, value) => {
                self.steps += 1;
                self.act(step, number, what, value);
            }
            Line::Started(number, run) => {
                let first = *self.order(number).run.get_or_insert(run);
                if first != run {
                    self.wrong(format!("8: order {number} is {first} and {run}"));
                }
            }
            Line::Sent(number, is_new) => {
                let order = self.order(number);
                let is_forgotten = std::mem::replace(&mut order.sent, true) && is_new;
                if is_forgotten {
                    self.wrong(format!("12: the signal of {number} was forgotten"));
                }
            }
            Line::Finished(number, result) => self.finish(number, result),
            Line::Gone(number) => self.miss(number),
            Line::Swept(runs) => self.swept += runs,
        }
    }

    /// Hears a line of text; one that was cut off was not said.
    pub(super) fn hear_text(&mut self, text: &str) {
        Line::all_in(text).for_each(|line| self.hear(line));
    }

    pub(super) fn wrong(&mut self, what: String) {
        if self.violations.len() < ENOUGH {
            self.violations.push(what);
        }
    }

    fn order(&mut self, number: u64) -> &mut Order {
        self.highest = self.highest.max(number);
        let order = self.open.entry(number).or_default();
        let now = Instant::now();
        order.began_at.get_or_insert(now);
        order.heard_at = Some(now);
        order
    }

    fn act(&mut self, step: StepId, number: u64, what: String, value: u64) {
        if self.ended.contains(&number) {
            return self.wrong(format!("6: {what} of order {number} again, after its end"));
        }
        let effects = &mut self.order(number).effects;
        let (first, values) = effects
            .entry(step)
            .or_insert_with(|| (what.clone(), BTreeSet::new()));
        values.insert(value);
        if *first != what || values.len() > 1 && what != "draw" {
            let found = format!("5: {step} did {first} {values:?}, and {what} {value}");
            self.wrong(found);
        }
    }

    /// An order ended: it did what its nonce asks for, each under one id.
    fn finish(&mut self, number: u64, result: Transferred) {
        let order = self.open.remove(&number).unwrap_or_default();
        if !self.ended.insert(number) {
            return self.wrong(format!("16: the end of order {number} was told twice"));
        }
        // Where processes are stopped for longer than an order waits, nobody may have come to send it the word.
        let is_alone = !order.sent && order.began_at.is_some_and(|at| at.elapsed() >= GAVE_UP);
        let gave_up = is_alone && result == expected(0, result.nonce).1;
        let word = if gave_up { 0 } else { number };
        let (planned, right) = expected(word, result.nonce);
        if result != right {
            self.wrong(format!(
                "1: order {number} gave {result:?}, not {right:?}; its signal was sent: {}",
                order.sent
            ));
        }
        let (drawn, rest): (Vec<_>, Vec<_>) =
            order.effects.values().partition(|(what, _)| what == "draw");
        let is_drawn = drawn.len() == 1 && drawn[0].1.contains(&result.nonce);
        let done: BTreeSet<(&str, u64)> = rest
            .iter()
            .flat_map(|(what, values)| values.iter().map(|value| (&**what, *value)))
            .collect();
        if !is_drawn || rest.len() != planned.len() || done != BTreeSet::from(planned) {
            let found = format!("4: order {number} with {}: {order:?}", result.nonce);
            self.wrong(found);
        }
    }

    /// An order of which somebody was told is not there any more. It may have ended while nobody was told, but then for
    /// long enough to be removed.
    fn miss(&mut self, number: u64) {
        let order = self.open.remove(&number).unwrap_or_default();
        let since = order.heard_at.map(|at| at.elapsed());
        match since.is_some_and(|since| since >= KEEPS) {
            true => self.unseen += 1,
            false => self.wrong(format!(
                "20: order {number}, heard of {since:?} ago, is gone"
            )),
        }
    }

    /// Orders that were told to have ended.
    pub(super) fn ended(&self) -> u64 {
        self.ended.len() as u64
    }

    /// The orders that a next process takes up.
    pub(super) fn unfinished(&self) -> Open {
        let told = self.open.iter();
        told.filter_map(|(number, order)| Some((*number, order.run?)))
            .collect()
    }

    /// The highest number that was heard of, or the last one before the first of the newest process.
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// Gives the next process its first number: one that no process has used, heard or not.
    ///
    /// A process has so many orders under way at once that are not heard of, counted from its first number on or from
    /// the highest that was heard of. It may be killed when its first ones are in the store and before it said a word of them: what
    /// was given counts as if it had been heard of.
    pub(super) fn next(&mut self) -> u64 {
        let first = self.highest + 1 + AT_ONCE as u64;
        self.highest = first - 1;
        first
    }

    /// The checker of invariants, told what is open: it looks at the store, and the next one, if it comes soon, sees whether
    /// something has changed that must not.
    pub(super) fn witness(&mut self) -> &mut Witness {
        let is_old = |since: &Instant| since.elapsed() > FRESH;
        if self
            .witness
            .as_ref()
            .is_some_and(|(_, since)| is_old(since))
        {
            self.witness = None;
        }
        let (witness, since) = self.witness.get_or_insert_with(|| {
            let mut witness = Witness::new();
            witness.keeps_runs_for(KEEPS);
            witness.limit("hand_over", ATTEMPTS, BACKOFF);
            (witness, Instant::now())
        });
        *since = Instant::now();
        for (number, order) in &self.open {
            let Some(run) = order.run else { continue };
            match key(*number) {
                Some(key) => witness.started_under(&key, NAMESPACE, run, Some(KEEPS)),
                None => witness.started(NAMESPACE, run),
            }
            if order.sent {
                witness.signalled(run, "go", "go", Sent::Duplicate);
            }
        }
        witness
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(number: u64) -> Vec<Line> {
        let (effects, result) = expected(number, 77);
        let step = |n: u8| StepId::from_bytes([n; 16]);
        let mut lines = vec![
            Line::Started(number, RunId::from_bytes([1; 16])),
            Line::Effect(step(0), number, "draw".into(), 77),
        ];
        for (at, (what, value)) in (1..).zip(effects) {
            lines.push(Line::Effect(step(at), number, what.into(), value));
        }
        lines.extend([Line::Sent(number, true), Line::Finished(number, result)]);
        lines
    }

    fn judge(lines: impl IntoIterator<Item = Line>) -> Vec<String> {
        let mut book = Book::default();
        lines.into_iter().for_each(|line| book.hear(line));
        book.violations
    }

    #[test]
    fn an_order_that_is_right_is_forgotten() {
        let mut book = Book::default();
        right(8).into_iter().for_each(|line| book.hear(line));
        assert_eq!(book.violations, [""; 0]);
        assert_eq!((book.ended(), book.unfinished().len()), (1, 0));
        assert!(
            book.next() > 8 + AT_ONCE as u64,
            "a start that nobody heard of"
        );
    }

    #[test]
    fn numbers_of_a_process_of_which_nothing_was_heard_are_not_given_again() {
        let mut book = Book::default();
        right(8).into_iter().for_each(|line| book.hear(line));
        let mut used = 8 + AT_ONCE as u64;
        // Each was killed when its first orders were in the store, and before it said so.
        for _ in 0..3 {
            let first = book.next();
            assert!(first > used, "{first} was used before: up to {used}");
            used = first + AT_ONCE as u64 - 1;
        }
    }

    #[test]
    fn an_order_to_which_nobody_sent_the_word_may_give_up_in_its_time() {
        let step = |n: u8| StepId::from_bytes([n; 16]);
        let (effects, result) = expected(0, 77);
        let judge = |waited: Duration, sent: Option<Line>| {
            let mut book = Book::default();
            book.hear(Line::Started(8, RunId::from_bytes([1; 16])));
            book.hear(Line::Effect(step(0), 8, "draw".into(), 77));
            for (at, (what, value)) in (1..).zip(effects) {
                book.hear(Line::Effect(step(at), 8, what.into(), value));
            }
            sent.into_iter().for_each(|line| book.hear(line));
            let began = Instant::now().checked_sub(waited).expect("so long ago");
            book.order(8).began_at = Some(began);
            book.hear(Line::Finished(8, result));
            book.violations.len()
        };
        assert_eq!(judge(GIVES_UP, None), 0);
        assert_eq!(judge(Duration::ZERO, None), 2, "too early");
        assert_eq!(judge(GIVES_UP, Some(Line::Sent(8, true))), 2, "it was sent");
    }

    #[test]
    fn what_is_missing_doubled_late_or_another_is_seen() {
        let (effects, _) = expected(8, 77);
        let late = Line::Effect(StepId::from_bytes([1; 16]), 8, "debit".into(), effects[0].1);
        assert!(judge(right(8).into_iter().chain([late]))[0].starts_with("6:"));
        let (_, result) = expected(8, 78);
        let other = right(8)
            .into_iter()
            .take(8)
            .chain([Line::Finished(8, result)]);
        assert!(judge(other)[0].starts_with("4:"));
        let (_, result) = expected(9, 77);
        let other = right(8)
            .into_iter()
            .take(8)
            .chain([Line::Finished(8, result)]);
        assert!(judge(other)[0].starts_with("1:"));
        let second = Line::Effect(StepId::from_bytes([99; 16]), 8, "ship".into(), effects[3].1);
        assert!(judge([second].into_iter().chain(right(8)))[0].starts_with("4:"));
        assert!(judge(right(8).into_iter().skip(2))[0].starts_with("4:"));
        let run = Line::Started(8, RunId::from_bytes([2; 16]));
        assert!(judge([run].into_iter().chain(right(8)))[0].starts_with("8:"));
        assert!(judge([Line::Sent(8, true), Line::Sent(8, true)])[0].starts_with("12:"));
        assert!(judge(right(8).into_iter().take(3).chain([Line::Gone(8)]))[0].starts_with("20:"));
    }
}
