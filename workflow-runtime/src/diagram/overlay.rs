//! What a run made of a picture: read from its journal.
//!
//! Owns how records find their boxes: by the place in the source that they name, and by the name alone where the source
//! has moved since. It shows counts, attempts and times, never a payload.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::time::Duration;

use super::graph::{Graph, Kind, Spot, State};
use crate::clock::Timestamp;
use crate::ids::StepId;
use crate::journal::{End, Event, Journal, Record};
use crate::store::{EndKind, RunState};

/// One call of a run, as far as it is on record.
#[derive(Debug)]
struct Call {
    id: Option<StepId>,
    name: Box<str>,
    /// `file:line`; empty if it is not on record.
    source: Box<str>,
    state: State,
    attempts: u32,
    took: Duration,
    /// What else there is to say of one that runs.
    note: String,
}

/// Lays a run over a graph.
pub(super) fn lay(graph: &mut Graph, run: &Journal) {
    let calls = calls(run);
    let mut of_box: Vec<Vec<&Call>> = graph.boxes.iter().map(|_| Vec::new()).collect();
    let mut elsewhere = 0;
    for call in &calls {
        let boxes = boxes_of(graph, call);
        elsewhere += usize::from(boxes.is_empty() && call.id.is_some());
        boxes.into_iter().for_each(|at| of_box[at].push(call));
    }
    for (it, calls) in graph.boxes.iter_mut().zip(&of_box) {
        if it.spot.is_some() {
            it.state = Some(summary(calls));
            it.text.extend(told(calls));
        }
    }
    count_rounds(graph, &of_box);
    terminals(graph, run, elsewhere);
    if !matches!(run.header().state, RunState::Ended(_)) {
        mark_next(graph);
    }
}

/// Calls in the order of their first record, and where each stands.
#[derive(Default)]
struct Calls {
    all: Vec<Call>,
    places: HashMap<StepId, usize>,
}

/// The calls that are on record. Records that no longer count are left out.
fn calls(run: &Journal) -> Vec<Call> {
    let records = run.records();
    let voided = voided(records);
    let mut calls = Calls::default();
    for record in records.iter().filter(|it| !voided.contains(&it.seq)) {
        match &record.event {
            Event::StepCompleted(step) => {
                let call = calls.take(step.step, &step.name, &step.source);
                call.state = match step.outcome.is_success() {
                    true => State::Done,
                    false => State::Failed,
                };
                call.attempts = step.attempts;
                call.took = record.time.since(step.called_at);
                call.note.clear();
            }
            Event::StepIntent(intent) => {
                calls.take(intent.step, &intent.name, &intent.source);
            }
            Event::AttemptFailed(failed) => {
                let call = calls.take(failed.step, &failed.name, "");
                call.attempts = failed.attempt;
                call.note = format!(
                    "attempt {} failed, next at {}",
                    failed.attempt, failed.next_at
                );
            }
            Event::TimerSet(timer) => {
                let call = calls.take(timer.timer, "", &timer.source);
                call.note = format!("until {}", timer.deadline);
                call.took = timer.deadline.since(record.time);
            }
            Event::TimerFired(fired) => calls.finish(fired.timer, State::Done, None),
            Event::ChildStarted(child) => {
                let call = calls.take(child.call, &child.workflow, &child.source);
                call.note = format!("since {}", record.time);
            }
            Event::ChildFinished(child) => {
                let state = match child.end {
                    End::Completed(_) => State::Done,
                    _ => State::Failed,
                };
                let began = began(records, child.call).unwrap_or(record.time);
                calls.finish(child.call, state, Some(record.time.since(began)));
            }
            Event::SignalReceived(signal) => calls.all.push(Call {
                id: None,
                name: signal.name.clone(),
                source: "".into(),
                state: State::Done,
                attempts: 1,
                took: Duration::ZERO,
                note: String::new(),
            }),
            _ => {}
        }
    }
    calls.all
}

/// The records that no longer count.
fn voided(records: &[Record]) -> BTreeSet<u64> {
    let mut voided = BTreeSet::new();
    for record in records {
        match &record.event {
            Event::RunReopened(reopened) => voided.extend(&reopened.voided),
            Event::StaleOutcomeDiscarded(stale) => {
                voided.insert(stale.discarded);
            }
            _ => {}
        }
    }
    voided
}

/// When a child was started.
fn began(records: &[Record], call: StepId) -> Option<Timestamp> {
    let is = |record: &&Record| matches!(&record.event, Event::ChildStarted(it) if it.call == call);
    records.iter().find(is).map(|record| record.time)
}

impl Calls {
    /// The call with an id, which is new if it is not known.
    fn take(&mut self, id: StepId, name: &str, source: &str) -> &mut Call {
        let at = *self.places.entry(id).or_insert_with(|| {
            self.all.push(Call {
                id: Some(id),
                name: name.into(),
                source: "".into(),
                state: State::Running,
                attempts: 0,
                took: Duration::ZERO,
                note: String::new(),
            });
            self.all.len() - 1
        });
        let call = &mut self.all[at];
        if !source.is_empty() {
            call.source = source.into();
        }
        call
    }

    fn finish(&mut self, id: StepId, state: State, took: Option<Duration>) {
        let Some(&at) = self.places.get(&id) else {
            return;
        };
        let call = &mut self.all[at];
        call.state = state;
        call.attempts = 1;
        call.note.clear();
        call.took = took.unwrap_or(call.took);
    }
}

/// The boxes that a call belongs to: those at its place in the source, or the first one of its name.
fn boxes_of(graph: &Graph, call: &Call) -> Vec<usize> {
    let find = |is: &dyn Fn(&Spot) -> bool| -> Vec<usize> {
        let boxes = graph.boxes.iter().enumerate();
        let boxes = boxes.filter(|(_, it)| it.spot.is_some_and(|spot| is(&spot)));
        boxes.map(|(at, _)| at).collect()
    };
    if call.id.is_none() {
        let name = format!("\"{}\"", call.name);
        let mut all =
            find(&|spot| matches!(spot.name, "wait_for" | "signals") && spot.said == name);
        all.truncate(1);
        return all;
    }
    let there = |spot: &Spot| format!("{}:{}", spot.file, spot.line) == *call.source;
    if call.name.is_empty() {
        return find(&|spot| there(spot) && spot.name.starts_with("sleep"));
    }
    let exact = find(&|spot| there(spot) && spot.name == &*call.name);
    if !exact.is_empty() {
        return exact;
    }
    let mut by_name = find(&|spot| spot.name == &*call.name);
    by_name.truncate(1);
    by_name
}

/// What a run made of a box. What is under way counts before what is over, and a failure before a success.
fn summary(calls: &[&Call]) -> State {
    let any = |state| calls.iter().any(|call| call.state == state);
    let by_weight = [State::Running, State::Failed, State::Done];
    let found = by_weight.into_iter().find(|state| any(*state));
    found.unwrap_or(State::NotReached)
}

/// What is said of the calls of a box.
fn told(calls: &[&Call]) -> Vec<String> {
    let mut lines = Vec::new();
    for (state, word) in [(State::Done, "done"), (State::Failed, "failed")] {
        let ended: Vec<_> = calls.iter().filter(|call| call.state == state).collect();
        if ended.is_empty() {
            continue;
        }
        let mut line = word.to_owned();
        if ended.len() > 1 {
            let _ = write!(line, " {} times", ended.len());
        }
        let attempts: u32 = ended.iter().map(|call| call.attempts).sum();
        if attempts as usize > ended.len() {
            let _ = write!(line, ", {attempts} attempts");
        }
        let took: Duration = ended.iter().map(|call| call.took).sum();
        if took > Duration::ZERO {
            let _ = write!(line, ", {}", time(took));
        }
        lines.push(line);
    }
    let running = calls.iter().filter(|call| call.state == State::Running);
    lines.extend(running.map(|call| match &*call.note {
        "" => "running".to_owned(),
        note => format!("running, {note}"),
    }));
    lines
}

/// A time as people say it.
fn time(took: Duration) -> String {
    let seconds = took.as_secs_f64();
    match took.as_secs() {
        0 if took.as_millis() == 0 => format!("{} µs", took.as_micros()),
        0 => format!("{} ms", took.as_millis()),
        1..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{:.1} min", seconds / 60.0),
        3600..86_400 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

/// Says at loops how often at least one of the calls in them was made.
fn count_rounds(graph: &mut Graph, of_box: &[Vec<&Call>]) {
    for at in 0..graph.boxes.len() {
        if graph.boxes[at].kind != Kind::Loop {
            continue;
        }
        let inside = (at + 1..graph.boxes.len()).filter(|&to| leads(graph, to, at));
        let most = inside.map(|to| of_box[to].len()).max().unwrap_or(0);
        graph.boxes[at].text.push(match most {
            0 => "no round on record".to_owned(),
            1 => "1 round on record".to_owned(),
            rounds => format!("{rounds} rounds on record"),
        });
    }
}

/// Says whether arrows lead from a box back to a loop before it, through boxes behind that loop.
fn leads(graph: &Graph, from: usize, to: usize) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut left = vec![from];
    while let Some(at) = left.pop() {
        for arrow in graph.arrows.iter().filter(|arrow| arrow.from == at) {
            if arrow.to == to {
                return true;
            }
            if arrow.to > to && seen.insert(arrow.to) {
                left.push(arrow.to);
            }
        }
    }
    false
}

/// Says at the beginning which run it is, and at the end how it ended.
fn terminals(graph: &mut Graph, run: &Journal, elsewhere: usize) {
    let header = run.header();
    let began = run.records().first().map(|record| record.time);
    let last = graph.boxes.len() - 1;
    let start = &mut graph.boxes[0];
    start.state = Some(State::Done);
    start.text.push(header.run.to_string());
    if let Some(began) = began {
        start.text.push(began.to_string());
    }
    match elsewhere {
        0 => {}
        1 => start
            .text
            .push("1 call on record is not in the picture".into()),
        n => start
            .text
            .push(format!("{n} calls on record are not in the picture")),
    }
    let end = &mut graph.boxes[last];
    let (state, text) = match &header.state {
        RunState::Ended(ended) => {
            let took = time(ended.at.since(began.unwrap_or(ended.at)));
            match ended.kind {
                EndKind::Completed => (State::Done, format!("completed, {took}")),
                EndKind::Failed => (State::Failed, format!("failed, {took}")),
                EndKind::Aborted => (State::Failed, format!("aborted, {took}")),
                EndKind::Cancelled => (State::Failed, format!("cancelled, {took}")),
                EndKind::Continued => (State::Done, format!("went on as a new run, {took}")),
            }
        }
        RunState::Parked(parking) => (State::NotReached, format!("parked: {:?}", parking.reason)),
        RunState::Asleep { .. } => (State::NotReached, "asleep".to_owned()),
        RunState::Active => (State::NotReached, "under way".to_owned()),
    };
    end.state = Some(state);
    end.text.push(text);
}

/// Marks what comes directly behind what is done and has no record: it may be running.
fn mark_next(graph: &mut Graph) {
    let last = graph.boxes.len() - 1;
    let done = |graph: &Graph, at: usize| graph.boxes[at].state == Some(State::Done);
    let sources: Vec<_> = (0..last).filter(|&at| done(graph, at)).collect();
    let mut seen: BTreeSet<usize> = sources.iter().copied().collect();
    let mut left = sources;
    let mut next = Vec::new();
    while let Some(at) = left.pop() {
        let arrows = graph.arrows.iter().filter(|arrow| arrow.from == at);
        for to in arrows.map(|arrow| arrow.to).filter(|to| *to != last) {
            match graph.boxes[to].state {
                Some(State::NotReached) => next.push(to),
                None if seen.insert(to) => left.push(to),
                _ => {}
            }
        }
    }
    for at in next {
        graph.boxes[at].state = Some(State::Next);
    }
}
