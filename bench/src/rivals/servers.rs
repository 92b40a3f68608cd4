//! The servers that some systems keep their journal in: PostgreSQL and Restate, on loopback.
//!
//! Owns their directories under `bench/target`, their ports, and who they run as: neither runs as root, and PostgreSQL refuses
//! to. A server lives as long as its [`Running`], so that it does not take part in anybody else's measurement. Everything is at its defaults:
//! `fsync` and `synchronous_commit` are on.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::catalogue::Needs;

/// The version whose platform package is taken.
const RESTATE_VERSION: &str = "1.7.12";

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long Restate settles after it listens: a leader of its partitions has to be found.
const SETTLE: Duration = Duration::from_secs(3);

/// A server that runs; stopped when dropped.
pub struct Running {
    /// Where contestants reach it.
    pub url: String,
    /// Where they register a service, if they do.
    pub admin: String,
    /// Its main process; empty without a server.
    pub pids: Vec<u32>,
    /// The directory whose growth is the journal's; without a server the contestant's own.
    pub footprint: Option<PathBuf>,
    stop: Stop,
}

enum Stop {
    Nothing,
    /// By `pg_ctl`, of this data directory.
    Postgres(PathBuf),
    Restate(Child),
}

impl Drop for Running {
    fn drop(&mut self) {
        match &mut self.stop {
            Stop::Nothing => {}
            Stop::Postgres(data) => stop_postgres(data),
            Stop::Restate(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Starts what a contestant needs.
///
/// # Errors
///
/// What is missing, or what the server said.
pub fn start(needs: Needs, target: &Path) -> Result<Running, String> {
    match needs {
        Needs::Nothing => Ok(Running {
            url: String::new(),
            admin: String::new(),
            pids: Vec::new(),
            footprint: None,
            stop: Stop::Nothing,
        }),
        Needs::Postgres => postgres(&target.join("servers/postgres")),
        Needs::Restate => restate(target),
    }
}

/// Forgets what earlier comparisons left in PostgreSQL, so that each begins with an empty one.
pub fn forget(target: &Path) {
    let dir = target.join("servers/postgres");
    stop_postgres(&dir.join("data"));
    let _ = fs::remove_dir_all(dir);
}

/// Stops the server of a data directory, if there is one.
fn stop_postgres(data: &Path) {
    if data.join("postmaster.pid").exists() {
        let mut stop = as_nobody("pg_ctl");
        let _ = run(stop.args(["stop", "-m", "fast", "-w", "-D"]).arg(data));
    }
}

/// Who servers run as if this is root: `postgres` or `nobody`, and their numbers.
fn unprivileged() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let own_user = fs::metadata("/proc/self").ok()?.uid();
    if own_user != 0 {
        return None;
    }
    ["postgres:", "nobody:"].iter().find_map(|name| {
        let line = users.lines().find(|line| line.starts_with(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

fn as_nobody(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = unprivileged() {
        command.uid(user).gid(group);
    }
    // The directory of the caller may be closed to that user.
    command.current_dir("/").stdin(Stdio::null());
    command
}

/// Makes a directory that servers may write to.
fn own_directory(path: &Path) -> Result<(), String> {
    let made = fs::create_dir_all(path).and_then(|()| match unprivileged() {
        Some((user, group)) => chown(path, Some(user), Some(group)),
        None => Ok(()),
    });
    made.map_err(|error| format!("{}: {error}", path.display()))
}

/// A port that is free now.
pub fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    Ok(address.port())
}

/// Runs a command to its end; its words if it fails.
fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(format!(
        "{program}: {}",
        last.unwrap_or("failed without a word")
    ))
}

fn postgres(dir: &Path) -> Result<Running, String> {
    own_directory(dir)?;
    let data = dir.join("data");
    if !data.join("PG_VERSION").exists() {
        let mut init = as_nobody("initdb");
        init.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "-D"]);
        run(init.arg(&data))?;
    }
    let port = free_port()?;
    let options = format!("-p {port} -h 127.0.0.1 -c unix_socket_directories=''");
    let mut start = as_nobody("pg_ctl");
    start
        .args(["start", "-w", "-D"])
        .arg(&data)
        .args(["-o", &options, "-l"]);
    // The server would keep a pipe of ours open.
    start
        .arg(dir.join("log"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let started = start.status().map_err(|error| format!("pg_ctl: {error}"))?;
    if !started.success() {
        let log = dir.join("log");
        return Err(format!(
            "PostgreSQL does not start: {} says why",
            log.display()
        ));
    }
    let pid = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let pid = pid.lines().next().and_then(|line| line.parse().ok());
    Ok(Running {
        url: format!("postgres://postgres@127.0.0.1:{port}"),
        admin: String::new(),
        pids: pid.into_iter().collect(),
        // Without `pg_wal`, whose files are used again and again.
        footprint: Some(data.join("base")),
        stop: Stop::Postgres(data),
    })
}

/// The server's binary, fetched with npm if it is not there.
fn restate_binary(target: &Path) -> Result<PathBuf, String> {
    let binary = target.join("restate/restate-server");
    if binary.exists() {
        return Ok(binary);
    }
    let machine = match std::env::consts::ARCH {
        "x86_64" => "linux-x64",
        "aarch64" => "linux-arm64",
        other => return Err(format!("there is no restate-server for {other}")),
    };
    let dir = target.join("restate");
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let package = format!("@restatedev/restate-server-{machine}@{RESTATE_VERSION}");
    run(Command::new("npm")
        .args(["pack", &package])
        .current_dir(&dir))?;
    let archive = format!("restatedev-restate-server-{machine}-{RESTATE_VERSION}.tgz");
    let mut unpack = Command::new("tar");
    unpack.args([
        "xzf",
        &archive,
        "--strip-components=2",
        "package/bin/restate-server",
    ]);
    run(unpack.current_dir(&dir))?;
    let _ = fs::remove_file(dir.join(archive));
    Ok(binary)
}

fn restate(target: &Path) -> Result<Running, String> {
    let binary = restate_binary(target)?;
    let dir = target.join("servers/restate");
    // A new one each time: an invocation that was left would be tried for ever.
    let _ = fs::remove_dir_all(&dir);
    own_directory(&dir)?;
    let (ingress, admin, node) = (free_port()?, free_port()?, free_port()?);
    let log = File::create(target.join("servers/restate.log"));
    let log = log.map_err(|error| format!("restate.log: {error}"))?;
    let mut server = as_nobody(&binary);
    server
        .args([
            "--no-logo",
            "--listen-mode",
            "tcp",
            "--node-name",
            "contest",
        ])
        .args(["--bind-ip", "127.0.0.1", "--advertised-host", "127.0.0.1"])
        .args(["--bind-port", &node.to_string(), "--base-dir"])
        .arg(dir.join("data"))
        .env("HOME", &dir)
        .env("TMPDIR", &dir)
        .env("RESTATE_INGRESS__BIND_PORT", ingress.to_string())
        .env("RESTATE_ADMIN__BIND_PORT", admin.to_string())
        .env("DO_NOT_TRACK", "1")
        .env("RESTATE_DISABLE_TELEMETRY", "true")
        .current_dir(&dir)
        .stderr(log.try_clone().map_err(|error| error.to_string())?)
        .stdout(log);
    let child = server
        .spawn()
        .map_err(|error| format!("restate-server: {error}"))?;
    let running = Running {
        url: format!("http://127.0.0.1:{ingress}"),
        admin: format!("http://127.0.0.1:{admin}"),
        pids: vec![child.id()],
        footprint: Some(dir.join("data")),
        stop: Stop::Restate(child),
    };
    let began = Instant::now();
    for port in [ingress, admin] {
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if began.elapsed() > PATIENCE {
                let log = target.join("servers/restate.log");
                return Err(format!(
                    "restate-server does not listen: {} says why",
                    log.display()
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    std::thread::sleep(SETTLE);
    Ok(running)
}
