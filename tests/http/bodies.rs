//! Bodies: limits in both directions, streams, and responses that break off.

use std::convert::Infallible;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::post as at_post;
use futures::stream;
use workflow_runtime::idempotency::http::IdempotencyLayer;

use crate::client::{pay, post};
use crate::server::{Server, Tally, engine};

/// A server whose `/pay` echoes the body, and whose `/stream/<n>` answers with a stream of n pieces of 1,000 bytes.
async fn server(tune: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> (Server, Tally) {
    let tally = Tally::default();
    let (echoed, streamed) = (tally.clone(), tally.clone());
    let echo = async move |body: Bytes| {
        echoed.count("pay");
        body
    };
    let streaming = async move |axum::extract::Path(pieces): axum::extract::Path<usize>| {
        let n = streamed.count("stream");
        let pieces = (0..pieces).map(move |_| Ok::<_, Infallible>(n.to_string().repeat(1_000)));
        Body::from_stream(stream::iter(pieces))
    };
    let engine = engine().await;
    let app = Router::new()
        .route("/pay", at_post(echo))
        .route("/stream/{pieces}", at_post(streaming))
        .layer(tune(IdempotencyLayer::new(engine.keys())));
    (Server::start(app).await, tally)
}

#[tokio::test]
async fn a_request_above_the_limit_is_refused_with_413_and_not_handled() {
    let (server, tally) = server(|layer| layer.request_limit(10_000)).await;
    let fits = "x".repeat(10_000);
    assert_eq!(pay("k", &fits).send(server.at).await.body, fits);
    pay("j", &"x".repeat(10_001))
        .send(server.at)
        .await
        .assert_problem(413);
    let piece = pay("i", &"x".repeat(1_000));
    piece.send_chunked(server.at, 11).await.assert_problem(413);
    piece
        .send_chunked(server.at, 5_000)
        .await
        .assert_problem(413);
    assert_eq!(tally.total(), 1);
    let whole = piece.send_chunked(server.at, 10).await;
    assert_eq!(
        (whole.status, whole.body.len()),
        (200, 10_000),
        "the key was not taken before"
    );
    assert!(piece.send_chunked(server.at, 10).await.is_replayed());
    let unguarded = post("/pay", &"x".repeat(20_000)).send(server.at).await;
    assert_eq!(
        unguarded.body.len(),
        20_000,
        "the limit is for requests with a key"
    );
}

#[tokio::test]
async fn a_streamed_response_is_kept_and_replayed_as_a_whole() {
    let (server, tally) = server(|layer| layer).await;
    let ask = post("/stream/100", "").header("Idempotency-Key", "k");
    let first = ask.send(server.at).await;
    let again = ask.send(server.at).await;
    assert_eq!(first.body, "1".repeat(100_000));
    assert_eq!(again.body, first.body);
    assert!(again.is_replayed());
    assert_eq!(tally.total(), 1);
}

#[tokio::test]
async fn a_response_above_the_limit_is_handed_on_whole_and_frees_its_key() {
    let (server, tally) = server(|layer| layer.response_limit(50_000)).await;
    for n in 1..=2 {
        let ask = post("/stream/51", "").header("Idempotency-Key", "k");
        let reply = ask.send(server.at).await;
        assert_eq!(reply.body, n.to_string().repeat(51_000));
        assert!(!reply.is_replayed());
    }
    assert_eq!(tally.total(), 2);
    let fits = post("/stream/50", "").header("Idempotency-Key", "j");
    fits.send(server.at).await;
    assert!(fits.send(server.at).await.is_replayed());
}

#[tokio::test]
async fn a_response_that_breaks_off_is_not_kept() {
    let tally = Tally::default();
    let counting = tally.clone();
    let handler = async move || {
        let pieces = match counting.count("x") {
            1 => vec![Ok("half"), Err(std::io::Error::other("on purpose"))],
            _ => vec![Ok("whole")],
        };
        Body::from_stream(stream::iter(pieces))
    };
    let engine = engine().await;
    let app = Router::new()
        .route("/pay", at_post(handler))
        .layer(IdempotencyLayer::new(engine.keys()));
    let server = Server::start(app).await;
    let broken = pay("k", "x").try_send(server.at).await;
    assert!(broken.is_err(), "{broken:?}");
    assert_eq!(pay("k", "x").send(server.at).await.body, "whole");
    assert!(pay("k", "x").send(server.at).await.is_replayed());
    assert_eq!(tally.total(), 2);
}
