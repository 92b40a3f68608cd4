//! The mutated copy of the repository and its build.
//!
//! Owns the copy in the output directory, and which mutants do not compile. It never changes the repository.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::list::Mutant;
use crate::plant;

/// What chooses the mutant in a mutated program.
const SWITCH: &str = include_str!("switch.txt");

/// Where the crate is whose mutants these are.
const CRATE: &str = "workflow-runtime";

/// Builds until everything that is left compiles; returns the test binaries and the mutants that are none.
pub(crate) fn build(
    repository: &Path,
    output: &Path,
    mutants: &[Mutant],
    arguments: &[String],
) -> Result<(Vec<(String, PathBuf)>, HashMap<u32, &'static str>), String> {
    let copy = output.join("tree");
    copy_files(repository, &copy)?;
    let kept = output.join("left-out.tsv");
    let mut left_out = read_left_out(&kept, mutants);
    // The early return of another type is none of the opaque type of the function.
    for mutant in mutants
        .iter()
        .filter(|mutant| mutant.name.contains("-> impl "))
    {
        left_out.insert(mutant.id, "apart");
    }
    for round in 1.. {
        let ranges = plant_all(repository, &copy, mutants, &mut left_out)?;
        println!("round {round}: {} mutants", mutants.len() - left_out.len());
        let (errors, binaries) = compile(repository, &copy, arguments)?;
        if errors.is_empty() {
            return Ok((binaries, left_out));
        }
        let before = left_out.len();
        for error in &errors {
            for (id, why) in culprits(error, &ranges) {
                left_out.entry(id).or_insert(why);
            }
        }
        write_left_out(&kept, mutants, &left_out)?;
        if left_out.len() == before {
            for error in &errors {
                println!("{}", error["rendered"].as_str().unwrap_or_default());
            }
            return Err("no mutant is to blame for what does not compile".into());
        }
    }
    unreachable!("the rounds end when nothing is left")
}

/// What did not compile in a build before.
fn read_left_out(kept: &Path, mutants: &[Mutant]) -> HashMap<u32, &'static str> {
    let text = fs::read_to_string(kept).unwrap_or_default();
    let known: HashMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(why, name)| (name, why))
        .collect();
    mutants
        .iter()
        .filter_map(|mutant| match *known.get(mutant.name.as_str())? {
            "apart" => Some((mutant.id, "apart")),
            _ => Some((mutant.id, "unviable")),
        })
        .collect()
}

fn write_left_out(
    kept: &Path,
    mutants: &[Mutant],
    left_out: &HashMap<u32, &'static str>,
) -> Result<(), String> {
    let lines: Vec<String> = mutants
        .iter()
        .filter_map(|mutant| Some(format!("{}\t{}", left_out.get(&mutant.id)?, mutant.name)))
        .collect();
    fs::write(kept, lines.join("\n")).map_err(|error| error.to_string())
}

/// All tracked files, and those that are new; only what differs is written, so that little is built again.
fn copy_files(repository: &Path, copy: &Path) -> Result<(), String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(repository)
        .output()
        .map_err(|error| format!("git: {error}"))?;
    for name in String::from_utf8_lossy(&listed.stdout).lines() {
        let Ok(bytes) = fs::read(repository.join(name)) else {
            continue;
        };
        if !name.starts_with(&format!("{CRATE}/src/")) {
            put(&copy.join(name), &bytes)?;
        }
    }
    Ok(())
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let parent = path.parent().expect("a file is in a directory");
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|error| format!("{}: {error}", path.display()))
}

type Ranges = HashMap<String, Vec<(u32, Range<usize>)>>;

fn plant_all(
    repository: &Path,
    copy: &Path,
    mutants: &[Mutant],
    left_out: &mut HashMap<u32, &'static str>,
) -> Result<Ranges, String> {
    let mut files: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        files.entry(&mutant.file).or_default().push(mutant);
    }
    let mut ranges = Ranges::new();
    let mut pending = vec![repository.join(CRATE).join("src")];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory)
            .map_err(|error| error.to_string())?
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
                continue;
            }
            let name = path
                .strip_prefix(repository)
                .expect("it is inside")
                .to_string_lossy()
                .into_owned();
            let mut text = fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
            if let Some(mutants) = files.get(name.as_str()) {
                let wanted: Vec<&Mutant> = mutants
                    .iter()
                    .filter(|mutant| !left_out.contains_key(&mutant.id))
                    .copied()
                    .collect();
                let planted =
                    plant::plant(&text, &wanted).map_err(|error| format!("{name}: {error}"))?;
                let there: HashSet<u32> = planted.ranges.iter().map(|(id, _)| *id).collect();
                for mutant in wanted.iter().filter(|mutant| !there.contains(&mutant.id)) {
                    left_out.insert(mutant.id, "unviable");
                }
                text = planted.text;
                ranges.insert(name.clone(), planted.ranges);
            }
            if name == format!("{CRATE}/src/lib.rs") {
                text.push_str("\n#[allow(missing_docs)]\nmod mutated;\n");
            }
            put(&copy.join(&name), text.as_bytes())?;
        }
    }
    let count = mutants.len();
    let switch = format!("{SWITCH}\nconst COUNT: usize = {count};\n");
    put(&copy.join(CRATE).join("src/mutated.rs"), switch.as_bytes())?;
    Ok(ranges)
}

/// Runs cargo; its errors, and the test binaries by name.
fn compile(
    repository: &Path,
    copy: &Path,
    arguments: &[String],
) -> Result<(Vec<Value>, Vec<(String, PathBuf)>), String> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository.join("target"), PathBuf::from);
    let output = Command::new("cargo")
        .args(["test", "--no-run", "--message-format=json"])
        .args(arguments)
        .env("CARGO_TARGET_DIR", target)
        .current_dir(copy)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let (mut errors, mut binaries) = (Vec::new(), Vec::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
            errors.push(message["message"].clone());
        }
        let executable = message["executable"].as_str();
        if let (Some(executable), true) = (executable, message["profile"]["test"] == true) {
            let name = message["target"]["name"].as_str().unwrap_or_default();
            binaries.push((name.to_owned(), PathBuf::from(executable)));
        }
    }
    errors.retain(|error| {
        error["spans"]
            .as_array()
            .is_some_and(|spans| !spans.is_empty())
    });
    if errors.is_empty() && !output.status.success() {
        return Err("cargo failed".into());
    }
    Ok((errors, binaries))
}

/// The mutants in whose text an error is: where it is shown, or else what it speaks of beside that.
fn culprits(error: &Value, ranges: &Ranges) -> Vec<(u32, &'static str)> {
    // A function that is not `const` was called where it must be: the mutant may be one all the same.
    let why = if error["code"]["code"] == "E0015" {
        "apart"
    } else {
        "unviable"
    };
    let spans = error["spans"].as_array().cloned().unwrap_or_default();
    for (inside, primary) in [(true, true), (true, false), (false, true), (false, false)] {
        let spans = spans.iter().filter(|span| span["is_primary"] == primary);
        let found: Vec<_> = spans
            .flat_map(|span| blamed(span, inside, ranges))
            .collect();
        if !found.is_empty() {
            return found.into_iter().map(|id| (id, why)).collect();
        }
    }
    Vec::new()
}

/// The mutants whose text a span of an error is inside of, or else touches.
fn blamed(span: &Value, inside: bool, ranges: &Ranges) -> Vec<u32> {
    let place = |name: &str| span[name].as_u64().unwrap_or(0) as usize;
    let (start, end) = (place("byte_start"), place("byte_end"));
    let file = ranges.get(span["file_name"].as_str().unwrap_or_default());
    file.into_iter()
        .flatten()
        .filter(|(id, _)| *id > 0)
        .filter(|(_, range)| match inside {
            true => range.start <= start && end <= range.end,
            false => range.start < end && start < range.end,
        })
        .map(|(id, _)| *id)
        .collect()
}
