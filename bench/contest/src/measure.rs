//! What the kernel counts: processor time, memory, bytes on disk; of this process and of servers.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Processor seconds so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    /// Of this process.
    pub(crate) own: f64,
    /// Of the servers and their children.
    pub(crate) servers: f64,
}

/// Reads the processor time so far, in steps of 10 ms.
pub(crate) fn cpu(servers: &[u32]) -> Cpu {
    let family = family(servers);
    let servers_time = family.iter().map(|pid| {
        // A server has waited for the children that are gone; theirs is in its third and fourth field.
        let fields = if servers.contains(pid) { 4 } else { 2 };
        ticks(*pid, fields)
    });
    Cpu {
        own: ticks(std::process::id(), 2),
        servers: servers_time.sum(),
    }
}

fn ticks(pid: u32, fields: usize) -> f64 {
    let ticks = stat(pid).into_iter().skip(11).take(fields);
    ticks
        .filter_map(|text| text.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

/// The fields of a process's `stat` after its name.
fn stat(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().map(str::to_owned).collect()
}

/// Returns these processes and their children.
pub fn family(servers: &[u32]) -> Vec<u32> {
    let mut family = servers.to_vec();
    if servers.is_empty() {
        return family;
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let parent = stat(pid).get(1).and_then(|text| text.parse().ok());
        if parent.is_some_and(|parent| servers.contains(&parent)) {
            family.push(pid);
        }
    }
    family
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn resident() -> f64 {
    kibibytes("/proc/self/status", "VmRSS:") * 1024.0
}

/// Returns the memory of the servers, in bytes; a page that several share is counted once.
pub(crate) fn resident_of(servers: &[u32]) -> f64 {
    let family = family(servers);
    let each = family
        .iter()
        .map(|pid| kibibytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:"));
    each.sum::<f64>() * 1024.0
}

fn kibibytes(path: &str, field: &str) -> f64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Returns what a directory takes on disk, in bytes: allocated blocks, not lengths of files.
pub(crate) fn disk_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            // Removed meanwhile.
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_burns_time() {
        assert!(resident() > 100_000.0);
        let before = cpu(&[]).own;
        let began = std::time::Instant::now();
        while cpu(&[]).own - before < 0.02 {
            assert!(began.elapsed().as_secs() < 60, "time is counted");
        }
    }
}
