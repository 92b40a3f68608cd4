//! How often a system syncs, counted by `strace` and not believed.
//!
//! Two chains are run under it, a long and a short one: their difference has no opening in it. Where the journal is in a server,
//! that is what is traced.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::process::Task;

/// The system calls that make what was written durable.
const CALLS: &str = "trace=fsync,fdatasync";

/// Words before a program that is traced from its start.
pub fn strace(summary: &Path) -> Vec<String> {
    let summary = summary.display().to_string();
    let words = ["strace", "-f", "-q", "-c", "-e", CALLS, "-o"];
    words
        .map(str::to_owned)
        .into_iter()
        .chain([summary])
        .collect()
}

/// Says whether there is such a program.
pub fn is_there() -> bool {
    let version = Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// Runs a task and counts the syncs of its process, or of these servers.
///
/// # Errors
///
/// Why they could not be counted.
pub fn count(task: Task, servers: &[u32], scratch: &Path) -> Result<u64, String> {
    let summary = scratch.join("strace");
    let _ = fs::remove_file(&summary);
    let said = if servers.is_empty() {
        task.under(strace(&summary)).run()
    } else {
        let tracer = attach(servers, &summary)?;
        let said = task.run();
        detach(tracer)?;
        said
    };
    if let Some(why) = said.failed {
        return Err(why);
    }
    let text = fs::read_to_string(&summary);
    Ok(calls(&text.map_err(|error| {
        format!("strace wrote no summary: {error}")
    })?))
}

/// Traces servers, their children and all that they start from now on.
fn attach(servers: &[u32], summary: &Path) -> Result<Child, String> {
    let words = strace(summary);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    for pid in contest::family(servers) {
        command.args(["-p", &pid.to_string()]);
    }
    let tracer = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let tracer = tracer.map_err(|error| format!("strace: {error}"))?;
    // Until it has all of them.
    std::thread::sleep(Duration::from_secs(1));
    Ok(tracer)
}

/// Lets it write its summary.
fn detach(mut tracer: Child) -> Result<(), String> {
    let interrupt = ["-INT".to_owned(), tracer.id().to_string()];
    let sent = Command::new("kill").args(interrupt).status();
    sent.map_err(|error| format!("kill: {error}"))?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        if tracer.try_wait().ok().flatten().is_some() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = tracer.kill();
    let _ = tracer.wait();
    Err("strace did not let go".into())
}

/// Adds up the calls in a summary: `% time, seconds, usecs/call, calls, [errors,] syscall`.
fn calls(summary: &str) -> u64 {
    let rows = summary
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of = rows.filter(|row| matches!(row.last(), Some(&("fsync" | "fdatasync"))));
    of.filter_map(|row| row.get(3)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_added_up_from_a_summary() {
        let summary = "% time     seconds  usecs/call     calls    errors syscall\n\
                       ------ ----------- ----------- --------- --------- ----------------\n \
                       99.10    0.101234         100      1012           fdatasync\n  \
                       0.90    0.001234         100         3         1 fsync\n\
                       ------ ----------- ----------- --------- --------- ----------------\n\
                       100.00    0.102468         100      1015           total\n";
        assert_eq!(calls(summary), 1015);
        assert_eq!(calls(""), 0);
    }
}
