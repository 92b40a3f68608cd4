//! Keys that live in Redis.
//!
//! Owns the rows in Redis and the scripts that change them, each in one atomic step by the server's own clock; the only place
//! that names the `redis` crate. Never promises what Redis does not: see [`RedisKeys`].

mod scripts;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};

use self::scripts::{Script, Scripts};
use super::{
    Busy, Completion, Done, Entry, EntryState, KeyError, KeyId, KeyResult, KeyStore, Reservation,
    Reserve, Ticket,
};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::store::BoxFuture;

/// The version of the rows; part of their names.
const FORMAT: u32 = 1;

/// What the names of all rows begin with, unless told otherwise.
const DEFAULT_PREFIX: &str = "workflow";

/// How long a call waits for the server's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The longest lease or time to live: the server's numbers are exact to 2^53 microseconds.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// The largest outcome: the server's limit for a value, less a little.
const LARGEST: usize = 500 * 1024 * 1024;

/// How often a connection is tried for one call: about two seconds.
const RECONNECTS: usize = 4;

/// How often a write is tried whose answer was lost. All of them may be repeated.
const TRIES: u32 = 4;

/// The wait before the second try; each further one waits twice as long.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Keys in Redis (or Valkey), shared by any number of processes. Feature `redis`.
///
/// **What it loses.** Redis acknowledges before it is on a disk. A server that restarts without persistence forgets
/// every key, in flight or done; with `appendfsync everysec` those of the last second; a failover to a replica those
/// that were not replicated yet. A repetition of a forgotten key runs again. Under a `maxmemory-policy` other than
/// `noeviction` it may forget any key at any time. Where that must not happen, use
/// [`EngineKeys`](super::EngineKeys): what it has acknowledged is synced.
///
/// The text of keys is not sent to the server, only a hash; outcomes are sent as they are.
///
/// ```no_run
/// use workflow_runtime::Error;
/// use workflow_runtime::idempotency::{Once, RedisKeys};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let keys = RedisKeys::connect("redis://127.0.0.1/").await?.namespace("shop");
/// let sent = Once::new(&keys, "mail-7").run(|| async { Ok::<_, Error>("sent".to_owned()) });
/// assert_eq!(sent.await?, "sent");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisKeys {
    connection: ConnectionManager,
    scripts: Arc<Scripts>,
    prefix: Arc<str>,
    namespace: Arc<str>,
}

impl RedisKeys {
    /// Connects to a server: `redis://[user:password@]host[:port][/database]`. A connection that is lost later comes
    /// back by itself; calls meanwhile fail.
    ///
    /// # Errors
    ///
    /// If the address cannot be read or the server cannot be reached.
    pub async fn connect(url: &str) -> KeyResult<Self> {
        let client = redis::Client::open(url).map_err(failed)?;
        let config = ConnectionManagerConfig::new()
            .set_min_delay(RETRY_AFTER)
            .set_max_delay(ANSWER_WITHIN / 5)
            .set_number_of_retries(RECONNECTS)
            .set_response_timeout(Some(ANSWER_WITHIN))
            .set_connection_timeout(Some(ANSWER_WITHIN));
        let connection = ConnectionManager::new_with_config(client, config);
        Ok(Self {
            connection: connection.await.map_err(failed)?,
            scripts: Arc::default(),
            prefix: DEFAULT_PREFIX.into(),
            namespace: "default".into(),
        })
    }

    /// Sets the namespace (tenant) that keys live in; `default` otherwise.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets what the names of all rows begin with; `workflow` otherwise.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.into();
        self
    }

    fn row(&self, key: KeyId) -> String {
        format!("{}:{FORMAT}:{}:{key}", self.prefix, self.namespace)
    }

    /// Runs a script, again if its answer was lost.
    async fn run(
        &self,
        script: &Script,
        key: KeyId,
        arguments: &[&[u8]],
    ) -> KeyResult<redis::Value> {
        let row = self.row(key);
        let mut wait = RETRY_AFTER;
        for _ in 1..TRIES {
            match self.run_once(script, &row, arguments).await {
                Err(error) if was_lost(&error) => {}
                answer => return answer.map_err(failed),
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        self.run_once(script, &row, arguments).await.map_err(failed)
    }

    async fn run_once(
        &self,
        script: &Script,
        row: &str,
        arguments: &[&[u8]],
    ) -> redis::RedisResult<redis::Value> {
        let mut connection = self.connection.clone();
        let mut call = script.key(row);
        for argument in arguments {
            call.arg(*argument);
        }
        call.invoke_async(&mut connection).await
    }

    async fn reserve_row(&self, request: Reserve) -> KeyResult<Reservation> {
        let lease = micros(request.lease);
        let arguments: [&[u8]; 3] = [
            request.body.as_bytes(),
            request.owner.as_bytes(),
            lease.as_bytes(),
        ];
        let answer = self
            .run(&self.scripts.reserve, request.key, &arguments)
            .await?;
        let mut answer = Answer::new(request.key, answer)?;
        Ok(match &*answer.bytes()? {
            b"new" => Reservation::New(Ticket {
                key: request.key,
                owner: request.owner,
                fence: answer.number()?,
                since: answer.time()?,
                until: answer.time()?,
            }),
            b"flight" => Reservation::InFlight(Busy {
                since: answer.time()?,
                until: answer.time()?,
            }),
            b"done" => Reservation::Done(Done {
                outcome: answer.bytes()?,
                completed_at: answer.time()?,
                expires_at: answer.time()?,
            }),
            b"other" => Reservation::OtherBody {
                first: answer.digest()?,
                since: answer.time()?,
            },
            _ => return Err(unreadable(request.key)),
        })
    }

    /// Runs a script that answers with yes or no.
    async fn decide(&self, script: &Script, ticket: &Ticket, more: &[&[u8]]) -> KeyResult<bool> {
        let fence = ticket.fence.to_string();
        let mut arguments: Vec<&[u8]> = vec![ticket.owner.as_bytes(), fence.as_bytes()];
        arguments.extend_from_slice(more);
        match self.run(script, ticket.key, &arguments).await? {
            redis::Value::Int(answer) => Ok(answer == 1),
            _ => Err(unreadable(ticket.key)),
        }
    }

    async fn look(&self, key: KeyId) -> KeyResult<Option<Entry>> {
        let mut connection = self.connection.clone();
        let mut command = redis::cmd("HMGET");
        command.arg(self.row(key)).arg(&[
            "state",
            "body",
            "since",
            "until",
            "completed",
            "expires",
            "outcome",
        ]);
        let answer = command.query_async(&mut connection).await.map_err(failed)?;
        let mut answer = Answer::new(key, answer)?;
        if answer.is_nil() {
            return Ok(None);
        }
        let state = answer.bytes()?;
        let body = answer.digest()?;
        let since = answer.time()?;
        let state = match &*state {
            b"flight" => EntryState::InFlight(Busy {
                since,
                until: answer.time()?,
            }),
            b"done" => {
                answer.skip();
                let (completed_at, expires_at) = (answer.time()?, answer.time()?);
                EntryState::Done(Done {
                    outcome: answer.bytes()?,
                    completed_at,
                    expires_at,
                })
            }
            _ => return Err(unreadable(key)),
        };
        Ok(Some(Entry { body, state }))
    }
}

impl KeyStore for RedisKeys {
    fn reserve(&self, request: Reserve) -> BoxFuture<'_, KeyResult<Reservation>> {
        Box::pin(self.reserve_row(request))
    }

    fn complete(
        &self,
        ticket: &Ticket,
        outcome: Bytes,
        ttl: Duration,
    ) -> BoxFuture<'_, KeyResult<Completion>> {
        let ticket = *ticket;
        Box::pin(async move {
            let ttl = micros(ttl);
            let more: [&[u8]; 2] = [ttl.as_bytes(), &outcome];
            Ok(
                match self.decide(&self.scripts.complete, &ticket, &more).await? {
                    true => Completion::Recorded,
                    false => Completion::Refused,
                },
            )
        })
    }

    fn release(&self, ticket: &Ticket) -> BoxFuture<'_, KeyResult<()>> {
        let ticket = *ticket;
        Box::pin(async move {
            self.decide(&self.scripts.release, &ticket, &[]).await?;
            Ok(())
        })
    }

    fn extend(&self, ticket: &Ticket, lease: Duration) -> BoxFuture<'_, KeyResult<bool>> {
        let ticket = *ticket;
        Box::pin(async move {
            let lease = micros(lease);
            self.decide(&self.scripts.extend, &ticket, &[lease.as_bytes()])
                .await
        })
    }

    fn look_up(&self, key: KeyId) -> BoxFuture<'_, KeyResult<Option<Entry>>> {
        Box::pin(self.look(key))
    }

    fn outcome_limit(&self) -> usize {
        LARGEST
    }

    fn abandon(&self, ticket: Ticket) {
        // Without a runtime nobody can tell the server: the lease ends by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let keys = self.clone();
            runtime.spawn(async move {
                if let Err(error) = keys.release(&ticket).await {
                    tracing::warn!(%error, "a key could not be released: it is free when its lease ends");
                }
            });
        }
    }
}

impl fmt::Debug for RedisKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisKeys")
            .field("prefix", &self.prefix)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// Reads the parts of an answer, in order. Says of a wrong one only that it is: it may hold an outcome.
struct Answer {
    key: KeyId,
    parts: std::iter::Peekable<std::vec::IntoIter<redis::Value>>,
}

impl Answer {
    fn new(key: KeyId, answer: redis::Value) -> KeyResult<Self> {
        match answer {
            redis::Value::Array(parts) => Ok(Self {
                key,
                parts: parts.into_iter().peekable(),
            }),
            _ => Err(unreadable(key)),
        }
    }

    fn is_nil(&mut self) -> bool {
        matches!(self.parts.peek(), Some(redis::Value::Nil))
    }

    fn skip(&mut self) {
        self.parts.next();
    }

    fn bytes(&mut self) -> KeyResult<Bytes> {
        match self.parts.next() {
            Some(redis::Value::BulkString(bytes)) => Ok(bytes.into()),
            _ => Err(unreadable(self.key)),
        }
    }

    fn number(&mut self) -> KeyResult<u64> {
        let bytes = self.bytes()?;
        let number = std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.parse().ok());
        number.ok_or_else(|| unreadable(self.key))
    }

    fn time(&mut self) -> KeyResult<Timestamp> {
        self.number().map(Timestamp::from_micros)
    }

    fn digest(&mut self) -> KeyResult<Digest> {
        let bytes = self.bytes()?;
        let digest = <[u8; 16]>::try_from(&*bytes).map_err(|_| unreadable(self.key))?;
        Ok(Digest::from_bytes(digest))
    }
}

fn unreadable(key: KeyId) -> KeyError {
    KeyError::Unreadable {
        key,
        problem: "its row in Redis was not written by this release".into(),
    }
}

fn failed(error: redis::RedisError) -> KeyError {
    KeyError::Backend {
        place: "Redis",
        message: error.to_string(),
    }
}

/// Says whether nobody knows what became of a call.
fn was_lost(error: &redis::RedisError) -> bool {
    error.is_io_error() || error.is_timeout() || error.is_connection_dropped()
}

fn micros(time: Duration) -> String {
    time.min(LONGEST).as_micros().to_string()
}
