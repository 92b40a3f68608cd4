//! What is measured of a process and of its store, from outside.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// One look.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sample {
    /// Since the beginning of the soak.
    pub(super) seconds: f64,
    /// Which process it was.
    pub(super) life: u64,
    /// Whether that is one which is left alone for long.
    pub(super) is_undisturbed: bool,
    /// Its memory; `None` while none lives.
    pub(super) rss_kib: Option<u64>,
    pub(super) descriptors: Option<u64>,
    /// What the files of the store take on the disk.
    pub(super) disk_kib: u64,
    /// Orders that were told to have ended so far.
    pub(super) ended: u64,
    /// Runs that were deleted so far.
    pub(super) swept: u64,
    /// Steps that were executed so far.
    pub(super) steps: u64,
}

impl Sample {
    /// The sample as one line of JSON.
    pub(super) fn json(&self) -> String {
        serde_json::json!({
            "seconds": (self.seconds * 10.0).round() / 10.0,
            "life": self.life,
            "undisturbed": self.is_undisturbed,
            "rss_kib": self.rss_kib,
            "descriptors": self.descriptors,
            "disk_kib": self.disk_kib,
            "ended": self.ended,
            "swept": self.swept,
            "steps": self.steps,
        })
        .to_string()
    }
}

/// The memory of a process that is there.
pub(super) fn rss_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The descriptors that a process has open.
pub(super) fn descriptors(process: u32) -> Option<u64> {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    Some(open.count() as u64)
}

/// What all files below a directory take on the disk. Files that go meanwhile are not counted.
pub(super) fn disk_kib(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    let one = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => disk_kib(&entry.path()),
        Ok(about) => about.blocks() / 2,
        Err(_) => 0,
    };
    entries.flatten().map(one).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_a_directory_can_be_measured() {
        let directory = tempfile::tempdir().expect("made");
        std::fs::create_dir(directory.path().join("log")).expect("made");
        std::fs::write(directory.path().join("log/one"), vec![1; 300_000]).expect("written");
        assert!((292..400).contains(&disk_kib(directory.path())));
        let this = std::process::id();
        let before = descriptors(this).expect("it lives");
        let files: Vec<_> = (0..50)
            .map(|_| std::fs::File::open("/dev/null").expect("opens"))
            .collect();
        assert!(descriptors(this).expect("it lives") >= before.max(50));
        drop(files);
        assert!(rss_kib(this).is_some_and(|kib| kib > 500));
        assert_eq!(rss_kib(u32::MAX), None);
    }
}
