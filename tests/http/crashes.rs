//! Servers that die between the effect and its record, and servers that are killed again and again.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post as at_post;
use workflow_runtime::Engine;
use workflow_runtime::idempotency::InFlight;
use workflow_runtime::idempotency::http::IdempotencyLayer;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};

use crate::client::pay;
use crate::server::{Server, Tally};

/// Tells the child which directory to serve from.
const CHILD_DIR: &str = "HTTP_CHILD_DIR";

/// Kills, unless `KILLS` says otherwise.
const DEFAULT_KILLS: u64 = 12;

fn counting(tally: &Tally, engine: &Engine) -> Router {
    let tally = tally.clone();
    Router::new()
        .route(
            "/pay",
            at_post(async move |body: String| format!("{body}: {}", tally.count(&body))),
        )
        .layer(IdempotencyLayer::new(engine.keys()).in_flight(InFlight::Wait))
}

#[tokio::test]
async fn a_crash_at_the_write_of_a_response_lets_the_repetition_be_handled_and_later_ones_replayed()
{
    for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
        let tally = Tally::default();
        let store = MemoryStore::with_faults(FaultPlan::at(0, fault));
        {
            let engine = Engine::builder()
                .open_with(store.clone())
                .await
                .expect("opens");
            let server = Server::start(counting(&tally, &engine)).await;
            let ask = pay("k", "x");
            tokio::select! {
                () = store.crashed() => {}
                reply = ask.try_send(server.at) => panic!("nobody answers: {reply:?}"),
            }
        }
        let store = store.reopen(Surviving::Synced);
        let engine = Engine::builder().open_with(store).await.expect("opens");
        let server = Server::start(counting(&tally, &engine)).await;
        let was_kept = fault == Fault::CrashAfter;
        let expected = if was_kept { "x: 1" } else { "x: 2" };
        for n in 0..3 {
            let reply = pay("k", "x").send(server.at).await;
            assert_eq!(reply.body, expected, "{fault:?}");
            assert_eq!(reply.is_replayed(), was_kept || n > 0, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn a_handler_that_dies_with_its_server_frees_the_key_on_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let first = path.clone();
    // A runtime of its own, which is stopped in the middle of the handler.
    let life = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let engine = Engine::builder().open(first).await.expect("opens");
            let hanging = Router::new()
                .route("/pay", at_post(async || std::future::pending::<()>().await))
                .layer(IdempotencyLayer::new(engine.keys()));
            let server = Server::start(hanging).await;
            let connection = pay("k", "x").begin(server.at).await.expect("is sent");
            tokio::time::sleep(Duration::from_millis(200)).await;
            let busy = pay("k", "x").send(server.at).await;
            busy.assert_problem(409);
            drop(connection);
        });
        runtime.shutdown_timeout(Duration::from_secs(10));
    });
    life.join().expect("no panic");
    let tally = Tally::default();
    let engine = Engine::builder().open(&path).await.expect("opens again");
    let server = Server::start(counting(&tally, &engine)).await;
    assert_eq!(pay("k", "x").send(server.at).await.body, "x: 1");
    assert!(pay("k", "x").send(server.at).await.is_replayed());
}

/// Not a test by itself: the server that is killed. Does nothing unless it is told to.
#[test]
fn child_entry() {
    let Ok(dir) = std::env::var(CHILD_DIR) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let dir = Path::new(&dir);
        let engine = Engine::builder().open(dir.join("db")).await.expect("opens");
        let ledger = dir.join("ledger");
        let app = Router::new()
            .route(
                "/pay",
                at_post(async move |headers: HeaderMap, body: String| {
                    let key = headers["idempotency-key"].to_str().expect("text");
                    charge(&ledger, key, &body)
                }),
            )
            .layer(IdempotencyLayer::new(engine.keys()).in_flight(InFlight::Wait));
        let server = Server::start(app).await;
        let mut out = std::io::stdout();
        writeln!(out, "\nserving {}", server.at).expect("is told");
        std::future::pending::<()>().await;
    });
}

/// What the handler does outside: one line per execution, which no crash of ours undoes. Answers with something that is
/// different every time.
fn charge(ledger: &Path, key: &str, body: &str) -> String {
    let mut file = std::fs::OpenOptions::new();
    let mut file = file.create(true).append(true).open(ledger).expect("opens");
    let receipt = format!("{body} {:x}", std::process::id());
    file.write_all(format!("{key} {receipt}\n").as_bytes())
        .expect("is written");
    receipt
}

struct Killed {
    process: Child,
    at: SocketAddr,
}

impl Killed {
    fn start(dir: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "crashes::child_entry", "--nocapture"])
            .env(CHILD_DIR, dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let out = process.stdout.take().expect("piped");
        let mut lines = std::io::BufReader::new(out).lines();
        let at = loop {
            let line = lines
                .next()
                .expect("it says where it serves")
                .expect("text");
            if let Some(at) = line.strip_prefix("serving ") {
                break at.parse().expect("an address");
            }
        };
        Self { process, at }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.process.kill().expect("is killed");
        self.process.wait().expect("is gone");
    }
}

#[tokio::test]
async fn however_often_the_server_is_killed_an_answer_once_given_never_changes() {
    let kills = std::env::var("KILLS").map_or(DEFAULT_KILLS, |n| n.parse().expect("a number"));
    let dir = tempfile::tempdir().expect("a directory");
    let mut given: HashMap<u64, String> = HashMap::new();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut replayed = 0;
    for life in 0..=kills {
        let server = Killed::start(dir.path());
        let orders: Vec<u64> = (0..40).map(|_| random(30 * (life + 1))).collect();
        let asking = async {
            for order in orders {
                let ask = pay(&format!("key-{order}"), &format!("order {order}"));
                let Ok(reply) = ask.try_send(server.at).await else {
                    return;
                };
                assert_eq!(reply.status, 200, "{reply:?}");
                replayed += u32::from(reply.is_replayed());
                let first = given.entry(order).or_insert_with(|| reply.body.clone());
                assert_eq!(*first, reply.body, "order {order} in life {life}");
            }
        };
        let patience = Duration::from_millis(if life == kills {
            60_000
        } else {
            5 + random(150)
        });
        let _ = tokio::time::timeout(patience, asking).await;
    }
    let ledger = std::fs::read_to_string(dir.path().join("ledger")).expect("reads");
    let mut done: HashMap<&str, u32> = HashMap::new();
    for line in ledger.lines() {
        *done
            .entry(line.split(' ').next().expect("a key"))
            .or_default() += 1;
    }
    let again: u32 = done.values().map(|n| n - 1).sum();
    assert!(
        u64::from(again) <= kills,
        "at most one in flight per kill: {again}"
    );
    assert!(
        replayed > 0 && given.len() > 20,
        "{replayed} of {}",
        given.len()
    );
    eprintln!(
        "{kills} kills, {} orders, {replayed} replayed, {again} done again",
        given.len()
    );
}
