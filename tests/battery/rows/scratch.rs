//! Directories that a case works in, and runtimes that it works on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::Case;
use super::told::Told;
use super::workload::{self, World};

/// A run that does not go on for so long never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where the directories of this process are. A static is never dropped, so that [`clean`] has to be called.
static ROOT: Mutex<Option<TempDir>> = Mutex::new(None);

/// What the names of such places begin with; then comes the number of the process.
const PREFIX: &str = "battery-";

/// Makes a directory that goes with the case, or at the latest with the process.
pub(crate) fn directory() -> TempDir {
    let mut root = ROOT.lock().expect("nobody panics with it");
    let root = root.get_or_insert_with(|| {
        let here = std::env::temp_dir();
        remove_left(&here);
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let made = tempfile::Builder::new().prefix(&prefix).tempdir_in(here);
        made.expect("a temporary directory can be made")
    });
    let made = tempfile::Builder::new().prefix("case-").tempdir_in(root);
    made.expect("a temporary directory can be made")
}

/// Removes all directories of this process, those that statics hold as well.
pub(crate) fn clean() {
    let root = ROOT.lock().expect("nobody panics with it").take();
    drop(root);
}

/// Removes what processes left that were killed: those whose number nobody has any more.
fn remove_left(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            let (owner, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
            owner.parse::<u32>().ok()
        });
        if let Some(owner) = owner
            && Path::new("/proc/self").exists()
            && !Path::new(&format!("/proc/{owner}")).exists()
        {
            // Somebody else may be about to do the same.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes a runtime of one thread.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().build();
    runtime.expect("a runtime can be made")
}

/// What a case came to in which a process worked on a store: what it was told goes on to its end, and is compared.
pub(crate) fn concluded(store: &Path, mut told: Told, trace: String) -> Case {
    let acknowledged = told.started.len() as u64;
    finish(store, &mut told);
    Case {
        violations: told.violations,
        count: acknowledged,
        trace,
        ..Case::default()
    }
}

/// Opens a store and lets everything go on to its end; what does not hold is told.
pub(crate) fn finish(store: &Path, told: &mut Told) {
    runtime().block_on(async {
        let world = std::sync::Arc::new(World::here());
        let builder = workload::engine().resource_arc(world.clone());
        match builder.open(store).await {
            Ok(engine) => {
                told.finish(&engine, &world, PATIENCE).await;
                if let Err(error) = engine.shutdown().await {
                    told.wrong(format!("16: it does not close: {error}"));
                }
            }
            Err(error) => told.wrong(format!("1: the store does not open: {error}")),
        }
    });
}

/// Every file below a directory with its bytes, by its path from there.
pub(crate) fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).expect("a directory is readable") {
            let path = entry.expect("a directory is readable").path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let bytes = fs::read(&path).expect("a file is readable");
            let inside = path.strip_prefix(directory).expect("below it");
            found.insert(inside.to_path_buf(), bytes);
        }
    }
    found
}

/// Waits until nobody writes to a store any more: no step, no archiver, no mark.
pub(crate) fn wait_until_quiet(store: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut seen = files(store);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = files(store);
        if now == seen {
            return now;
        }
        seen = now;
    }
}

/// Copies a directory.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory can be made");
    for entry in fs::read_dir(from).expect("a directory is readable") {
        let path = entry.expect("a directory is readable").path();
        let target = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(fs::copy(&path, &target).expect("a file can be copied")),
        }
    }
}

/// A small disk in memory, which goes with the case.
pub(crate) struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts one of so many KiB.
    ///
    /// # Errors
    ///
    /// Says why that is not possible here; it needs the rights of root.
    pub(crate) fn mount(kib: u64) -> Result<Self, String> {
        let directory = directory();
        let options = format!("size={kib}k,mode=700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "battery"]);
        said(mount.arg(directory.path()))?;
        Ok(Self(directory))
    }

    /// Mounts it anew, with other options.
    pub(crate) fn change(&self, options: &str) -> Result<(), String> {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,{options}")]);
        said(mount.arg(self.path()))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = said(Command::new("umount").arg("-l").arg(self.path()));
    }
}

/// Runs a program that says nothing if all is well.
fn said(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_and_what_a_living_one_has_stays() {
        let place = tempfile::tempdir().expect("made");
        let mine = format!("{PREFIX}{}-a", std::process::id());
        // No process has this number: Linux gives none above 2^22.
        let left = format!("{PREFIX}4294967295-a");
        for name in [&mine, &left, &"battery-x-a".into(), &"other".into()] {
            fs::create_dir_all(place.path().join(name).join("store")).expect("made");
        }
        remove_left(place.path());
        let there = |name: &str| place.path().join(name).exists();
        assert!(there(&mine) && there("battery-x-a") && there("other"));
        assert!(!there(&left));
    }

    #[test]
    fn directories_lie_in_one_place_that_names_its_process() {
        let (one, other) = (directory(), directory());
        let place = one.path().parent().expect("a place");
        assert_eq!(other.path().parent(), Some(place));
        let name = place.file_name().expect("a name").to_string_lossy();
        assert!(name.starts_with(&format!("{PREFIX}{}-", std::process::id())));
    }
}
