//! The contestants' programs: built if they are missing, and what building them says (W5).
//!
//! Each has a workspace, a lock file and a target directory of its own. A build into an empty directory is timed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::catalogue::Contestant;

/// Names a directory with programs that were built before, `rival-SYSTEM` each and `rival-SYSTEM.seconds` with what building took.
/// Who is there is not built.
const BUILT: &str = "BENCH_RIVALS";

/// A contestant's program.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    /// The build into an empty directory, if this machine has seen one.
    pub build: Option<Build>,
    /// Length of the stripped binary.
    pub bytes: u64,
    /// Crates that the system brings, itself included.
    pub crates: Option<usize>,
}

/// What a build took, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Build {
    pub wall: f64,
    /// Of all processors: what also says something on a machine that others use.
    pub cpu: f64,
}

impl Build {
    fn parse(text: &str) -> Option<Self> {
        let (wall, cpu) = text.trim().split_once(' ')?;
        Some(Self {
            wall: wall.parse().ok()?,
            cpu: cpu.parse().ok()?,
        })
    }
}

/// Builds a contestant, or finds that it is built.
///
/// # Errors
///
/// What cargo said last.
pub fn program(contestant: &Contestant, bench: &Path) -> Result<Program, String> {
    let built = std::env::var_os(BUILT).map(PathBuf::from);
    if let Some(program) = built.and_then(|dir| found(contestant, bench, &dir)) {
        return Ok(program);
    }
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
    let (began, cpu) = (Instant::now(), cpu_of_children());
    cargo(&["build", "--release", "--locked"], &manifest, &target)?;
    if is_clean {
        let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_of_children() - cpu);
        let text = format!("{wall:.1} {cpu:.1}");
        std::fs::write(&time, text).map_err(|error| format!("{}: {error}", time.display()))?;
    }
    let metadata = std::fs::metadata(&path);
    let bytes = metadata
        .map_err(|error| format!("{}: {error}", path.display()))?
        .len();
    let build = std::fs::read_to_string(time).ok();
    Ok(Program {
        build: build.and_then(|text| Build::parse(&text)),
        bytes,
        crates: crates(contestant, &manifest),
        path,
    })
}

/// A contestant's program in a directory of such, if it is there.
fn found(contestant: &Contestant, bench: &Path, dir: &Path) -> Option<Program> {
    let name = format!("rival-{}", contestant.system);
    let path = dir.join(&name);
    let bytes = std::fs::metadata(&path).ok()?.len();
    let build = std::fs::read_to_string(dir.join(format!("{name}.seconds"))).ok();
    let manifest = bench.join("rivals").join(contestant.system);
    Some(Program {
        build: build.and_then(|text| Build::parse(&text)),
        bytes,
        crates: crates(contestant, &manifest.join("Cargo.toml")),
        path,
    })
}

/// Processor seconds of the children that have ended, theirs included.
fn cpu_of_children() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(13).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_build_is_read_back() {
        let build = Build {
            wall: 364.0,
            cpu: 250.5,
        };
        assert_eq!(Build::parse("364.0 250.5\n"), Some(build));
        assert_eq!(Build::parse("364"), None);
    }

    #[test]
    fn a_program_that_was_built_before_is_found_with_what_building_took() {
        let dir = tempfile::tempdir().expect("a directory");
        let contestant = super::super::catalogue::CONTESTANTS[0];
        assert!(found(&contestant, dir.path(), dir.path()).is_none());
        std::fs::write(dir.path().join("rival-own"), "12345").expect("written");
        std::fs::write(dir.path().join("rival-own.seconds"), "3.0 2.5").expect("written");
        let program = found(&contestant, dir.path(), dir.path()).expect("it is there");
        assert_eq!((program.bytes, program.crates), (5, None));
        let build = program.build.expect("it is noted");
        assert_eq!((build.wall, build.cpu), (3.0, 2.5));
    }

    #[test]
    fn the_processor_time_of_a_child_is_counted() {
        let before = cpu_of_children();
        let burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let status = Command::new("sh").args(["-c", burn]).status();
        assert!(status.expect("a shell").success());
        assert!(cpu_of_children() - before > 0.01);
    }
}
