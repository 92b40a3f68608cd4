//! What must come of retries, forks and schedules.
//!
//! Owns the judgement of what `beyond` did. Reads, and never repairs or waits.

use workflow_runtime::journal::{Event, Journal};
use workflow_runtime::store::{Origin, RunHeader};

use super::beyond::{seconds, side_by_side};
use super::extras::Beat;
use super::reader::Reader;
use super::workflows::tick;
use super::{Acknowledged, Case, Forked};

/// Everything, once all runs have ended.
pub(super) fn whole(case: &Case, reader: &Reader, told: &Acknowledged) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(run) = told.run
        && let Ok(journal) = reader.journal(run)
    {
        wrong.extend(retries(told, &journal));
    }
    for fork in &told.forks {
        wrong.extend(forked(fork, reader));
    }
    if let Some(beat) = &case.extras.beat {
        wrong.extend(ticks(beat, reader, told));
    }
    wrong
}

/// A retry that was acknowledged is on record, and none is that nobody asked for.
fn retries(told: &Acknowledged, journal: &Journal) -> Vec<String> {
    let events = journal.records().iter().map(|record| &record.event);
    let made = events
        .filter(|event| matches!(event, Event::RunReopened(_)))
        .count() as u64;
    match told.retried <= made && made <= told.retries_asked {
        true => Vec::new(),
        false => vec![format!(
            "16: {made} retries are on record, {} were acknowledged and {} asked for\n{journal}",
            told.retried, told.retries_asked
        )],
    }
}

/// A fork shares what its origin had before a record, and nothing else.
fn forked(fork: &Forked, reader: &Reader) -> Vec<String> {
    let (origin, made) = match (reader.journal(fork.origin), reader.journal(fork.run)) {
        (Ok(origin), Ok(made)) => (origin, made),
        (Err(error), _) | (_, Err(error)) => return vec![format!("1: a fork: {error}")],
    };
    let mut wrong = Vec::new();
    if made.header().origin != Some(Origin::Forked(fork.origin)) {
        wrong.push("2: a fork does not name its origin".to_owned());
    }
    let is_fork = |event: &Event| matches!(event, Event::RunForked(_));
    let records = made.records();
    let place = records.iter().rposition(|record| is_fork(&record.event));
    // What begins anew forgets, in the origin as in the fork.
    let is_whole = |journal: &Journal| {
        let records = journal.records().iter().zip(0_u64..);
        records.into_iter().all(|(record, n)| record.seq == n)
    };
    if !is_whole(&origin) || !is_whole(&made) {
        return wrong;
    }
    let shared = origin.records().iter().take_while(|it| it.seq < fork.at);
    let shared: Vec<&Event> = shared.map(|record| &record.event).collect();
    let copied = &records[..place.unwrap_or_default()];
    if copied.iter().map(|it| &it.event).ne(shared.iter().copied()) {
        wrong.push(format!(
            "2: a fork at record {} does not share what is before it\n{origin}\n{made}",
            fork.at
        ));
    }
    wrong
}

/// No tick is run twice, early or not at all.
fn ticks(beat: &Beat, reader: &Reader, told: &Acknowledged) -> Vec<String> {
    let headers = reader.headers();
    let of_beat = headers.iter().filter(|it| &*it.workflow == tick::NAME);
    let is_trigger = |it: &&RunHeader| it.key.as_deref().is_some_and(|key| key.contains("/trig"));
    let (triggered, mut ticked): (Vec<&RunHeader>, Vec<&RunHeader>) = of_beat.partition(is_trigger);
    // Times as people write them, one as long as the other.
    ticked.sort_by(|a, b| a.key.cmp(&b.key));
    let mut wrong = Vec::new();
    let count = triggered.len();
    if !(told.beat.triggers..=told.beat.triggers_asked).contains(&count) {
        wrong.push(format!("1: {count} runs of {:?}", told.beat));
    }
    if ticked.windows(2).any(|pair| pair[0].key == pair[1].key) {
        wrong.push("8: a tick has two runs".to_owned());
    }
    let Ok(skipped) = reader.skipped_ticks() else {
        return vec!["1: the schedule is gone".to_owned()];
    };
    let settled = ticked.len() as u64 + skipped;
    let all = u64::from(beat.ticks);
    let must_be_all = beat.settles_all() && !told.beat.was_paused && told.beat.is_over;
    if settled > all || must_be_all && settled != all {
        wrong.push(format!(
            "14: of {all} ticks {} were run and {skipped} skipped: {beat:?}",
            ticked.len()
        ));
    }
    // Which tick is whose is only known if none is missing.
    let is_each = ticked.len() as u64 == all;
    for (n, run) in (0..).zip(&ticked) {
        let due = if is_each { beat.tick(n) } else { beat.start() };
        let made = run.created_at.as_micros() / 1_000_000;
        // Several are due at once when a clock was turned, and it may be turned back before all of them are made.
        if made < seconds(due) && !told.turned_back {
            wrong.push(format!("11: a tick was run early, {}", run.run));
        }
    }
    if !side_by_side(beat.overlap) && !told.turned_back && told.beat.triggers_asked == 0 {
        for pair in ticked.windows(2) {
            let end = pair[0].end();
            if end.is_none_or(|end| end.at > pair[1].created_at) {
                wrong.push(format!(
                    "14: two ticks are run at the same time: {} and {}",
                    pair[0].run, pair[1].run
                ));
            }
        }
    }
    wrong
}
