//! An endpoint behind the `Idempotency-Key` header, on axum: the layer keeps the answer, the workflow keeps the work.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use workflow_runtime::idempotency::http::IdempotencyLayer;
use workflow_runtime::testing::assert_audit_clean;
use workflow_runtime::{Engine, Key, Result, get_step_metadata, step, workflow};

use super::world::Service;

#[step(effect = "payment", timeout = "30s")]
async fn charge(#[resource] bank: &Service, customer: &str, cents: u64) -> Result<usize> {
    Ok(bank.act(get_step_metadata().step_id, format!("{customer} {cents}")))
}

#[workflow(key_ttl = "90d")]
async fn pay(customer: String, cents: u64) -> Result<usize> {
    charge(&customer, cents).await
}

/// Who is asking, as found out by [`authenticate`].
#[derive(Clone)]
struct Customer(String);

/// Knows the customer by the token of the request. Whose key it is must not be the client's choice.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request.headers().get("authorization");
    let customer = match token.map(|token| token.as_bytes()) {
        Some(b"token-of-ada") => "ada",
        Some(b"token-of-bob") => "bob",
        _ => return Err(StatusCode::UNAUTHORIZED),
    };
    request.extensions_mut().insert(Customer(customer.into()));
    Ok(next.run(request).await)
}

/// The handler. The order number is a key of the workflow's own: if the process dies, the answer is lost and the key
/// of the header is free again, but the run goes on, and the repeated request finds it.
async fn pay_order(
    State(engine): State<Engine>,
    Extension(Customer(customer)): Extension<Customer>,
    body: String,
) -> Result<(StatusCode, String), StatusCode> {
    let (order, cents) = body.split_once(' ').ok_or(StatusCode::BAD_REQUEST)?;
    let cents = cents.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    let key = Key::of((&*customer, "order", order));
    let run = engine.start(pay(customer, cents)).key(key).await;
    let run = run.map_err(|_| StatusCode::CONFLICT)?;
    let receipt = run.result().await;
    let receipt = receipt.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok((StatusCode::CREATED, format!("receipt {receipt}")))
}

fn app(engine: &Engine) -> Router {
    let layer = IdempotencyLayer::new(engine.keys())
        .required()
        .scope(|parts| {
            parts
                .extensions
                .get::<Customer>()
                .map(|Customer(name)| name.clone())
        });
    Router::new()
        .route("/payments", post(pay_order))
        .layer(layer)
        .layer(middleware::from_fn(authenticate)) // the last layer is the first to see a request
        .with_state(engine.clone())
}

/// A response as it came over the wire.
#[derive(Debug)]
struct Reply {
    status: u16,
    is_replayed: bool,
    body: String,
}

/// Posts to the endpoint over TCP, as any client does.
async fn send(to: SocketAddr, who: &str, key: Option<&str>, body: &str) -> Result<Reply> {
    let key = key.map_or(String::new(), |key| format!("Idempotency-Key: {key}\r\n"));
    let request = format!(
        "POST /payments HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nAuthorization: token-of-{who}\r\n\
         {key}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok(Reply {
        status: status.unwrap_or(0),
        is_replayed: head.to_lowercase().contains("idempotent-replayed: true"),
        body: body.to_owned(),
    })
}

/// Serves on a free port and asks for the same thing again and again.
///
/// # Errors
///
/// If the engine fails, or there is no port.
pub async fn run() -> Result<String> {
    assert_audit_clean::<pay>();
    let bank = Arc::new(Service::default());
    let builder = Engine::builder()
        .register::<pay>()
        .resource_arc(bank.clone());
    let engine = builder.open_in_memory().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    let app = app(&engine);
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let first = send(at, "ada", Some("k-1"), "7 500").await?;
    assert_eq!((first.status, first.is_replayed), (201, false), "{first:?}");
    for _ in 0..3 {
        let again = send(at, "ada", Some("k-1"), "7 500").await?;
        assert_eq!((again.status, again.is_replayed), (201, true), "{again:?}");
        assert_eq!(again.body, first.body);
    }
    let other_body = send(at, "ada", Some("k-1"), "7 900").await?;
    assert_eq!(other_body.status, 422, "{other_body:?}");
    let without_key = send(at, "ada", None, "7 500").await?;
    assert_eq!(without_key.status, 400, "{without_key:?}");
    let stranger = send(at, "eve", Some("k-1"), "7 500").await?;
    assert_eq!(stranger.status, 401, "{stranger:?}");

    // A client that forgot its key, or an answer that was lost with the process: the run's own key finds the work.
    let new_key = send(at, "ada", Some("k-2"), "7 500").await?;
    assert_eq!(
        (new_key.status, new_key.is_replayed),
        (201, false),
        "{new_key:?}"
    );
    assert_eq!(new_key.body, first.body, "the same run");

    let of_bob = send(at, "bob", Some("k-1"), "7 500").await?;
    assert_eq!(
        (of_bob.status, of_bob.is_replayed),
        (201, false),
        "{of_bob:?}"
    );
    assert_eq!(bank.ledger(), ["ada 500", "bob 500"]);
    server.abort();
    engine.shutdown().await?;
    Ok("9 requests for the orders of two customers, one charge each".into())
}
