//! Keys in the engine's own store.
//!
//! Owns [`EngineKeys`]. The files in the order a key goes through them: `book` knows in memory which keys are in
//! flight, `rows` are what is kept of an outcome, `cache` are outcomes that need no look at the store, `sweep`
//! removes what expired. `steps` are keys that the steps of runs share.
//!
//! A claim is in memory only: a store has one process, and a claim ends with it. So the first execution of a key
//! costs one durable write, that of its outcome, and a repetition none. The write is guarded by what
//! the key's row said before: should two engines share a store, one outcome is recorded and the other refused.

mod book;
mod cache;
mod rows;
mod steps;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub(crate) use self::book::{Book, Completing, Joined};
pub(crate) use self::steps::{Held, Obtained, StepKeys, Wanted};
pub(crate) use self::sweep::sweep;
use super::{Completion, Entry, KeyId, KeyResult, KeyStore, Reservation, Reserve, Ticket};
use crate::engine::Engine;
use crate::store::BoxFuture;

/// The keys of an engine's namespace, in its own store; see [`Engine::keys`].
///
/// Clones are handles to the same keys. Each is a handle to the engine as well: it lives while one is there.
#[derive(Clone)]
pub struct EngineKeys {
    book: Arc<Book>,
    /// Keeps the engine's tasks going: they sweep.
    engine: Engine,
}

impl EngineKeys {
    pub(crate) fn new(book: Arc<Book>, engine: Engine) -> Self {
        Self { book, engine }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Removes the outcomes whose time is over, without waiting for the background task, which does so when the engine
    /// is opened and every ten minutes. Returns how many there were.
    ///
    /// Without it too, an outcome whose time is over is never given to anybody.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn sweep(&self) -> KeyResult<u64> {
        sweep(&self.book).await
    }
}

impl std::fmt::Debug for EngineKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineKeys")
    }
}

impl KeyStore for EngineKeys {
    fn reserve(&self, request: Reserve) -> BoxFuture<'_, KeyResult<Reservation>> {
        Box::pin(self.book.reserve(request))
    }

    fn complete(
        &self,
        ticket: &Ticket,
        outcome: Bytes,
        ttl: Duration,
    ) -> BoxFuture<'_, KeyResult<Completion>> {
        Box::pin(self.book.clone().complete(*ticket, outcome, ttl))
    }

    fn release(&self, ticket: &Ticket) -> BoxFuture<'_, KeyResult<()>> {
        self.book.release(ticket);
        Box::pin(std::future::ready(Ok(())))
    }

    fn extend(&self, ticket: &Ticket, lease: Duration) -> BoxFuture<'_, KeyResult<bool>> {
        Box::pin(std::future::ready(Ok(self.book.extend(ticket, lease))))
    }

    fn look_up(&self, key: KeyId) -> BoxFuture<'_, KeyResult<Option<Entry>>> {
        Box::pin(self.book.look_up(key))
    }

    fn abandon(&self, ticket: Ticket) {
        self.book.release(&ticket);
    }

    fn outcome_limit(&self) -> usize {
        rows::MAX_OUTCOME
    }

    fn changed(&self, key: KeyId, patience: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.book.changed(key, patience))
    }
}

/// Hands hostile bytes to the readers of rows; see `hostile`.
#[cfg(feature = "testing")]
pub(crate) fn hostile_row(bytes: &[u8]) {
    let key = KeyId::derive("hostile", "", &crate::Key::from(1));
    let _ = rows::Row::decode(key, bytes);
    steps::hostile(key, bytes);
}
