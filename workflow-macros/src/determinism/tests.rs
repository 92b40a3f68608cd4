//! The scan as two tables: what is found, and what is left in peace.

use super::*;

/// Returns what the scan says about a body.
fn scanned(body: &str) -> Vec<String> {
    let body: TokenStream = body.parse().expect("the body has balanced tokens");
    let diagnostics = Diagnostics::default();
    scan(&Group::new(Delimiter::Brace, body), &diagnostics);
    let messages = list(diagnostics.finish().messages);
    messages
        .iter()
        .filter_map(|token| match token {
            TokenTree::Group(group) => Some(group.stream().to_string()),
            _ => None,
        })
        .collect()
}

#[test]
fn what_a_replay_would_see_otherwise_is_found_with_its_replacement() {
    let table = [
        ("SystemTime::now()", "workflow_runtime::now()"),
        ("std::time::Instant::now()", "workflow_runtime::now()"),
        ("::std::time::Instant::now()", "workflow_runtime::now()"),
        ("let f = Instant::now;", "workflow_runtime::now()"),
        ("chrono::Utc::now()", "workflow_runtime::now()"),
        ("Local::now()", "workflow_runtime::now()"),
        ("jiff::Zoned::now()", "workflow_runtime::now()"),
        ("Timestamp::now()", "workflow_runtime::now()"),
        ("OffsetDateTime::now_utc()", "workflow_runtime::now()"),
        ("rand::random::<u8>()", "workflow_runtime::random()"),
        ("let x = 0..rand::random();", "workflow_runtime::random()"),
        ("rand::rng()", "workflow_runtime::random()"),
        ("rand::thread_rng()", "workflow_runtime::random()"),
        ("fastrand::u8(..)", "workflow_runtime::random()"),
        ("getrandom::fill(&mut b)", "workflow_runtime::random()"),
        ("Uuid::new_v4()", "workflow_runtime::uuid()"),
        ("uuid::Uuid::now_v7()", "workflow_runtime::uuid()"),
        ("std::env::var(x)", "as an argument of the workflow"),
        ("env::args()", "as an argument of the workflow"),
        ("std::fs::read(p)", "move it into a `#[step]`"),
        ("fs::read_to_string(p)", "move it into a `#[step]`"),
        ("File::open(p)", "move it into a `#[step]`"),
        ("std::net::lookup(p)", "talks to the network"),
        ("TcpStream::connect(a)", "talks to the network"),
        ("std::thread::spawn(f)", "#[step(blocking)]"),
        ("thread::sleep(d)", "workflow_runtime::sleep()"),
        ("std::process::Command::new(x)", "works on processes"),
        ("std::io::stdin()", "reads standard input"),
        ("tokio::spawn(f)", "leaves the run's own task"),
        (
            "tokio::task::spawn_blocking(f)",
            "leaves the run's own task",
        ),
        ("task::spawn_local(f)", "leaves the run's own task"),
        ("tokio::fs::read(p)", "works on files"),
        ("tokio::net::lookup_host(p)", "talks to the network"),
        ("tokio::time::sleep(d).await", "workflow_runtime::sleep()"),
        ("time::timeout(d, f).await", "workflow_runtime::sleep()"),
        ("tokio::process::Command::new(x)", "works on processes"),
        ("reqwest::get(u).await", "talks to the network"),
        ("ureq::get(u)", "talks to the network"),
        ("sqlx::query!(q)", "`sqlx::query!` talks to the network"),
        ("hyper::client::x()", "talks to the network"),
        ("tokio::select! { a = b => {} }", "begin it with `biased;`"),
        ("select! { a = b => {} }", "begin it with `biased;`"),
        ("futures::select! { a = b => {} }", "use `select_biased!`"),
    ];
    for (body, expected) in table {
        let messages = scanned(body);
        assert_eq!(messages.len(), 1, "{body}: {messages:?}");
        assert!(messages[0].contains(expected), "{body}: {messages:?}");
    }
}

#[test]
fn names_are_followed_through_imports_in_the_body() {
    for body in [
        "use std::fs::read_to_string; read_to_string(p)",
        "use std::fs::read_to_string; v.map(read_to_string)",
        "use rand::random as dice; dice::<u8>()",
        "use std::time::Instant as Clock; Clock::now()",
        "use std::{env as e, fs}; e::consts()",
        "use ::std::env::{self}; env::anything()",
        "use std::fs::*; read(p)",
        "use tokio::time::*; { sleep(d).await }",
        "if x { use tokio::time as t; t::anything() }",
        "f(); { g(|| h(dice())) } use rand::random as dice;",
        "use tokio::select as choose; choose! { a = b => {} }",
    ] {
        assert_eq!(scanned(body).len(), 1, "{body}: {:?}", scanned(body));
    }
}

#[test]
fn what_is_hidden_in_macro_arguments_closures_and_blocks_is_found() {
    for body in [
        "println!(\"{:?}\", Instant::now())",
        "join!(async { tokio::spawn(f) }, b)",
        "v.map(|x| async move { fastrand::bool() })",
        "tokio::select! { biased; _ = tokio::time::sleep(d) => {} }",
        "impl T { } SystemTime::now()",
        "HashMap::<K, V>::new(); Vec::<u8>::from(rand::random())",
    ] {
        assert_eq!(scanned(body).len(), 1, "{body}: {:?}", scanned(body));
    }
    assert_eq!(
        scanned("Instant::now(); f(Uuid::new_v4()); rand::rng()").len(),
        3
    );
}

#[test]
fn what_only_looks_like_it_is_left_in_peace() {
    for body in [
        "self.clock.now()",
        "clock.now(); x.random(); x.sleep()",
        "use std::fs::read; file.read(buffer); file.read",
        "self::rand::random(); super::fs::read(p); Self::env::var(x)",
        "my::Instant::now()",
        "crate::time::Instant::now()",
        "use my::Instant; Instant::now()",
        "use crate::env; env::var(x)",
        "now(); random(); sleep(d).await; uuid()",
        "workflow_runtime::now(); workflow_runtime::sleep(d).await",
        "process::order(x); net::total(x); env::region(x); task::create(x)",
        "let ip: std::net::IpAddr = s.parse()?; std::net::Ipv4Addr::LOCALHOST",
        "tokio::time::Duration::from_secs(1); std::time::Duration::from_secs(1)",
        "reqwest::StatusCode::OK; Err(sqlx::Error::RowNotFound)",
        "tokio::select! { biased; a = b => {} }",
        "futures::select_biased! { a = b => {} }; tokio::join!(a, b)",
        "rand::rngs::StdRng::seed_from_u64(seed)",
        "use rand::random; Point { random: 1 }; p.random",
        "use std::time::Instant; let x: Option<Instant> = None;",
        "nondeterministic!(Instant::now())",
        "workflow_runtime::nondeterministic! { std::env::var(x) }",
        "fn f() { Instant::now(); } async fn g() { tokio::spawn(f); }",
        "macro_rules! m { () => { Instant::now() } }",
        "#[cfg(fs::read)] x",
        "let fs = 1; fs + 1",
        "std::io::Error::other(x); std::env!(x); env!(x)",
    ] {
        assert_eq!(scanned(body), [] as [String; 0], "{body}");
    }
}
