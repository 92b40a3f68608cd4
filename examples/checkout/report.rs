//! What came of it: the journal, who executed what, the ledger, and whether all of it is right.

use std::fmt;
use std::path::Path;
use std::time::SystemTime;

use workflow_runtime::journal::{Event, Journal, Record};
use workflow_runtime::{Engine, Error, Result};

use super::outside::{Entry, Kind, ledger_file, read_ledger};
use super::theatre::Seen;
use super::{Confirmation, Order};

/// Shows everything and says whether it is right.
pub(crate) async fn show(
    engine: &Engine,
    dir: &Path,
    processes: &[Seen],
    order: &Order,
    confirmation: &Confirmation,
) -> Result<bool> {
    let runs = engine.runs().await?.runs;
    let [run] = &runs[..] else {
        return Err(Error::new(format!(
            "one run expected, {} found",
            runs.len()
        )));
    };
    let journal = engine.journal(run.run).await?;
    let ledger = read_ledger(&ledger_file(dir))?;

    println!("\nThe journal: what the three processes know of each other\n");
    print!("{journal}");
    println!("\nWho executed what, and what came from the journal\n");
    show_table(&journal, processes);
    println!("\nThe ledger of the payment API, with the key of each request\n");
    ledger.iter().for_each(|entry| println!("  {entry}"));
    println!("\nAsked again under the same key, by a fourth process: {confirmation}");

    let mut problems = check_ledger(&ledger, &journal, order);
    problems.extend(check_processes(processes, &journal, confirmation));
    problems.extend(check_result(&ledger, order, confirmation));
    let damaged = engine.verify().await?.damaged;
    problems.extend(damaged.iter().map(ToString::to_string));
    show_verdict(&problems);
    Ok(problems.is_empty())
}

fn show_table(journal: &Journal, processes: &[Seen]) {
    let columns = (1..=processes.len()).map(|number| format!("process {number}"));
    show_row("", "attempts", columns);
    for record in journal.records() {
        let (name, attempts) = match &record.event {
            Event::StepCompleted(step) => (&*step.name, step.attempts.to_string()),
            Event::TimerFired(_) => ("sleep", "-".to_owned()),
            _ => continue,
        };
        let parts = (0..processes.len()).map(|at| part(journal, record, name, processes, at));
        show_row(name, &attempts, parts);
    }
}

fn show_row(name: &str, attempts: &str, cells: impl Iterator<Item = impl fmt::Display>) {
    let cells: String = cells.map(|cell| format!("   {cell:<17}")).collect();
    println!("  {name:<15} {attempts:>8}{}", cells.trim_end());
}

/// What a process had to do with an outcome.
fn part(
    journal: &Journal,
    outcome: &Record,
    name: &str,
    processes: &[Seen],
    number: usize,
) -> &'static str {
    let recorded_by = writer(outcome, processes);
    let set_by = journal.records().iter().find_map(|record| {
        let set = matches!((&record.event, &outcome.event),
            (Event::TimerSet(set), Event::TimerFired(fired)) if set.timer == fired.timer);
        set.then(|| writer(record, processes))
    });
    match executions(&processes[number], name) {
        _ if number > recorded_by => "replayed",
        0 if number == recorded_by => "woke up",
        0 if set_by == Some(number) => "went to sleep",
        0 => "-",
        _ if number < recorded_by => "executed, lost",
        1 => "executed",
        _ => "executed, retried",
    }
}

/// Which process wrote a record: the last one that was there when it was written.
fn writer(record: &Record, processes: &[Seen]) -> usize {
    let time = SystemTime::from(record.time);
    let later = |seen: &Seen| seen.spawned_at > time;
    let after = processes.iter().position(later);
    after.unwrap_or(processes.len()).saturating_sub(1)
}

fn executions(process: &Seen, step: &str) -> usize {
    let executed = process.executed.iter();
    executed.filter(|executed| *executed == step).count()
}

/// One charge, of the right amount, under the id that the journal has for the step.
fn check_ledger(ledger: &[Entry], journal: &Journal, order: &Order) -> Vec<String> {
    let mut problems = Vec::new();
    let count = |kind| ledger.iter().filter(|entry| entry.kind == kind).count();
    match (count(Kind::Charge), count(Kind::Repeat)) {
        (1, 1) => {}
        (charges, repeats) => problems.push(format!(
            "the ledger has {charges} charges and {repeats} repeats, not one of each"
        )),
    }
    let ids: Vec<String> = journal
        .records()
        .iter()
        .filter_map(|record| match &record.event {
            Event::StepCompleted(step) if *step.name == *"charge" => Some(step.step.to_string()),
            _ => None,
        })
        .collect();
    if ids.len() != 1 {
        problems.push(format!("the journal has {} outcomes of charge", ids.len()));
    }
    for entry in ledger {
        if !ids.contains(&entry.key) {
            problems.push(format!(
                "{} is not the id of the journaled charge",
                entry.key
            ));
        }
        let cents = match entry.kind {
            Kind::Charge => order.cents,
            Kind::Repeat => 0,
        };
        if (entry.cents, &entry.customer) != (cents, &order.customer) {
            problems.push(format!("not what was ordered: {entry}"));
        }
    }
    problems
}

/// The story went as it was meant to: the charge ran twice, everything else was not repeated.
fn check_processes(
    processes: &[Seen],
    journal: &Journal,
    confirmation: &Confirmation,
) -> Vec<String> {
    let mut problems = Vec::new();
    let planned: [&[&str]; 3] = [
        &["reserve_stock", "charge"],
        &["charge", "send_receipt"],
        &["ship", "ship"],
    ];
    for (number, (seen, planned)) in processes.iter().zip(planned).enumerate() {
        if seen.executed != planned {
            problems.push(format!(
                "process {} executed {:?}, not {planned:?}",
                number + 1,
                seen.executed
            ));
        }
    }
    let recovered = |record: &&Record| matches!(record.event, Event::RunRecovered(_));
    if journal.records().iter().filter(recovered).count() != 1 {
        problems.push("the journal does not tell of the crash during the charge".into());
    }
    let last = processes.last().and_then(|seen| seen.confirmed.as_deref());
    if last != Some(&confirmation.to_string()) {
        problems.push(format!(
            "process 3 was told {last:?}, asked again it is \"{confirmation}\""
        ));
    }
    problems
}

fn check_result(ledger: &[Entry], order: &Order, confirmation: &Confirmation) -> Vec<String> {
    let receipt = &confirmation.receipt;
    let paid = ledger.iter().any(|entry| {
        entry.kind == Kind::Charge
            && entry.receipt == receipt.number
            && receipt.cents == order.cents
    });
    match paid {
        true => Vec::new(),
        false => vec![format!("{receipt:?} is not in the ledger")],
    }
}

fn show_verdict(problems: &[String]) {
    if problems.is_empty() {
        println!(
            "\nRIGHT: two crashes, `charge` executed twice, the card charged once, the order shipped."
        );
        return;
    }
    println!("\nWRONG:");
    problems
        .iter()
        .for_each(|problem| println!("  - {problem}"));
}
