//! A tower layer for the `Idempotency-Key` header. Feature `http`.
//!
//! Owns what the layer can be told, in [`IdempotencyLayer`]; `service` does it, `header` reads the key, `stored` are the
//! bytes of a kept response, `problem` what the layer itself answers. It knows no web framework, only the
//! traits of tower and http, so that any server on them can use it:
//!
//! ```ignore
//! let engine = Engine::builder().open("orders.db").await?;
//! let app = Router::new()
//!     .route("/payments", post(pay))
//!     .layer(IdempotencyLayer::new(engine.keys()));
//! ```

mod body;
mod header;
mod problem;
mod service;
mod stored;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG,
    LAST_MODIFIED, LOCATION, RETRY_AFTER, VARY,
};
use http::request::Parts;
use http::{HeaderName, Method, StatusCode};
use tower_layer::Layer;

pub use self::body::LayerBody;
pub use self::service::Idempotent;
use super::claim::MIN_LEASE;
use super::{DEFAULT_LEASE, DEFAULT_TTL, InFlight, KeyStore};

/// The longest body of a request or response, unless told otherwise.
const DEFAULT_LIMIT: usize = 1024 * 1024;

/// The headers of a response that are kept, unless told otherwise: those that say what the body is, or where.
const DEFAULT_HEADERS: [HeaderName; 10] = [
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_TYPE,
    ETAG,
    LAST_MODIFIED,
    LOCATION,
    RETRY_AFTER,
    VARY,
];

/// Finds the scope of a request.
type Scope = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Judges a response.
type Judge = dyn Fn(StatusCode) -> bool + Send + Sync;

/// Answers a repeated request with the first one's response, by the `Idempotency-Key` header.
///
/// | a request | is answered with |
/// |---|---|
/// | without the header | whatever its handler says; 400 if the header is [required](Self::required) |
/// | with a new key | whatever its handler says; status, chosen headers and body are kept |
/// | repeated | the kept response and `Idempotent-Replayed: true` |
/// | repeated while the first one is handled | 409 and `Retry-After`, or the first one's response ([`in_flight`](Self::in_flight)) |
/// | with a key that was used for another method, path, query or body | 422 |
/// | with a header that cannot be read | 400 |
/// | with a body above the [limit](Self::request_limit) | 413 |
/// | while keys are not available | 503; nothing was done |
///
/// - **A client that goes away stops nothing.** The handler runs to its end in a task of its own, and its response is
///   kept: the client's repetition gets it. (Hence task-locals of the server are not seen by the handler;
///   request extensions are.)
/// - **What failed may be repeated.** A status of 500 and above is not kept and frees the key, unless
///   [`release_if`](Self::release_if) says otherwise; so does a handler that panics, or whose body breaks off.
/// - **A response above its [limit](Self::response_limit)** is handed on, not kept, and the key is freed: a
///   repetition is handled again. Raise the limit where that must not happen.
/// - A response is handed on only when it is kept. It is read to its end first, so endless bodies have no place behind
///   a key. Trailers are dropped.
/// - If the response cannot be kept because the store failed, it is handed on all the same and the failure is logged: what
///   was done was done.
#[derive(Clone)]
pub struct IdempotencyLayer {
    config: Arc<Config>,
}

/// What the layer was told.
#[derive(Clone)]
struct Config {
    keys: Arc<dyn KeyStore>,
    required: bool,
    methods: Vec<Method>,
    scope: Option<Arc<Scope>>,
    releases: Arc<Judge>,
    kept_headers: Vec<HeaderName>,
    request_limit: usize,
    response_limit: usize,
    ttl: Duration,
    lease: Duration,
    in_flight: InFlight,
    retry_after: Duration,
}

impl IdempotencyLayer {
    /// Makes a layer whose keys live in `keys`: `engine.keys()`, say.
    pub fn new(keys: impl KeyStore) -> Self {
        Self {
            config: Arc::new(Config {
                keys: Arc::new(keys),
                required: false,
                methods: vec![Method::POST, Method::PATCH],
                scope: None,
                releases: Arc::new(|status| status.is_server_error()),
                kept_headers: DEFAULT_HEADERS.to_vec(),
                request_limit: DEFAULT_LIMIT,
                response_limit: DEFAULT_LIMIT,
                ttl: DEFAULT_TTL,
                lease: DEFAULT_LEASE,
                in_flight: InFlight::Refuse,
                retry_after: Duration::from_secs(1),
            }),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Refuses requests without the header.
    #[must_use]
    pub fn required(self) -> Self {
        self.with(|config| config.required = true)
    }

    /// Sets which methods the layer looks at; POST and PATCH otherwise. All others pass untouched.
    #[must_use]
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.with(|config| config.methods = methods.into_iter().collect())
    }

    /// Sets whose key it is: equal keys of different scopes never meet. Take it from what was authenticated before this
    /// layer, **not** from something that the client may choose: who knows a key and its scope gets the response.
    /// A request for which it returns `None` is refused with 400.
    #[must_use]
    pub fn scope(self, scope: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.with(|config| config.scope = Some(Arc::new(scope)))
    }

    /// Sets which responses are not kept and free the key; those with a status of 500 and above otherwise.
    #[must_use]
    pub fn release_if(self, releases: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.with(|config| config.releases = Arc::new(releases))
    }

    /// Sets which headers of a response are kept, instead of those that describe its body. Cookies are not, unless they
    /// are named here.
    #[must_use]
    pub fn keep_headers(self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.with(|config| config.kept_headers = headers.into_iter().collect())
    }

    /// Sets the longest body of a request with a key; 1 MiB otherwise. A longer one is refused with 413.
    #[must_use]
    pub fn request_limit(self, bytes: usize) -> Self {
        self.with(|config| config.request_limit = bytes)
    }

    /// Sets the longest body of a response that is kept; 1 MiB otherwise. A longer one is handed on, and its key freed.
    #[must_use]
    pub fn response_limit(self, bytes: usize) -> Self {
        self.with(|config| config.response_limit = bytes)
    }

    /// Sets how long a response is kept from its completion on; 24 hours otherwise.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|config| config.ttl = ttl)
    }

    /// Sets how long a key is held without a sign of life from its handler's process; 30 s otherwise, at least 100 ms.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|config| config.lease = lease.max(MIN_LEASE))
    }

    /// Sets what a repetition gets while the first request is handled: [`InFlight::Refuse`] answers 409, and is the
    /// default; the others wait for the first one's response.
    #[must_use]
    pub fn in_flight(self, in_flight: InFlight) -> Self {
        self.with(|config| config.in_flight = in_flight)
    }

    /// Sets the `Retry-After` of a 409, in whole seconds; 1 otherwise.
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        self.with(|config| config.retry_after = wait)
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotent<S>;

    fn layer(&self, inner: S) -> Idempotent<S> {
        Idempotent::new(inner, self.config.clone())
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("required", &self.config.required)
            .field("methods", &self.config.methods)
            .finish_non_exhaustive()
    }
}

/// Hands hostile bytes to the reader of the header; see `hostile`.
#[cfg(feature = "testing")]
pub(crate) fn hostile_header(bytes: &[u8]) {
    let mut headers = ::http::HeaderMap::new();
    let Ok(value) = ::http::HeaderValue::from_bytes(bytes) else {
        return;
    };
    headers.append(header::KEY, value.clone());
    let _ = header::key_of(&headers);
    headers.append(header::KEY, value);
    let _ = header::key_of(&headers);
}

/// Hands hostile bytes to the reader of stored responses; see `hostile`.
#[cfg(feature = "testing")]
pub(crate) fn hostile_response(bytes: &[u8]) {
    let _ = stored::decode(bytes);
}
