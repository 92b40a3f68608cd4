//! A repair that is killed, or whose machine loses power, at each of its writes.
//!
//! One repair is recorded with the shim of `tests/crash`; what a disk would hold is made of every beginning of the record.

#[path = "../crash/store_faults/disk.rs"]
mod disk;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use workflow_runtime::repair::repair;
use workflow_runtime::store::StoreError;
use workflow_runtime::store::sled::{SledOptions, SledStore};

use self::disk::{Disk, Part, parse, shim};
use super::sound::{Stop, content, copy_all, files, sound};

/// What the child is to repair.
const FROM: &str = "REPAIR_FROM";

/// The names that a directory holds in which nothing was begun yet.
const LOCK: &str = "lock";

/// Not a test of its own: the process that is recorded.
#[test]
fn the_child_repairs() {
    let (Ok(from), Ok(to)) = (std::env::var(FROM), std::env::var("STORE_DIR")) else {
        return;
    };
    repair(&from, &to).expect("repaired");
}

fn record(from: &Path, to: &Path, root: &Path) -> Vec<disk::Record> {
    let log = root.join("log");
    let status = Command::new(std::env::current_exe().expect("a path"))
        .args(["interrupted::the_child_repairs", "--exact"])
        .args(["--test-threads=1"])
        .env(FROM, from)
        .env("STORE_DIR", to)
        .env("SHIM_LOG", &log)
        .env("LD_PRELOAD", shim(root))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.expect("it starts").success(), "the child failed");
    parse(&fs::read(log).expect("recorded"))
}

#[tokio::test]
async fn a_repair_that_is_cut_short_leaves_the_store_as_it_was_and_nothing_that_opens_in_part() {
    let sound = sound(Stop::Dropped);
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    let left = root.path().join("left");
    copy_all(&sound.store, &from);
    // sled refuses it.
    let mut bytes = fs::read(from.join("db")).expect("there");
    bytes[6] ^= 1;
    fs::write(from.join("db"), bytes).expect("written");
    let before = files(&from);
    let records = record(&from, &to, root.path());
    assert!(files(&from) == before, "the damaged store was changed");
    assert_eq!(content(&to).await, sound.content);
    let writes = records.iter().filter(|record| record.kind == b'W').count();
    assert!(writes > 10, "{writes} writes were recorded");

    let (mut refused, mut whole) = (0, 0);
    let mut disk = Disk::default();
    let mut luck = 1_u64;
    for (done, record) in records.iter().enumerate() {
        disk.play(record);
        if !matches!(record.kind, b'W' | b'S' | b'R' | b'C' | b'M' | b'T' | b'U') {
            continue;
        }
        // Killed: the system keeps all that was done. Cut off: what was synced, and what is lucky.
        for killed in [true, false] {
            let mut is_lucky = |part: Part| {
                if let Part::Write(number) = part {
                    luck ^= number as u64;
                }
                luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                killed || luck >> 63 == 1
            };
            disk.survive(&to, &left, &mut is_lucky);
            let names = files(&left);
            if names.keys().all(|name| name == Path::new(LOCK)) {
                continue; // nothing was begun, and a repair begins there anew
            }
            match SledStore::open(&left, SledOptions::default()) {
                Err(StoreError::NotADatabase { .. }) => refused += 1,
                Err(error) => panic!("after {done} of {}: {error}", records.len()),
                Ok(store) => {
                    drop(store);
                    assert_eq!(content(&left).await, sound.content, "after {done}");
                    whole += 1;
                }
            }
        }
    }
    assert!(
        refused > 10 && whole > 0,
        "{refused} refused, {whole} whole"
    );
    // What is left is in the way of the next one, which says so.
    fs::remove_file(to.join("FORMAT")).expect("removed");
    let error = repair(&from, &to).expect_err("not empty");
    assert!(
        error.to_string().contains("nothing is overwritten"),
        "{error}"
    );
    fs::remove_dir_all(&to).expect("removed");
    repair(&from, &to).expect("begun again");
    assert_eq!(content(&to).await, sound.content);
}
