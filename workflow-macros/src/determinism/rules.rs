//! What a workflow must not do itself, and what to write instead.
//!
//! Owns the list. A name is matched as its full path or as a suffix of it of two or more
//! segments: `std::time::Instant::now`, `time::Instant::now` and `Instant::now`, but neither
//! `my::Instant::now` nor a bare `now`. A whole module or crate is matched by its full path only,
//! because `process::order(..)` is as likely the user's own module as the standard library's.

/// A kind of non-determinism: what it is, why it breaks a replay, the way out.
pub(crate) struct Kind {
    does: &'static str,
    breaks: &'static str,
    instead: &'static str,
}

/// How a message ends, whatever was found.
const OVERRULE: &str = "if it cannot matter, overrule this with `nondeterministic!(…)` around it or `#[workflow(unchecked)]`";

const CLOCK: Kind = Kind {
    does: "reads a clock",
    breaks: "a replay would see another time than the first run did",
    instead: "use `workflow_runtime::now()`, or measure inside a `#[step]`",
};
const TIMER: Kind = Kind {
    does: "waits on a timer that only this process knows",
    breaks: "a restart would forget it",
    instead: "use `workflow_runtime::sleep()` or `workflow_runtime::timeout()`, or move it into a `#[step]`",
};
const RANDOM: Kind = Kind {
    does: "draws a random number",
    breaks: "a replay would draw another",
    instead: "use `workflow_runtime::random()`, or move it into a `#[step]`",
};
const UUID: Kind = Kind {
    does: "makes a new id",
    breaks: "a replay would make another",
    instead: "use `workflow_runtime::uuid()`, or move it into a `#[step]`",
};
const ENVIRONMENT: Kind = Kind {
    does: "reads the process's environment",
    breaks: "a replay may run in another process with another one",
    instead: "pass it as an argument of the workflow, or read it in a `#[step]`",
};
const FILES: Kind = Kind {
    does: "works on files",
    breaks: "a replay would do it again and find them changed",
    instead: "move it into a `#[step]`",
};
const NETWORK: Kind = Kind {
    does: "talks to the network",
    breaks: "a replay would do it again and hear another answer",
    instead: "move it into a `#[step]`",
};
const THREADS: Kind = Kind {
    does: "leaves the run's own task",
    breaks: "the journal does not know what happens elsewhere, nor when it ends",
    instead: "move it into a `#[step]` (`#[step(blocking)]` for blocking work), and use `join!` for concurrency",
};
const PROCESS: Kind = Kind {
    does: "works on processes",
    breaks: "a replay would do it again",
    instead: "move it into a `#[step]`",
};
const INPUT: Kind = Kind {
    does: "reads standard input",
    breaks: "a replay would read something else",
    instead: "pass it as an argument of the workflow, or read it in a `#[step]`",
};
/// `select!` that may be tokio's or that of `futures`.
const SELECT: Kind = Kind {
    does: "polls its branches in random order",
    breaks: "a replay could pick another winner",
    instead: "begin it with `biased;`, or use `select_biased!` of `futures`",
};
/// `select!` of `futures`, which knows no `biased;`.
const FUTURES_SELECT: Kind = Kind {
    does: "polls its branches in random order",
    breaks: "a replay could pick another winner",
    instead: "use `select_biased!`",
};

/// Single names, as full paths. A list in braces stands for one name each.
const NAMES: &[(&str, &[&str], &Kind)] = &[
    ("std::time::SystemTime", &["now"], &CLOCK),
    ("std::time::Instant", &["now"], &CLOCK),
    ("tokio::time::Instant", &["now"], &CLOCK),
    ("chrono::Utc", &["now"], &CLOCK),
    ("chrono::Local", &["now"], &CLOCK),
    ("chrono::offset::Utc", &["now"], &CLOCK),
    ("chrono::offset::Local", &["now"], &CLOCK),
    ("jiff::Timestamp", &["now"], &CLOCK),
    ("jiff::Zoned", &["now"], &CLOCK),
    ("time::OffsetDateTime", &["now_utc", "now_local"], &CLOCK),
    ("time::UtcDateTime", &["now"], &CLOCK),
    (
        "tokio::time",
        &[
            "sleep",
            "sleep_until",
            "timeout",
            "timeout_at",
            "interval",
            "interval_at",
        ],
        &TIMER,
    ),
    (
        "std::thread",
        &[
            "spawn",
            "scope",
            "current",
            "park",
            "yield_now",
            "available_parallelism",
        ],
        &THREADS,
    ),
    ("std::thread", &["sleep"], &TIMER),
    ("std::thread::Builder", &["new"], &THREADS),
    ("tokio", &["spawn"], &THREADS),
    (
        "tokio::task",
        &[
            "spawn",
            "spawn_blocking",
            "spawn_local",
            "block_in_place",
            "yield_now",
        ],
        &THREADS,
    ),
    ("tokio::task::JoinSet", &["new"], &THREADS),
    ("tokio::runtime::Handle", &["current"], &THREADS),
    (
        "rand",
        &[
            "random",
            "random_bool",
            "random_iter",
            "random_range",
            "random_ratio",
            "rng",
            "thread_rng",
            "fill",
        ],
        &RANDOM,
    ),
    ("rand::rngs", &["OsRng", "ThreadRng"], &RANDOM),
    (
        "rand::rngs::StdRng",
        &["from_entropy", "from_os_rng"],
        &RANDOM,
    ),
    (
        "rand::rngs::SmallRng",
        &["from_entropy", "from_os_rng"],
        &RANDOM,
    ),
    ("fastrand::Rng", &["new"], &RANDOM),
    ("getrandom", &["getrandom", "fill", "u32", "u64"], &RANDOM),
    (
        "uuid::Uuid",
        &["new_v4", "now_v1", "now_v6", "now_v7"],
        &UUID,
    ),
    (
        "std::env",
        &[
            "var",
            "var_os",
            "vars",
            "vars_os",
            "args",
            "args_os",
            "current_dir",
            "current_exe",
            "temp_dir",
            "home_dir",
            "set_var",
            "remove_var",
        ],
        &ENVIRONMENT,
    ),
    (
        "std::fs",
        &[
            "read",
            "read_to_string",
            "read_dir",
            "write",
            "copy",
            "rename",
            "remove_file",
            "remove_dir",
            "remove_dir_all",
            "create_dir",
            "create_dir_all",
            "metadata",
            "exists",
            "canonicalize",
        ],
        &FILES,
    ),
    (
        "std::fs::File",
        &["open", "create", "create_new", "options"],
        &FILES,
    ),
    ("std::fs::OpenOptions", &["new"], &FILES),
    (
        "std::net::TcpStream",
        &["connect", "connect_timeout"],
        &NETWORK,
    ),
    ("std::net::TcpListener", &["bind"], &NETWORK),
    ("std::net::UdpSocket", &["bind"], &NETWORK),
    ("reqwest::Client", &["new", "builder"], &NETWORK),
    ("std::process::Command", &["new"], &PROCESS),
    ("std::process", &["exit", "abort", "id"], &PROCESS),
    ("std::io", &["stdin"], &INPUT),
];

/// Whole modules and crates, matched by their full path, with the names in them that are
/// plain data.
const MODULES: &[(&str, &[&str], &Kind)] = &[
    ("std::env", &["VarError"], &ENVIRONMENT),
    ("std::fs", &["FileType", "Metadata", "Permissions"], &FILES),
    ("std::net", ADDRESSES, &NETWORK),
    (
        "std::process",
        &["ExitCode", "ExitStatus", "Output"],
        &PROCESS,
    ),
    ("std::thread", &["Result", "ThreadId"], &THREADS),
    ("tokio::fs", &[], &FILES),
    ("tokio::net", &[], &NETWORK),
    ("tokio::process", &[], &PROCESS),
    ("tokio::time", &["Duration", "error"], &TIMER),
    ("fastrand", &["Rng"], &RANDOM),
    ("getrandom", &["Error"], &RANDOM),
    ("reqwest", HTTP_DATA, &NETWORK),
    ("ureq", HTTP_DATA, &NETWORK),
    ("hyper", HTTP_DATA, &NETWORK),
    (
        "sqlx",
        &["Error", "FromRow", "Result", "error", "types"],
        &NETWORK,
    ),
];
const ADDRESSES: &[&str] = &[
    "AddrParseError",
    "IpAddr",
    "Ipv4Addr",
    "Ipv6Addr",
    "SocketAddr",
    "SocketAddrV4",
    "SocketAddrV6",
];
const HTTP_DATA: &[&str] = &[
    "Error",
    "Method",
    "Result",
    "StatusCode",
    "Uri",
    "Url",
    "Version",
    "header",
    "http",
];

/// Finds what a path means, whether it is written in full or as a suffix.
pub(crate) fn find(path: &[String]) -> Option<&'static Kind> {
    find_name(path).or_else(|| find_module(path))
}

fn find_name(path: &[String]) -> Option<&'static Kind> {
    let (last, parents) = path.split_last()?;
    if parents.is_empty() {
        return None;
    }
    let (_, _, kind) = NAMES
        .iter()
        .find(|(parent, names, _)| names.contains(&&**last) && ends_with(parent, parents))?;
    Some(kind)
}

fn find_module(path: &[String]) -> Option<&'static Kind> {
    let (_, _, kind) = MODULES.iter().find(|(module, data, _)| {
        let length = module.split("::").count();
        path.len() > length
            && module
                .split("::")
                .eq(path[..length].iter().map(String::as_str))
            && !data.contains(&&*path[length])
    })?;
    Some(kind)
}

/// Finds what a path that a glob import brought in means: only the full path counts.
pub(crate) fn find_in_full(path: &[String]) -> Option<&'static Kind> {
    let (last, parents) = path.split_last()?;
    let (_, _, kind) = NAMES.iter().find(|(parent, names, _)| {
        names.contains(&&**last) && parent.split("::").eq(parents.iter().map(String::as_str))
    })?;
    Some(kind)
}

/// Finds what a macro named `select` means; `biased` if its arguments begin with `biased;`.
pub(crate) fn find_select(path: &[String], biased: bool) -> Option<&'static Kind> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path[..] {
        ["select"] | ["tokio", "select"] if !biased => Some(&SELECT),
        ["futures" | "futures_util" | "futures_lite", "select"] => Some(&FUTURES_SELECT),
        _ => None,
    }
}

fn ends_with(full: &str, suffix: &[String]) -> bool {
    let full: Vec<&str> = full.split("::").collect();
    full.len() >= suffix.len() && full[full.len() - suffix.len()..].iter().eq(suffix.iter())
}

impl Kind {
    /// Says what is wrong with `written`, why, and what to write instead.
    pub(crate) fn message(&self, written: &str) -> String {
        let Self {
            does,
            breaks,
            instead,
        } = self;
        format!("`{written}` {does}: {breaks}; {instead} ({OVERRULE})")
    }
}
