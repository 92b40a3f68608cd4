//! What a client sees: first and repeated requests, refusals, tenants, failures, disconnects.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderName, Method, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{any, post as at_post};
use futures::future::join_all;
use tokio::sync::Notify;
use workflow_runtime::idempotency::InFlight;
use workflow_runtime::idempotency::http::IdempotencyLayer;

use crate::client::{Reply, pay, post};
use crate::server::{Server, Tally, engine};

/// A server whose `/pay` counts by body; `tune` tells the layer more.
async fn paying(tune: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> (Server, Tally) {
    let tally = Tally::default();
    let counting = tally.clone();
    let handler = any(async move |body: String| {
        let n = counting.count(&body);
        let headers = [
            ("content-type", "text/x-receipt"),
            ("location", "/receipts/1"),
            ("set-cookie", "session=secret"),
            ("x-other", "once"),
        ];
        (
            StatusCode::CREATED,
            headers,
            format!("receipt {n} for {body}"),
        )
    });
    let engine = engine().await;
    let layer = tune(IdempotencyLayer::new(engine.keys()));
    let app = Router::new()
        .route("/pay", handler.clone())
        .route("/other", handler);
    (Server::start(app.layer(layer)).await, tally)
}

#[tokio::test]
async fn a_repetition_gets_the_first_response_and_is_marked() {
    let tally = Tally::default();
    let counting = tally.clone();
    let pay_handler = async move |body: String| counting.count(&body).to_string();

    let engine = engine().await;
    let app = Router::new()
        .route("/pay", at_post(pay_handler))
        .layer(IdempotencyLayer::new(engine.keys()));

    let server = Server::start(app).await;
    let first = pay("k1", "ada 500").send(server.at).await;
    assert_eq!((first.status, &*first.body), (200, "1"));
    assert!(!first.is_replayed());
    for _ in 0..3 {
        let again = pay("k1", "ada 500").send(server.at).await;
        assert!(again.is_replayed());
        assert_eq!((again.status, &*again.body), (200, "1"));
    }
    assert_eq!(pay("k2", "ada 500").send(server.at).await.body, "2");
    assert_eq!(tally.total(), 2);
}

#[tokio::test]
async fn status_chosen_headers_and_body_are_replayed_and_no_cookie() {
    let (server, _) = paying(|layer| layer).await;
    let first = pay("k", "x").send(server.at).await;
    let again = pay("k", "x").send(server.at).await;
    assert_eq!(first.header("set-cookie"), Some("session=secret"));
    assert_eq!((again.status, &again.body), (201, &first.body));
    for kept in ["content-type", "location", "content-length"] {
        assert_eq!(again.header(kept), first.header(kept), "{kept}");
        assert!(again.header(kept).is_some(), "{kept}");
    }
    assert_eq!(
        (again.header("set-cookie"), again.header("x-other")),
        (None, None)
    );

    let other = HeaderName::from_static("x-other");
    let (server, _) = paying(|layer| layer.keep_headers([other])).await;
    pay("k", "x").send(server.at).await;
    let again = pay("k", "x").send(server.at).await;
    assert_eq!(
        (again.header("x-other"), again.header("location")),
        (Some("once"), None)
    );
}

#[tokio::test]
async fn a_key_that_was_used_for_another_request_is_refused_with_422() {
    let (server, tally) = paying(|layer| layer).await;
    pay("k", "x").send(server.at).await;
    let elsewhere = |path| post(path, "x").header("Idempotency-Key", "k");
    for other in [
        pay("k", "y"),
        pay("k", "x").method("PATCH"),
        elsewhere("/other"),
        elsewhere("/pay?a=1"),
    ] {
        other.send(server.at).await.assert_problem(422);
    }
    assert_eq!(tally.total(), 1);
    assert!(pay("k", "x").send(server.at).await.is_replayed());
}

#[tokio::test]
async fn a_quoted_key_is_the_same_as_a_bare_one() {
    let (server, tally) = paying(|layer| layer).await;
    pay("8e03978e-40d5", "x").send(server.at).await;
    assert!(
        pay("\"8e03978e-40d5\"", "x")
            .send(server.at)
            .await
            .is_replayed()
    );
    assert_eq!(tally.total(), 1);
}

#[tokio::test]
async fn a_missing_key_is_refused_where_it_is_required_and_a_malformed_one_everywhere() {
    let (free, free_tally) = paying(|layer| layer).await;
    let (strict, strict_tally) = paying(IdempotencyLayer::required).await;
    for _ in 0..2 {
        assert_eq!(post("/pay", "x").send(free.at).await.status, 201);
        post("/pay", "x").send(strict.at).await.assert_problem(400);
    }
    assert_eq!((free_tally.total(), strict_tally.total()), (2, 0));
    let twice = pay("a", "x").header("Idempotency-Key", "b");
    for malformed in [pay("", "x"), pay("a b", "x"), pay("\"a", "x"), twice] {
        malformed.send(free.at).await.assert_problem(400);
    }
    assert_eq!(free_tally.total(), 2);
    assert_eq!(pay("k", "x").send(strict.at).await.status, 201);
}

#[tokio::test]
async fn only_the_chosen_methods_are_guarded() {
    let (server, tally) = paying(IdempotencyLayer::required).await;
    for method in ["GET", "PUT", "DELETE"] {
        for _ in 0..2 {
            assert!(
                !pay("k", "x")
                    .method(method)
                    .send(server.at)
                    .await
                    .is_replayed()
            );
        }
    }
    assert_eq!(tally.total(), 6);
    let (server, tally) = paying(|layer| layer.methods([Method::PUT])).await;
    for method in ["PUT", "POST"] {
        for _ in 0..2 {
            pay("k", "x").method(method).send(server.at).await;
        }
    }
    assert_eq!(tally.total(), 3);
}

#[tokio::test]
async fn equal_keys_of_two_tenants_never_meet() {
    let (server, tally) = paying(|layer| {
        layer.scope(|parts| {
            let tenant = parts.headers.get("x-tenant")?.to_str().ok()?;
            Some(tenant.to_owned())
        })
    })
    .await;
    let ask = |tenant: &str| pay("k", "x").header("X-Tenant", tenant);
    for _ in 0..2 {
        assert_eq!(ask("acme").send(server.at).await.body, "receipt 1 for x");
        assert_eq!(
            ask("umbrella").send(server.at).await.body,
            "receipt 2 for x"
        );
    }
    pay("k", "x").send(server.at).await.assert_problem(400);
    assert_eq!(tally.total(), 2);
}

/// A server whose `/pay` waits until it is told to go on.
async fn slow(tune: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> (Server, Arc<Slow>) {
    let slow = Arc::<Slow>::default();
    let handler = slow.clone();
    let engine = engine().await;
    let app = Router::new().route(
        "/pay",
        at_post(async move |body: String| {
            let n = handler.tally.count(&body);
            handler.begun.notify_one();
            handler.go.notified().await;
            handler.tally.count("ended");
            n.to_string()
        }),
    );
    let layer = tune(IdempotencyLayer::new(engine.keys()));
    (Server::start(app.layer(layer)).await, slow)
}

#[derive(Default)]
struct Slow {
    tally: Tally,
    begun: Notify,
    go: Notify,
}

#[tokio::test]
async fn a_repetition_in_flight_is_refused_with_409_and_when_to_come_back() {
    let (server, slow) = slow(|layer| layer.retry_after(Duration::from_secs(7))).await;
    let first = tokio::spawn({
        let at = server.at;
        async move { pay("k", "x").send(at).await }
    });
    slow.begun.notified().await;
    let busy = pay("k", "x").send(server.at).await;
    busy.assert_problem(409);
    assert_eq!(busy.header("retry-after"), Some("7"));
    pay("k", "y").send(server.at).await.assert_problem(422);
    slow.go.notify_one();
    let first = first.await.expect("no panic");
    assert_eq!((first.status, &*first.body), (200, "1"));
    assert!(pay("k", "x").send(server.at).await.is_replayed());
    assert_eq!(slow.tally.of("x"), 1);
}

#[tokio::test]
async fn a_repetition_in_flight_waits_if_it_is_told_to() {
    let (server, slow) = slow(|layer| layer.in_flight(InFlight::Wait)).await;
    let asks = (0..16).map(|_| {
        let at = server.at;
        tokio::spawn(async move { pay("k", "x").send(at).await })
    });
    let asks: Vec<_> = asks.collect();
    slow.begun.notified().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(asks.iter().all(|ask| !ask.is_finished()));
    slow.go.notify_one();
    let replies: Vec<Reply> = join_all(asks)
        .await
        .into_iter()
        .map(|r| r.expect("no panic"))
        .collect();
    assert!(
        replies
            .iter()
            .all(|reply| reply.status == 200 && reply.body == "1")
    );
    assert_eq!(
        replies.iter().filter(|reply| !reply.is_replayed()).count(),
        1
    );
    assert_eq!(slow.tally.of("x"), 1);
}

#[tokio::test]
async fn a_client_that_goes_away_stops_nothing_and_its_repetition_gets_the_response() {
    let (server, slow) = slow(|layer| layer.in_flight(InFlight::Wait)).await;
    let connection = pay("k", "x").begin(server.at).await.expect("is sent");
    slow.begun.notified().await;
    drop(connection);
    tokio::time::sleep(Duration::from_millis(100)).await;
    slow.go.notify_one();
    let again = pay("k", "x").send(server.at).await;
    assert!(again.is_replayed());
    assert_eq!(again.body, "1");
    assert_eq!((slow.tally.of("x"), slow.tally.of("ended")), (1, 1));
}

/// A server whose `/pay` answers with these statuses, one after the other; 0 panics.
async fn answering(
    statuses: &'static [u16],
    tune: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer,
) -> Server {
    let tally = Tally::default();
    let engine = engine().await;
    let handler = async move || {
        let n = tally.count("calls") as usize - 1;
        assert_ne!(statuses[n], 0, "on purpose");
        let status = StatusCode::from_u16(statuses[n]).expect("a status");
        (status, n.to_string()).into_response()
    };
    let layer = tune(IdempotencyLayer::new(engine.keys()));
    Server::start(Router::new().route("/pay", at_post(handler)).layer(layer)).await
}

#[tokio::test]
async fn a_server_error_frees_the_key_and_a_client_error_is_kept() {
    let server = answering(&[500, 503, 402, 200], |layer| layer).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let reply = pay("k", "x").send(server.at).await;
        seen.push((reply.status, reply.is_replayed()));
    }
    assert_eq!(
        seen,
        [(500, false), (503, false), (402, false), (402, true)]
    );
}

#[tokio::test]
async fn which_responses_free_the_key_can_be_chosen() {
    let choose = |layer: IdempotencyLayer| layer.release_if(|status| !status.is_success());
    let server = answering(&[402, 500, 202], choose).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let reply = pay("k", "x").send(server.at).await;
        seen.push((reply.status, reply.is_replayed()));
    }
    assert_eq!(
        seen,
        [(402, false), (500, false), (202, false), (202, true)]
    );
}

#[tokio::test]
async fn a_handler_that_panics_frees_the_key() {
    let server = answering(&[0, 200], |layer| layer).await;
    let broken = pay("k", "x").try_send(server.at).await;
    assert!(broken.is_err(), "as without the layer: {broken:?}");
    let reply = pay("k", "x").send(server.at).await;
    assert_eq!((reply.status, reply.is_replayed()), (200, false));
}

#[tokio::test]
async fn a_response_is_forgotten_after_its_time() {
    let (server, tally) = paying(|layer| layer.ttl(Duration::from_millis(100))).await;
    pay("k", "x").send(server.at).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!pay("k", "x").send(server.at).await.is_replayed());
    assert_eq!(tally.total(), 2);
}

#[tokio::test]
async fn nothing_is_handled_while_keys_are_not_available() {
    let tally = Tally::default();
    let counting = tally.clone();
    let engine = engine().await;
    let app = Router::new()
        .route(
            "/pay",
            at_post(async move || counting.count("x").to_string()),
        )
        .layer(IdempotencyLayer::new(engine.keys()));
    let server = Server::start(app).await;
    engine.shutdown().await.expect("stops");
    let refused = pay("k", "x").send(server.at).await;
    refused.assert_problem(503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(tally.total(), 0);
    assert_eq!(
        post("/pay", "x").send(server.at).await.status,
        200,
        "without a key it passes"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_sent_three_times_in_random_order_are_handled_once_each_and_answered_alike() {
    let (server, tally) = paying(|layer| layer.in_flight(InFlight::Wait)).await;
    let mut asks: Vec<u32> = (0..60).flat_map(|n| [n; 3]).collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for n in (1..asks.len()).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        asks.swap(n, (seed % (n as u64 + 1)) as usize);
    }
    let asks = asks.into_iter().map(|n| {
        let at = server.at;
        tokio::spawn(async move {
            let reply = pay(&format!("key-{n}"), &format!("order {n}"))
                .send(at)
                .await;
            assert_eq!(
                (reply.status, reply.body),
                (201, format!("receipt 1 for order {n}"))
            );
            reply.headers.contains_key("idempotent-replayed")
        })
    });
    let replayed = join_all(asks)
        .await
        .into_iter()
        .filter(|r| *r.as_ref().expect("no panic"));
    assert_eq!(replayed.count(), 120);
    assert_eq!(tally.total(), 60);
}
