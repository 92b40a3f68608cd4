//! Runs the mutants that cargo-mutants lists, all from one build: see docs/reliability.md, "Mutants".
//!
//! Owns the order of things: list, plant, build, reach, hunt. What it finds is in the output directory, and it goes on from
//! there.

mod copy;
mod hunt;
mod list;
mod plant;
mod report;
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let (mut output, mut minutes, mut again) = (PathBuf::from("/tmp/mutants"), 60, false);
    let (mut just_report, mut most) = (false, usize::MAX);
    let (mut only, mut filter, mut cargo) = (String::new(), String::new(), Vec::new());
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--output" => output = value()?.into(),
            "--minutes" => {
                minutes = value()?
                    .parse()
                    .map_err(|error| format!("--minutes: {error}"))?
            }
            "--most" => {
                most = value()?
                    .parse()
                    .map_err(|error| format!("--most: {error}"))?
            }
            "--tests" => filter = value()?,
            "--only" => only = value()?,
            "--again" => again = true,
            "--report" => just_report = true,
            "--" => cargo = arguments.by_ref().collect(),
            other => {
                return Err(format!(
                    "{other} is not known: --output, --minutes, --most, --only, --tests, --again, --report, -- for cargo test"
                ));
            }
        }
    }
    let repository = std::env::current_dir().map_err(|error| error.to_string())?;
    let mutants = list::read(&output.join("list.json"))?;
    if just_report {
        report::print(&output, &mutants);
        return Ok(());
    }
    let (binaries, left_out) = copy::build(&repository, &output, &mutants, &cargo)?;
    println!(
        "{} mutants, {} of them not in the build",
        mutants.len(),
        left_out.len()
    );
    let tests = tests::measure(&output, &binaries, &filter)?;
    let names: HashMap<u32, &str> = mutants
        .iter()
        .map(|mutant| (mutant.id, mutant.name.as_str()))
        .collect();
    println!(
        "{} tests reach {} mutants",
        tests.len(),
        tests::reached(&tests).len().min(names.len())
    );
    let wanted = |name: &str| only.split(',').any(|part| name.contains(part));
    let chosen = mutants
        .iter()
        .filter(|mutant| wanted(&mutant.name))
        .cloned()
        .collect();
    let patience = hunt::Patience { minutes, most };
    hunt::hunt(&output, chosen, &left_out, &tests, patience, again)?;
    report::print(&output, &mutants);
    Ok(())
}
