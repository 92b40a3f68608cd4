//! What the layer does with a request.
//!
//! Owns the order: read the key, read the body, take the key, handle in a task, keep the response, answer. Never
//! handles a request whose key it does not hold.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;
use tracing::Instrument as _;

use super::super::claim::{self, Acquired, Claim, Recorded};
use super::super::{Completion, KeyError, KeyId, KeyResult, OwnerId, Reserve, Ticket};
use super::body::{self, LayerBody, Read};
use super::problem::Problem;
use super::{Config, header, stored};
use crate::key::Key;
use crate::store::BoxFuture;

/// The kind of the layer's keys: they do not meet those of `once`.
const KIND: &str = "http";

/// A service behind an [`IdempotencyLayer`](super::IdempotencyLayer).
#[derive(Clone)]
pub struct Idempotent<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> Idempotent<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }
}

impl<S: std::fmt::Debug> std::fmt::Debug for Idempotent<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Idempotent").field(&self.inner).finish()
    }
}

/// What the layer answers with.
type Answer<R, E> = Result<Response<LayerBody<R>>, E>;

impl<S, B, R> Service<Request<B>> for Idempotent<S>
where
    S: Service<Request<LayerBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Response = Response<LayerBody<R>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Answer<R, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was ready is the one to be called.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let config = self.config.clone();
        Box::pin(async move {
            if !config.methods.contains(request.method()) {
                return pass(inner, request).await;
            }
            match header::key_of(request.headers()) {
                Ok(Some(key)) => guard(config, inner, request, key).await,
                Ok(None) if config.required => Ok(own(Problem::Missing)),
                Ok(None) => pass(inner, request).await,
                Err(rule) => Ok(own(Problem::Malformed(rule))),
            }
        })
    }
}

/// Hands a request on that has no key.
async fn pass<S, B, R>(mut inner: S, request: Request<B>) -> Answer<R, S::Error>
where
    S: Service<Request<LayerBody<B>>, Response = Response<R>>,
    B: Body<Data = Bytes>,
    R: Body<Data = Bytes>,
{
    let response = inner.call(request.map(LayerBody::untouched)).await?;
    Ok(response.map(LayerBody::untouched))
}

/// Answers with a problem.
fn own<R: Body<Data = Bytes>>(problem: Problem) -> Response<LayerBody<R>> {
    problem.response().map(LayerBody::whole)
}

/// Answers a request that has a key.
async fn guard<S, B, R>(
    config: Arc<Config>,
    inner: S,
    request: Request<B>,
    key: Key,
) -> Answer<R, S::Error>
where
    S: Service<Request<LayerBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    let (parts, body) = request.into_parts();
    let scope = match &config.scope {
        None => String::new(),
        Some(scope) => match scope(&parts) {
            Some(scope) => scope,
            None => return Ok(own(Problem::NoScope)),
        },
    };
    let body = match body::read(body, config.request_limit).await {
        Read::Whole(body) => body,
        Read::TooLong(_) => return Ok(own(Problem::TooLong(config.request_limit))),
        Read::Failed(_) => return Ok(own(Problem::Unread)),
    };
    let reserve = Reserve {
        key: KeyId::derive(KIND, &scope, &key),
        body: stored::digest(&parts, &body),
        owner: OwnerId::next(),
        lease: config.lease,
    };
    match claim::acquire(&*config.keys, reserve, config.in_flight).await {
        Ok(Acquired::Mine(ticket)) => {
            let request = Request::from_parts(parts, LayerBody::whole(body));
            handle_in_task(config, inner, request, reserve, ticket).await
        }
        Ok(Acquired::Done(done)) => Ok(replay(reserve.key, &done.outcome)),
        Ok(Acquired::Busy(_)) => Ok(own(Problem::InFlight {
            retry_after: config.retry_after.as_secs(),
        })),
        Ok(Acquired::OtherBody { .. }) => Ok(own(Problem::OtherRequest)),
        Err(error) => {
            tracing::error!(%error, "a request was refused: its key could not be taken");
            Ok(own(match error {
                KeyError::Unreadable { .. } | KeyError::Codec => Problem::Unreadable,
                _ => Problem::Unavailable,
            }))
        }
    }
}

/// Answers with a kept response.
fn replay<R: Body<Data = Bytes>>(key: KeyId, outcome: &[u8]) -> Response<LayerBody<R>> {
    match stored::decode(outcome) {
        Ok(response) => response.map(LayerBody::whole),
        Err(problem) => {
            tracing::error!(%key, problem, "a kept response cannot be read");
            own(Problem::Unreadable)
        }
    }
}

/// Handles a request in a task of its own: it ends also if the client goes away.
async fn handle_in_task<S, B, R>(
    config: Arc<Config>,
    inner: S,
    request: Request<LayerBody<B>>,
    reserve: Reserve,
    ticket: Ticket,
) -> Answer<R, S::Error>
where
    S: Service<Request<LayerBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    let handling = handle(config, inner, request, reserve, ticket);
    match tokio::spawn(handling.in_current_span()).await {
        Ok(answer) => answer,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic), // as without the layer
            Err(_) => Ok(own(Problem::Unavailable)),       // the runtime goes down
        },
    }
}

/// Handles a request and keeps its response.
async fn handle<S, B, R>(
    config: Arc<Config>,
    mut inner: S,
    request: Request<LayerBody<B>>,
    reserve: Reserve,
    ticket: Ticket,
) -> Answer<R, S::Error>
where
    S: Service<Request<LayerBody<B>>, Response = Response<R>>,
    B: Body<Data = Bytes>,
    R: Body<Data = Bytes>,
{
    let claim = Claim::new(&*config.keys, ticket, config.lease);
    let handled = claim.during(async {
        let (parts, body) = inner.call(request).await?.into_parts();
        Ok((parts, body::read(body, config.response_limit).await))
    });
    // An error of the service itself frees the key, as `claim` is dropped.
    let (parts, read) = handled.await?;
    let body = match read {
        Read::Whole(body) => body,
        Read::TooLong(body) => {
            tracing::warn!(
                limit = config.response_limit,
                "a response is too long to be kept: its key is free again"
            );
            claim.release().await;
            return Ok(Response::from_parts(parts, body));
        }
        Read::Failed(body) => {
            claim.release().await;
            return Ok(Response::from_parts(parts, body));
        }
    };
    if (config.releases)(parts.status) {
        claim.release().await;
        return Ok(Response::from_parts(parts, LayerBody::whole(body)));
    }
    let outcome = stored::encode(
        parts.status,
        &parts.headers,
        &config.kept_headers,
        body.clone(),
    );
    Ok(match keep(&config, claim, reserve, outcome).await {
        Ok(None) => Response::from_parts(parts, LayerBody::whole(body)),
        Ok(Some(other)) => replay(reserve.key, &other),
        Err(error) => {
            tracing::error!(%error, "a response could not be kept: a repetition may be handled again");
            Response::from_parts(parts, LayerBody::whole(body))
        }
    })
}

/// Records a response. If another one is on record by now, that is returned.
async fn keep(
    config: &Config,
    claim: Claim<'_>,
    reserve: Reserve,
    outcome: Bytes,
) -> KeyResult<Option<Bytes>> {
    let completion = claim.complete(outcome.clone(), config.ttl).await?;
    if completion == Completion::Recorded {
        return Ok(None);
    }
    let late = claim::record_late(&*config.keys, reserve, outcome, config.ttl);
    Ok(match late.await? {
        Recorded::Own | Recorded::Never => None,
        Recorded::Other(done) => Some(done.outcome),
    })
}
