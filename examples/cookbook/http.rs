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
use tokio::task::JoinHandle;
use workflow_runtime::idempotency::http::IdempotencyLayer;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::testing::assert_audit_clean;
use workflow_runtime::{Engine, Key, Result, get_step_metadata, step, workflow};

use super::world::{DEATHS, Service, two_lives};

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

/// A server on a free port, which stops when it is dropped.
struct Server {
    at: SocketAddr,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start(app: Router) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = listener.local_addr()?;
        let task = tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { at, task })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn open(store: MemoryStore, bank: &Arc<Service>) -> Result<Engine> {
    let builder = Engine::builder().register::<pay>();
    let builder = builder.resource_arc(bank.clone());
    Ok(builder.open_with(store).await?)
}

/// One process: a client asks twice, because it heard nothing for too long.
async fn live(store: MemoryStore, bank: Arc<Service>) -> Result<()> {
    let engine = open(store, &bank).await?;
    let server = Server::start(app(&engine)).await?;
    for _ in 0..2 {
        let reply = send(server.at, "ada", Some("k-1"), "7 500").await?;
        assert_eq!((reply.status, &*reply.body), (201, "receipt 1"));
    }
    drop(server);
    engine.shutdown().await?;
    Ok(())
}

/// Asks for the same thing again and again, of processes that die at every write and of one that lives.
///
/// # Errors
///
/// If the engine fails, or there is no port.
pub async fn run() -> Result<String> {
    assert_audit_clean::<pay>();
    let mut crashes = 0;
    for death in DEATHS {
        for write in 0.. {
            let bank = Arc::new(Service::default());
            let ended = two_lives(write, death, |store| live(store, bank.clone())).await?;
            assert_eq!(bank.ledger(), ["ada 500"], "{death:?} at write {write}");
            if ended.is_none() {
                break;
            }
            crashes += 1;
        }
    }
    assert!(crashes >= 6, "a crash at every write: {crashes}");
    answers().await?;
    Ok(format!(
        "{crashes} crashes, and 9 requests of two customers: one charge each"
    ))
}

/// What every kind of request is answered with.
async fn answers() -> Result<()> {
    let bank = Arc::new(Service::default());
    let engine = open(MemoryStore::new(), &bank).await?;
    let server = Server::start(app(&engine)).await?;
    let at = server.at;

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
    drop(server);
    engine.shutdown().await?;
    Ok(())
}
