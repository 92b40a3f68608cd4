//! The embedded store: a directory on a local disk, with a log of our own in front of sled.
//!
//! The only module that names sled. The store is a write-ahead log of *blocks* (one per
//! group commit) in plain files, a table of live runs in memory, and *segments* in sled for
//! what left memory; see `docs/store-format.md` for every byte. sled keeps the keys sorted
//! and the batches atomic; whether bytes are on the disk, and whether they are all there, is
//! checked here, because sled 0.34 promises neither. sled is not on the path of a commit.
//!
//! Data flows through the files in this order: `calls`, `shared` (`queue`, `table`) → `committer`, `group`,
//! `judge` → `block` → `log`, `change`; from there `ledger` (`mailbox`, `overlay`) → `archiver`,
//! `plan`, `erase`, `forgotten` → `segment`, `layout`, `keys` → `annex` → `durable`, `database`, `walk`. Opening goes `open` → `files` (`again`) → `recover` →
//! `scan`, reading goes `view` → `reads`. A store that does not open is read by `salvage`.

mod again;
mod annex;
mod archiver;
mod block;
mod bytes;
mod calls;
mod change;
mod check;
mod collect;
#[cfg(test)]
mod committed;
mod committer;
mod database;
mod deletions;
mod doze;
mod durable;
mod erase;
mod files;
mod forgotten;
#[cfg(test)]
mod gaps;
mod group;
mod inbox;
mod judge;
mod keepsake;
mod keys;
#[cfg(test)]
mod lasting;
mod layout;
mod ledger;
mod log;
mod lookout;
mod mailbox;
#[cfg(test)]
mod model;
mod op;
mod open;
mod overlay;
mod plan;
mod queue;
#[cfg(test)]
mod races;
mod reads;
mod recover;
pub(crate) mod salvage;
mod scan;
mod segment;
mod shared;
mod table;

/// Hands hostile bytes to the readers of the log; see `hostile`.
#[cfg(feature = "testing")]
pub(crate) fn hostile_block(bytes: &[u8]) {
    let _ = block::Block::claimed_commit(bytes);
    let _ = block::Block::read(bytes);
    if let Ok(Some(block)) = block::Block::parse(bytes) {
        let _ = block.items();
    }
    let _ = segment::Stored::decode(bytes);
    let _ = segment::Pointer::decode(bytes);
    let _ = segment::Tombstone::decode(bytes);
    let _ = segment::Archive::decode(bytes);
    let _ = doze::Slumber::decode(&::bytes::Bytes::copy_from_slice(bytes));
}

/// Hands hostile bytes to the readers of the annex; see `hostile`.
#[cfg(feature = "testing")]
pub(crate) fn hostile_annex(bytes: &[u8]) {
    annex::hostile(bytes);
}

#[cfg(test)]
mod tests;
mod view;
mod walk;

use std::future::ready;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use self::database::Settings;
use self::op::Op;
use self::shared::Shared;
use self::table::Table;
use self::view::Claimed;
use super::{BoxFuture, Epoch, NoteChange, StoreError, StoreResult};
use crate::ids::RunId;

/// sled's cache, unless said otherwise. sled counts what pages take on disk; in memory they take twice as much and more. What was just
/// written stays: sled has 256 caches of an equal part each, and a page leaves its own only after a dozen others came to it
/// (`docs/decisions/0052-less-kept-of-what-left.md` says why that matters).
const DEFAULT_CACHE_BYTES: u64 = 8 * 1024 * 1024;

/// The most bytes of one append or creation. The engine's own limits are far below.
const MAX_APPEND_BYTES: usize = 64 * 1024 * 1024;

// All notes of an archive change in one batch, and one alone may be all of it.
const _: () = assert!(NoteChange::MAX_VALUE_BYTES + 4096 < durable::MAX_BATCH);

// Whatever was taken for the log fits into a record of the database later on.
const _: () = assert!(2 * MAX_APPEND_BYTES < keys::MAX_RECORD);

/// How to open a [`SledStore`].
#[derive(Debug, Clone)]
pub struct SledOptions {
    cache_bytes: u64,
    skip_fdatasync: bool,
    log_file_bytes: u64,
    write_again: bool,
}

impl Default for SledOptions {
    fn default() -> Self {
        Self {
            cache_bytes: DEFAULT_CACHE_BYTES,
            skip_fdatasync: false,
            log_file_bytes: log::FILE_SIZE,
            write_again: false,
        }
    }
}

impl SledOptions {
    /// Sets how many bytes of pages sled keeps in memory at most, counted as they are on disk; 8 MiB by default. In memory a page takes
    /// twice as much and more.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Leaves out the sync that makes acknowledged writes survive a power cut, so that a
    /// test can show that it would notice.
    #[doc(hidden)]
    #[must_use]
    pub fn unsafe_skip_fdatasync_for_tests(mut self) -> Self {
        self.skip_fdatasync = true;
        self
    }
}

impl SledOptions {
    /// Sets how large a file of the log gets, so that a short test has many of them. The log as a whole is
    /// limited to four such files.
    #[doc(hidden)]
    #[must_use]
    pub fn log_file_bytes_for_tests(mut self, bytes: u64) -> Self {
        self.log_file_bytes = bytes;
        self
    }
}

impl SledOptions {
    fn settings(&self) -> Settings {
        Settings {
            cache_bytes: self.cache_bytes,
            skip_fdatasync: self.skip_fdatasync,
            log_file_bytes: self.log_file_bytes,
            write_again: self.write_again,
        }
    }
}

/// A store in a directory on a local disk.
///
/// One process at a time. Dropping it releases the directory; [`Store::close`](super::Store::close) also marks
/// it as cleanly stopped.
#[derive(Debug)]
pub struct SledStore {
    shared: Arc<Shared>,
    options: SledOptions,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl SledStore {
    /// Opens the store in a directory, or makes one if the directory is empty or missing.
    ///
    /// Blocks while the disk is read: call it on a blocking thread.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotADatabase`], [`StoreError::NewerFormat`], [`StoreError::InUse`],
    /// [`StoreError::Corrupt`], [`StoreError::LostCommits`] say what is there instead of a
    /// sound store; [`StoreError::Io`] that the operating system refused something.
    pub fn open(path: impl AsRef<Path>, options: SledOptions) -> StoreResult<Self> {
        let (shared, committer) = open::open(path.as_ref(), &options.settings())?;
        Ok(Self {
            shared,
            options,
            committer: Mutex::new(Some(committer)),
        })
    }

    /// Queues something and returns the future of its answer.
    fn ask<T: Send + 'static>(
        &self,
        state: MutexGuard<'_, shared::State>,
        op: impl FnOnce(oneshot::Sender<StoreResult<T>>) -> Op,
    ) -> BoxFuture<'static, StoreResult<T>> {
        let (reply, answer) = oneshot::channel();
        let op = op(reply);
        let bytes = op.bytes();
        self.shared.push(state, op, bytes);
        Box::pin(Answer(answer))
    }

    /// Queues something for a run if the table accepts it.
    fn ask_owned<T: Send + 'static>(
        &self,
        run: RunId,
        fits: StoreResult<()>,
        accept: impl FnOnce(&mut Table) -> Option<StoreResult<()>>,
        op: impl FnOnce(oneshot::Sender<StoreResult<T>>) -> Op,
    ) -> BoxFuture<'static, StoreResult<T>> {
        let mut state = self.shared.lock();
        if let Err(error) = fits.and_then(|()| state.open()) {
            return Box::pin(ready(Err(error)));
        }
        match accept(&mut state.table) {
            Some(Ok(())) => self.ask(state, op),
            Some(Err(error)) => Box::pin(ready(Err(error))),
            None => {
                drop(state);
                Box::pin(ready(Err(self.shared.refusal(run))))
            }
        }
    }

    /// Claims a run that was not in memory when that was asked for.
    async fn claim_from_outside(&self, run: RunId) -> StoreResult<Option<Epoch>> {
        let claimed = self.offload(move |shared| {
            shared.read(|database| view::take_back_and_claim(shared, database, run))
        });
        match claimed.await? {
            None => Ok(None),
            Some(Claimed::Ended(epoch)) => Ok(Some(epoch)),
            Some(Claimed::InMemory(epoch, durable)) => match durable.await {
                Ok(durable) => durable.map(|()| Some(epoch)),
                Err(_) => Err(self.shared.lock().stopped()),
            },
        }
    }

    /// Reads off the async threads where there is a runtime.
    fn offload<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> StoreResult<T> + Send + 'static,
    ) -> BoxFuture<'static, StoreResult<T>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => {
                    let stopping = Arc::clone(&shared);
                    let task = runtime.spawn_blocking(move || read(&shared));
                    // It is cancelled only when the whole runtime goes down.
                    task.await
                        .unwrap_or_else(|_| Err(stopping.lock().stopped()))
                }
                Err(_) => read(&shared),
            }
        })
    }
}

/// The answer to something that was queued. It holds nothing of the store: every step waits for one,
/// and counting those that wait would have all threads write to one place.
struct Answer<T>(oneshot::Receiver<StoreResult<T>>);

impl<T> Future for Answer<T> {
    type Output = StoreResult<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<StoreResult<T>> {
        Pin::new(&mut self.0).poll(cx).map(|answer| {
            // Everything that is queued is answered, unless the committer itself broke down.
            answer.unwrap_or_else(|_| {
                let reason = "its committer stopped in the middle of a commit".to_owned();
                Err(StoreError::Stopped { reason })
            })
        })
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        self.shared.begin_close(false);
        let committer = self
            .committer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(committer) = committer {
            // Its panics were caught and reported; here only its end matters, so that the
            // directory can be opened again right away.
            let _ = committer.join();
        }
    }
}
