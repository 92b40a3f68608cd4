//! What the testing kit does for users' tests.

mod called;
mod chaos;
mod crashing;
mod driving;
mod exporting;
mod ledger;
mod lock;
mod overlay;
mod recorded;
mod recording;
mod redacting;
mod replaying;
mod strategies;
mod stub_kinds;
mod stubs;
mod time;
mod types;
mod witness;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a user's test on a thread of its own and gives the text that it fails with; places in the source lose
/// their columns and lines, which change with every edit of these tests.
fn failing_text(test: impl Future<Output = ()> + Send) -> String {
    match outcome(test) {
        Ok(()) => panic!("the test was to fail"),
        Err(text) => without_lines(&text),
    }
}

/// Runs a user's test that does not fail.
fn stays_silent(test: impl Future<Output = ()> + Send) {
    assert_eq!(outcome(test), Ok(()));
}

fn outcome(test: impl Future<Output = ()> + Send) -> Result<(), String> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime is made");
        catch_unwind(AssertUnwindSafe(|| runtime.block_on(test)))
    };
    let ended = std::thread::scope(|scope| scope.spawn(run).join().expect("it is caught"));
    ended.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.expect("a panic with a text")
    })
}

/// Replaces `file.rs:12:34` and `file.rs:12` by `file.rs:…`.
fn without_lines(text: &str) -> String {
    let mut parts = text.split(".rs:");
    let mut cleaned = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let rest = match rest.strip_prefix(':') {
            Some(column) if column.starts_with(|c: char| c.is_ascii_digit()) => {
                column.trim_start_matches(|c: char| c.is_ascii_digit())
            }
            _ => rest,
        };
        cleaned.push_str(".rs:…");
        cleaned.push_str(rest);
    }
    cleaned
}
