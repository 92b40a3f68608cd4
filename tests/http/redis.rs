//! Keys in a real Redis server.
//!
//! Every test starts one of its own: `redis-server`, or what `REDIS_SERVER` names, on a free port of the loopback
//! interface, without persistence. If there is none these tests do nothing, and say so; if `REDIS_SERVER` is
//! set, as `./scripts/test` sets it, they fail.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post as at_post;
use futures::future::join_all;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use workflow_runtime::Error;
use workflow_runtime::idempotency::conformance::Harness;
use workflow_runtime::idempotency::http::IdempotencyLayer;
use workflow_runtime::idempotency::{
    InFlight, KeyId, KeyInbox, KeyStore, Once, OnceError, RedisKeys,
};
use workflow_runtime::store::BoxFuture;

use crate::client::pay;
use crate::server::{Server, Tally};

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server of our own; killed when it is dropped.
struct Redis {
    process: Child,
    port: u16,
    dir: TempDir,
}

/// The program, or `None` if there is none here and none was asked for.
fn program() -> Option<std::ffi::OsString> {
    let asked_for = std::env::var_os("REDIS_SERVER");
    let program = asked_for.clone().unwrap_or_else(|| "redis-server".into());
    let answers = Command::new(&program).arg("--version").output().is_ok();
    if !answers {
        let why = "there is no redis-server here: install it, or name it with REDIS_SERVER";
        assert!(asked_for.is_none(), "{why}");
        eprintln!("SKIPPED: {why}");
        return None;
    }
    Some(program)
}

impl Redis {
    async fn start() -> Option<Self> {
        let program = program()?;
        for _ in 0..5 {
            // Somebody else may take the port in between: then another one is tried.
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let port = free.local_addr().expect("an address").port();
            drop(free);
            let dir = tempfile::tempdir().expect("a directory");
            let process = serve(&program, port, &dir);
            let mut redis = Self { process, port, dir };
            if redis.is_up().await {
                return Some(redis);
            }
        }
        panic!("redis-server does not start");
    }

    /// Kills the server and starts it again on the same port.
    async fn restart(&mut self) {
        self.process.kill().expect("is killed");
        self.process.wait().expect("is gone");
        self.process = serve(&program().expect("it was there"), self.port, &self.dir);
        assert!(self.is_up().await, "it comes back");
    }

    async fn is_up(&mut self) -> bool {
        let started = std::time::Instant::now();
        while started.elapsed() < PATIENCE {
            if self.process.try_wait().expect("can be asked").is_some() {
                return false;
            }
            if self.command(&["PING"]).await.as_deref() == Some("+PONG\r\n") {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    /// Sends a command past the client that is tested; returns the answer as it stands on the wire.
    async fn command(&self, words: &[&str]) -> Option<String> {
        let at = (Ipv4Addr::LOCALHOST, self.port);
        let mut stream = tokio::net::TcpStream::connect(at).await.ok()?;
        let line = format!("{}\r\n", words.join(" "));
        stream.write_all(line.as_bytes()).await.ok()?;
        stream.write_all(b"QUIT\r\n").await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer.strip_suffix("+OK\r\n").map(str::to_owned)
    }

    async fn keys(&self) -> RedisKeys {
        let url = format!("redis://127.0.0.1:{}/", self.port);
        RedisKeys::connect(&url).await.expect("connects")
    }
}

fn serve(program: &std::ffi::OsStr, port: u16, dir: &TempDir) -> Child {
    Command::new(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .arg("--dir")
        .arg(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts")
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Keys in Redis; the server lives as long as this.
#[derive(Default)]
struct InRedis(Mutex<Option<Arc<Redis>>>);

impl Harness for InRedis {
    fn fresh(&self) -> BoxFuture<'_, Arc<dyn KeyStore>> {
        Box::pin(async {
            let redis = Arc::new(Redis::start().await.expect("was looked for before"));
            *self.0.lock().expect("not poisoned") = Some(redis.clone());
            let keys: Arc<dyn KeyStore> = Arc::new(redis.keys().await);
            keys
        })
    }

    fn again(&self, old: Arc<dyn KeyStore>) -> BoxFuture<'_, Option<Arc<dyn KeyStore>>> {
        drop(old);
        let redis = self.0.lock().expect("not poisoned").clone();
        Box::pin(async move {
            // The server stays: it is the client that starts anew.
            let keys: Arc<dyn KeyStore> = Arc::new(redis.expect("fresh came first").keys().await);
            Some(keys)
        })
    }
}

macro_rules! rules {
    ({} $($rule:ident)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                if program().is_some() {
                    workflow_runtime::idempotency::conformance::$rule(&InRedis::default()).await;
                }
            }
        )*
    };
}

workflow_runtime::__key_store_rules! { rules {} }

#[tokio::test]
async fn of_callers_in_many_processes_one_does_the_work() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(redis.keys().await); // connections of their own, as other processes have
    }
    for round in 0..10 {
        let times = AtomicU32::new(0);
        let callers = (0..32).map(|n| {
            let (keys, times) = (&processes[n % 4], &times);
            async move {
                let work = async || {
                    times.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Ok::<_, Error>(n)
                };
                Once::new(keys, round)
                    .body("b")
                    .run(work)
                    .await
                    .expect("is done")
            }
        });
        let outcomes = join_all(callers).await;
        assert!(outcomes.iter().all(|n| *n == outcomes[0]));
        assert_eq!(times.load(Ordering::SeqCst), 1);
    }
    let other = Once::new(&processes[0], 1)
        .body("c")
        .run(async || Ok::<_, Error>(1));
    assert!(matches!(other.await, Err(OnceError::Conflict { .. })));
}

#[tokio::test]
async fn an_event_that_comes_to_several_consumers_three_times_is_handled_once() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let consumers = [redis.keys().await, redis.keys().await];
    for event in 0..10 {
        let times = AtomicU32::new(0);
        let deliveries = (0..6).map(|n| {
            let (keys, times) = (&consumers[n % 2], &times);
            async move {
                let inbox = KeyInbox::new(keys, "orders");
                let work = async || {
                    times.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Error>(format!("handled {event} first by {n}"))
                };
                let handled = inbox.accept(event).body(&event).run(work).await;
                handled.expect("is handled")
            }
        });
        let answers = join_all(deliveries).await;
        assert!(answers.iter().all(|answer| *answer == answers[0]));
        assert_eq!(times.load(Ordering::SeqCst), 1, "event {event}");
    }
    // Events of another inbox are others.
    let other = KeyInbox::new(&consumers[0], "payments");
    let other = other
        .accept(1)
        .run(async || Ok::<_, Error>("anew".to_owned()));
    assert_eq!(other.await.expect("is handled"), "anew");
}

#[tokio::test]
async fn a_process_that_dies_loses_its_key_with_its_lease_and_one_that_lives_keeps_it() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let (dies, lives) = (redis.keys().await, redis.keys().await);
    let lease = Duration::from_secs(2);
    // A process that dies frees nothing: its claim is forgotten, not dropped.
    let hanging = Box::new(Once::new(&dies, "k").lease(lease).run(async || {
        std::future::pending::<()>().await;
        Ok::<_, Error>(1)
    }));
    let mut hanging = std::mem::ManuallyDrop::new(Box::into_pin(hanging));
    let died = tokio::time::timeout(Duration::from_millis(100), hanging.as_mut()).await;
    assert!(died.is_err());
    let refused = Once::new(&lives, "k").in_flight(InFlight::Refuse);
    let refused = refused.run(async || Ok::<_, Error>(0)).await;
    assert!(
        matches!(refused, Err(OnceError::InFlight { .. })),
        "{refused:?}"
    );
    let slow = Once::new(&lives, "k").lease(lease).run(async || {
        tokio::time::sleep(3 * lease).await; // longer than its lease, with signs of life
        Ok::<_, Error>(2)
    });
    let third = redis.keys().await;
    let waits = Once::new(&third, "k").run(async || Ok::<_, Error>(3));
    let (slow, waits) = tokio::join!(slow, async {
        tokio::time::sleep(2 * lease).await;
        waits.await
    });
    assert_eq!((slow.expect("takes over"), waits.expect("waits")), (2, 2));
}

#[tokio::test]
async fn namespaces_and_prefixes_keep_keys_apart_and_a_row_is_as_documented() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let keys = redis.keys().await;
    let others = [
        keys.clone().namespace("two"),
        keys.clone().prefix("other"),
        keys.clone(),
    ];
    for (n, keys) in (0..).zip(&others) {
        let once = Once::new(keys, "k").run(async || Ok::<_, Error>(n));
        assert_eq!(once.await.expect("is done"), n);
    }
    let id = KeyId::derive("once", "", &"k".into());
    let mut rows: Vec<_> = redis
        .command(&["KEYS", "*"])
        .await
        .expect("lists")
        .lines()
        .map(str::to_owned)
        .collect();
    rows.retain(|line| line.contains(':'));
    rows.sort();
    let expected = [
        format!("other:1:default:{id}"),
        format!("workflow:1:default:{id}"),
        format!("workflow:1:two:{id}"),
    ];
    assert_eq!(rows, expected);
    let fields = redis
        .command(&["HKEYS", &expected[1]])
        .await
        .expect("is there");
    for field in [
        "state",
        "body",
        "owner",
        "fence",
        "since",
        "completed",
        "expires",
        "outcome",
    ] {
        assert!(
            fields.contains(&format!("\r\n{field}\r\n")),
            "{field}: {fields}"
        );
    }
    assert!(!fields.contains("until"), "{fields}");
    let state = redis.command(&["HGET", &expected[1], "state"]).await;
    assert_eq!(state.as_deref(), Some("$4\r\ndone\r\n"));
    let ttl = redis
        .command(&["PTTL", &expected[1]])
        .await
        .expect("has one");
    let ttl: u64 = ttl
        .trim()
        .trim_start_matches(':')
        .parse()
        .expect("a number");
    assert!((86_000_000..=86_400_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn a_server_that_restarts_without_persistence_forgets_and_the_docs_say_so() {
    let Some(mut redis) = Redis::start().await else {
        return;
    };
    let keys = redis.keys().await;
    let first = Once::new(&keys, "k").run(async || Ok::<_, Error>(1)).await;
    assert_eq!(first.expect("is done"), 1);
    redis.restart().await;
    // The connection comes back by itself, and the scripts are loaded again; the outcome is gone.
    let again = Once::new(&keys, "k").run(async || Ok::<_, Error>(2)).await;
    assert_eq!(again.expect("is done again"), 2);
}

#[tokio::test]
async fn an_outcome_whose_row_was_lost_meanwhile_is_recorded_all_the_same() {
    let Some(mut redis) = Redis::start().await else {
        return;
    };
    let keys = redis.keys().await;
    let redis = &mut redis;
    let once = Once::new(&keys, "k").run(async || {
        redis.restart().await;
        Ok::<_, Error>(1)
    });
    assert_eq!(once.await.expect("is recorded"), 1);
    let again = Once::new(&keys, "k").run(async || Ok::<_, Error>(2)).await;
    assert_eq!(again.expect("is on record"), 1);
}

#[tokio::test]
async fn without_a_server_nothing_runs_and_the_error_says_so() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let keys = redis.keys().await;
    drop(redis);
    let refused = Once::new(&keys, "k").run(async || -> Result<(), Error> { panic!("runs") });
    let text = refused.await.expect_err("cannot be asked").to_string();
    assert!(text.starts_with("Redis failed: "), "{text}");
    let wrong = RedisKeys::connect("redis://:secret@127.0.0.1:1/").await;
    let text = wrong.expect_err("nobody is there").to_string();
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn the_http_layer_works_on_redis() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let tally = Tally::default();
    let mut servers = Vec::new();
    for _ in 0..2 {
        let counting = tally.clone();
        let handler = async move |body: String| counting.count(&body).to_string();
        let layer = IdempotencyLayer::new(redis.keys().await).in_flight(InFlight::Wait);
        let app = Router::new().route("/pay", at_post(handler)).layer(layer);
        servers.push(Server::start(app).await);
    }
    for n in 0..6 {
        let reply = pay("k", "x").send(servers[n % 2].at).await;
        assert_eq!((reply.status, &*reply.body), (200, "1"));
        assert_eq!(reply.is_replayed(), n > 0);
    }
    pay("k", "y").send(servers[1].at).await.assert_problem(422);
    assert_eq!(tally.total(), 1);
}
