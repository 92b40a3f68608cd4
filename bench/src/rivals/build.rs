//! The contestants' programs: built if they are missing, and what building them says (W5).
//!
//! Each has a workspace, a lock file and a target directory of its own. A build into an empty directory is timed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::catalogue::Contestant;

/// A contestant's program.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    /// Seconds of the build into an empty directory, if this machine has seen one.
    pub build_seconds: Option<f64>,
    /// Length of the stripped binary.
    pub bytes: u64,
    /// Crates that the system brings, itself included.
    pub crates: Option<usize>,
}

/// Builds a contestant, or finds that it is built.
///
/// # Errors
///
/// What cargo said last.
pub fn program(contestant: &Contestant, bench: &Path) -> Result<Program, String> {
    let target = bench.join("target/rivals").join(contestant.system);
    let manifest = bench
        .join("rivals")
        .join(contestant.system)
        .join("Cargo.toml");
    let path = target
        .join("release")
        .join(format!("rival-{}", contestant.system));
    let time = target.join("build-seconds");
    // Downloads are not building.
    cargo(&["fetch", "--locked"], &manifest, &target)?;
    let is_clean = !target.join("release").exists();
    let began = Instant::now();
    cargo(&["build", "--release", "--locked"], &manifest, &target)?;
    if is_clean {
        let seconds = began.elapsed().as_secs_f64().to_string();
        std::fs::write(&time, seconds).map_err(|error| format!("{}: {error}", time.display()))?;
    }
    let metadata = std::fs::metadata(&path);
    let bytes = metadata
        .map_err(|error| format!("{}: {error}", path.display()))?
        .len();
    let seconds = std::fs::read_to_string(time).ok();
    Ok(Program {
        build_seconds: seconds.and_then(|text| text.trim().parse().ok()),
        bytes,
        crates: crates(contestant, &manifest),
        path,
    })
}

fn cargo(words: &[&str], manifest: &Path, target: &Path) -> Result<(), String> {
    let status = Command::new("cargo")
        .args(words)
        .arg("--quiet")
        .arg("--manifest-path")
        .arg(manifest)
        .env("CARGO_TARGET_DIR", target)
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!(
            "cargo {} failed for {}",
            words[0],
            manifest.display()
        )),
        Err(error) => Err(format!("cargo does not start: {error}")),
    }
}

fn crates(contestant: &Contestant, manifest: &Path) -> Option<usize> {
    let output = Command::new("cargo")
        .args([
            "tree",
            "--locked",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ])
        .args(["--package", contestant.package, "--manifest-path"])
        .arg(manifest)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().map(|line| line.trim_end_matches(" (*)"));
    let names: BTreeSet<&str> = names.filter(|line| !line.is_empty()).collect();
    (output.status.success() && !names.is_empty()).then_some(names.len())
}
