//! What the dependencies are allowed to be: the part of `deny.toml` that can be checked without cargo-deny.
//!
//! Owns a second reading of that file, for this machine's platform, so that every run of the tests checks licences,
//! duplicates, bans and sources in a second. Known advisories and other platforms are left to `./scripts/supply-chain`.

mod licence;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::Table;

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the workspace").to_owned()
}

fn read_toml(path: impl AsRef<Path>) -> Table {
    let path = root().join(path);
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A dependency, as cargo shows it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: String,
}

/// All packages that something of the workspace is made of, on this platform. Of `cargo metadata` the same cannot be
/// had: it follows features of dependencies that nobody switched on. The lock file must fit.
fn packages() -> BTreeSet<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--workspace", "--all-features", "--locked"])
        .args([
            "--edges",
            "normal,build,dev",
            "--prefix",
            "none",
            "--no-dedupe",
        ])
        .args(["--format", "{p} | {l}"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let shown = String::from_utf8(output.stdout).expect("is text");
    let lines = shown.lines().filter(|line| !line.is_empty());
    let packages: BTreeSet<Package> = lines
        .map(|line| {
            let (package, licence) = line.split_once(" | ").expect("both are shown");
            let mut words = package.split(' ');
            let (name, version) = (words.next(), words.next());
            Package {
                name: name.expect("a name").to_owned(),
                version: version.expect("a version").trim_start_matches('v').into(),
                licence: licence.trim().to_owned(),
            }
        })
        .collect();
    assert!(packages.len() > 100, "{}", packages.len());
    packages
}

/// The entries of a list in deny.toml.
fn entries<'a>(deny: &'a Table, section: &str, name: &str) -> &'a [toml::Value] {
    let entries = deny[section].get(name).and_then(toml::Value::as_array);
    entries.unwrap_or_else(|| panic!("deny.toml has no {section}.{name}"))
}

fn field<'a>(entry: &'a toml::Value, name: &str) -> &'a str {
    let field = entry.get(name).and_then(toml::Value::as_str);
    field.unwrap_or_else(|| panic!("an entry without `{name}`: {entry}"))
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let deny = read_toml("deny.toml");
    let allowed = entries(&deny, "licenses", "allow").iter();
    let allowed: BTreeSet<&str> = allowed.filter_map(toml::Value::as_str).collect();
    let mut exceptions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for entry in entries(&deny, "licenses", "exceptions") {
        let licences = entry["allow"].as_array().expect("a list").iter();
        let licences = licences.filter_map(toml::Value::as_str);
        exceptions.insert(field(entry, "crate"), licences.collect());
    }
    for package in packages() {
        let own = exceptions.get(&*package.name);
        let may = |name: &str| allowed.contains(name) || own.is_some_and(|own| own.contains(name));
        let licence = &package.licence;
        assert!(!licence.is_empty(), "{package:?} names no licence");
        assert!(
            licence::allows(licence, &may),
            "{} {}: {licence} is not allowed: read it, then add it to deny.toml with a reason, or do without the crate",
            package.name,
            package.version
        );
    }
}

#[test]
fn no_crate_is_there_twice_and_none_that_is_banned_or_from_elsewhere() {
    let deny = read_toml("deny.toml");
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let named = |entries: &[toml::Value]| -> Vec<String> {
        let entries = entries.iter();
        entries
            .map(|entry| field(entry, "crate").to_owned())
            .collect()
    };
    let (banned, skipped) = (
        named(entries(&deny, "bans", "deny")),
        named(entries(&deny, "bans", "skip")),
    );
    // `name`, or `name@1` for all of 1.
    let is = |rule: &str, name: &str, version: &str| match rule.split_once('@') {
        None => rule == name,
        Some((ruled, major)) => ruled == name && version.split('.').next() == Some(major),
    };
    for package in packages() {
        let (name, version) = (&package.name, &package.version);
        let ban = banned.iter().find(|rule| is(rule, name, version));
        assert_eq!(ban, None, "{name} {version} is banned by deny.toml");
        if !skipped.iter().any(|rule| is(rule, name, version)) {
            versions
                .entry(package.name)
                .or_default()
                .push(package.version);
        }
    }
    let lock = read_toml("Cargo.lock");
    let locked = lock["package"].as_array().expect("a list").iter();
    let sources = locked.filter_map(|package| package.get("source"));
    let sources: BTreeSet<&str> = sources.filter_map(toml::Value::as_str).collect();
    let is_registry = |source: &&str| source.starts_with("registry+");
    assert!(
        sources.len() == 1 && sources.iter().all(is_registry),
        "not from one registry: {sources:?}"
    );
    versions.retain(|_, versions| versions.len() > 1);
    assert_eq!(
        versions,
        BTreeMap::new(),
        "`cargo tree -d` shows who asks for them"
    );
}

#[test]
fn every_exception_has_a_reason() {
    let deny = read_toml("deny.toml");
    for (section, name) in [("advisories", "ignore"), ("bans", "skip"), ("bans", "deny")] {
        for entry in entries(&deny, section, name) {
            assert!(field(entry, "reason").len() > 10, "{entry}");
        }
    }
}

#[test]
fn unsafe_code_is_forbidden_in_every_package() {
    let workspace = read_toml("Cargo.toml");
    let lints = &workspace["workspace"]["lints"]["rust"];
    assert_eq!(lints["unsafe_code"].as_str(), Some("forbid"));
    let members = workspace["workspace"]["members"]
        .as_array()
        .expect("a list");
    assert!(members.len() > 3, "{members:?}");
    for member in members {
        let member = member.as_str().expect("a path");
        let package = read_toml(format!("{member}/Cargo.toml"));
        let takes = package
            .get("lints")
            .and_then(|lints| lints.get("workspace"));
        assert_eq!(
            takes.and_then(toml::Value::as_bool),
            Some(true),
            "{member} does not take the workspace's lints"
        );
    }
}
