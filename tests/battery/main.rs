//! The reliability battery: faults against invariants, at any scale.
//!
//! `cargo run --release -p battery -- --scale 0.01` runs every row at a hundredth of its full figure and prints a table.
//! `--only NAME` runs one row, `--seed N` one case of it, exactly as it was; `--json` prints JSON lines. The exit code is 1
//! if anything was violated. Rows that need a process to be killed or starved start this program again (`--child`).
//! `soak --minutes 30` is chaos for half an hour, with memory, descriptors and disk sampled and plotted.
#![expect(
    clippy::print_stdout,
    reason = "it is a program, and this is its report"
)]

mod chance;
mod options;
mod report;
mod rows;
mod sim;

use std::process::ExitCode;

use self::options::Options;

fn main() -> ExitCode {
    let code = run();
    rows::scratch::clean();
    code
}

fn run() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if rows::child::answer(&words) {
        return ExitCode::SUCCESS;
    }
    if let Some(("soak", rest)) = words.split_first().map(|(word, rest)| (&**word, rest)) {
        return rows::soak::command(rest);
    }
    let options = match Options::parse(words.into_iter()) {
        Ok(options) => options,
        Err(problem) => {
            println!("{problem}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    let mut is_clean = true;
    let mut results = Vec::new();
    for row in rows::ALL.iter().filter(|row| options.wants(row.name)) {
        let result = row.run(&options);
        is_clean &= result.violated == 0;
        if options.json {
            println!("{}", result.json());
        }
        results.push(result);
    }
    if !options.json {
        println!("{}", report::table(&results));
    }
    match is_clean {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
