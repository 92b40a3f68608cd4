//! The calls of the sled store: each is accepted or refused here, and then queued or read.
//!
//! Owns the limits on what one write may hold. Never writes, and never reads the database on
//! an async thread, except to say why a write is refused.

use std::fmt::Display;
use std::future::{poll_fn, ready};
use std::hint::cold_path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::bytes::Bytes;
use tokio::sync::oneshot;

use super::inbox::Arrival;
use super::op::{self, Appending, Op};
use super::shared::{Counters, Phase};
use super::table::Table;
use super::view::{self, Snapshot};
use super::{MAX_APPEND_BYTES, SledStore, check};
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::store::{
    AckSender, AckSlot, Append, BoxFuture, Changes, Claim, Commit, Committed, Creation, Epoch,
    KeptJournal, Mail, NewRun, NoteChange, NoteKey, Parking, Released, Reopening, RunHeader,
    RunQuery, Sleeper, Store, StoreCounts, StoreError, StoreResult,
};

/// Refuses what is too large for one write; the store itself goes on.
fn fits(what: impl Display, bytes: usize) -> StoreResult<()> {
    let limit = MAX_APPEND_BYTES;
    if bytes <= limit {
        return Ok(());
    }
    Err(StoreError::Io {
        operation: format!("writing to {what}"),
        message: format!("{bytes} bytes are more than the limit of {limit}"),
    })
}

/// Refuses changes that are too large for one write, all together or one note.
fn changes_fit(changes: &Changes) -> StoreResult<()> {
    changes.check()?;
    fits("several runs", op::bytes_of_changes(changes))
}

impl Store for SledStore {
    fn create(&self, run: NewRun) -> BoxFuture<'_, StoreResult<Creation>> {
        let bytes = op::bytes_of_run(&run);
        let state = self.shared.lock();
        match fits(run.header.run, bytes).and_then(|()| state.open()) {
            Ok(()) => self.ask(state, |reply| Op::Create(Box::new(run), reply)),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn append(&self, append: Append) -> BoxFuture<'static, StoreResult<()>> {
        let slot = Arc::new(AckSlot::default());
        match self.append_into(append, &slot) {
            None => Box::pin(poll_fn(move |cx| slot.poll(cx))),
            Some(refused) => refused,
        }
    }

    fn append_into(
        &self,
        append: Append,
        slot: &Arc<AckSlot>,
    ) -> Option<BoxFuture<'static, StoreResult<()>>> {
        let refuse = |error| -> Option<BoxFuture<'static, _>> { Some(Box::pin(ready(Err(error)))) };
        let run = append.run;
        let changes = append.changes.as_deref();
        let bytes = op::bytes_of_append(&append.frames, changes);
        let fits = changes
            .map_or(Ok(()), changes_fit)
            .and_then(|()| fits(run, bytes));
        if let Err(error) = fits {
            cold_path();
            return refuse(error);
        }
        // Every step comes by here, so while the committer works the store's lock is not even looked at: it takes in what
        // came when it has the lock anyway, with what it will need of the run in its cache.
        let epoch = append.epoch;
        let arrival = Arrival {
            epoch,
            append: Appending::from(append),
            slot: Arc::clone(slot),
            bytes,
        };
        let Err(back) = self.shared.inbox.put(arrival) else {
            return None;
        };
        let (mut append, slot) = (back.append, back.slot);
        let mut state = self.shared.lock();
        if let Err(error) = state.open() {
            cold_path();
            return refuse(error);
        }
        match state.table.accept_append(epoch, &mut append) {
            Some(Ok(())) => {
                let op = Op::Append(append, AckSender::owning(slot));
                self.shared.push(state, op, bytes);
                None
            }
            Some(Err(error)) => {
                cold_path();
                refuse(error)
            }
            None => {
                cold_path();
                drop(state);
                refuse(self.shared.refusal(run))
            }
        }
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, StoreResult<Committed>> {
        let state = self.shared.lock();
        match changes_fit(&commit.changes).and_then(|()| state.open()) {
            Ok(()) => self.ask(state, |reply| Op::Commit(commit, reply)),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn put_to_sleep(
        &self,
        run: RunId,
        epoch: Epoch,
        wake_at: Option<Timestamp>,
    ) -> BoxFuture<'_, StoreResult<Released>> {
        let accept = |table: &mut Table| table.accept_release(run, epoch);
        self.ask_owned(run, Ok(()), accept, |reply| {
            Op::Sleep(run, epoch, wake_at, reply)
        })
    }

    fn forget(&self, run: RunId, epoch: Epoch, below: u64) -> BoxFuture<'_, StoreResult<()>> {
        let accept = |table: &mut Table| table.accept_forget(run, epoch);
        self.ask_owned(run, Ok(()), accept, |reply| Op::Forget(run, below, reply))
    }

    fn journal(&self, run: RunId) -> BoxFuture<'_, StoreResult<KeptJournal>> {
        self.offload(move |shared| {
            shared.read(|database| {
                let found = view::kept_journal(shared, database, run)?;
                Ok(
                    found.map_or_else(KeptJournal::default, |(found, frames)| KeptJournal {
                        frames,
                        kept_from: found.kept_from,
                    }),
                )
            })
        })
    }

    fn revive(&self, reopening: Reopening) -> BoxFuture<'_, StoreResult<Epoch>> {
        let bytes = reopening.frame.len();
        let notes = reopening.notes.iter().try_for_each(NoteChange::check);
        let state = self.shared.lock();
        match notes
            .and_then(|()| fits(reopening.run, bytes))
            .and_then(|()| state.open())
        {
            Ok(()) => self.ask(state, |reply| Op::Revive(Box::new(reopening), reply)),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn delete(&self, runs: Vec<RunId>) -> BoxFuture<'_, StoreResult<u64>> {
        let state = self.shared.lock();
        if let Err(error) = state.open() {
            return Box::pin(ready(Err(error)));
        }
        // Behind what is queued: a run whose end was called for before this is deleted.
        let durable = self.ask(state, Op::Barrier);
        Box::pin(async move {
            durable.await?;
            let (reply, answer) = oneshot::channel();
            {
                let mut state = self.shared.lock();
                state.open()?;
                self.shared.push_deletion(&mut state, runs, reply);
            }
            match answer.await {
                Ok(answer) => answer,
                Err(_) => Err(self.shared.lock().stopped()),
            }
        })
    }

    fn asleep(
        &self,
        after: Option<Sleeper>,
        limit: usize,
    ) -> BoxFuture<'_, StoreResult<Vec<Sleeper>>> {
        self.offload(move |shared| {
            shared.read(|database| view::asleep(shared, database, after.as_ref(), limit))
        })
    }

    fn mail(&self, run: RunId, from: u64) -> BoxFuture<'_, StoreResult<Vec<Mail>>> {
        // Nobody leaves memory while letters wait.
        let state = self.shared.lock();
        let mail = state.open().map(|()| {
            let live = state.table.runs.get(&run);
            let mailbox = live.and_then(|live| live.mailbox.as_ref());
            mailbox.map_or_else(Vec::new, |mailbox| mailbox.from(from))
        });
        Box::pin(ready(mail))
    }

    fn note(&self, key: NoteKey) -> BoxFuture<'_, StoreResult<Option<Bytes>>> {
        self.offload(move |shared| shared.read(|database| view::note(shared, database, &key)))
    }

    fn notes(
        &self,
        prefix: NoteKey,
        after: Option<NoteKey>,
        limit: usize,
    ) -> BoxFuture<'_, StoreResult<Vec<(NoteKey, Bytes)>>> {
        self.offload(move |shared| {
            shared.read(|database| view::notes(shared, database, &prefix, after.as_ref(), limit))
        })
    }

    fn park(
        &self,
        run: RunId,
        epoch: Epoch,
        parking: Option<Parking>,
    ) -> BoxFuture<'_, StoreResult<()>> {
        let bytes = parking.as_ref().map_or(0, |parking| {
            parking.report.len() + parking.detail.as_ref().map_or(0, Bytes::len)
        });
        let fits = fits(run, bytes);
        let accept = |table: &mut Table| table.accept_park(run, epoch);
        self.ask_owned(run, fits, accept, |reply| Op::Park(run, parking, reply))
    }

    fn claim(&self, run: RunId, from: u64) -> BoxFuture<'_, StoreResult<Option<Claim>>> {
        let mut state = self.shared.lock();
        if let Err(error) = state.open() {
            return Box::pin(ready(Err(error)));
        }
        // From here on the old owner is refused; what it queued before is part of the
        // journal, and of the claim once it is durable.
        let epoch = state.table.claim(run);
        let durable = match epoch {
            Some(_) => self.ask(state, |reply| Op::Claim(run, reply)),
            None => self.ask(state, Op::Barrier),
        };
        Box::pin(async move {
            durable.await?;
            let epoch = match epoch {
                Some(epoch) => epoch,
                None => match self.claim_from_outside(run).await? {
                    Some(epoch) => epoch,
                    None => return Ok(None),
                },
            };
            self.offload(move |shared| {
                shared.read(|database| {
                    let found = view::journal(shared, database, run, from, usize::MAX)?;
                    let Some((found, mut frames)) = found else {
                        return Ok(None);
                    };
                    if from > 0 {
                        let first = view::journal(shared, database, run, 0, 1)?;
                        frames.splice(0..0, first.into_iter().flat_map(|(_, first)| first));
                    }
                    Ok(Some(Claim {
                        epoch,
                        header: found.header,
                        frames,
                        mail: found.mail,
                        next_letter: found.next_letter,
                    }))
                })
            })
            .await
        })
    }

    fn unfinished(&self) -> BoxFuture<'_, StoreResult<Vec<RunHeader>>> {
        let state = self.shared.lock();
        let headers = state.open().map(|()| {
            let runs = state.table.order.values().map(|run| &state.table.runs[run]);
            runs.filter(|live| !live.ended() && !live.asleep())
                .map(|live| live.header.clone())
                .collect()
        });
        Box::pin(ready(headers))
    }

    fn header(&self, run: RunId) -> BoxFuture<'_, StoreResult<Option<RunHeader>>> {
        let state = self.shared.lock();
        if let Err(error) = state.open() {
            return Box::pin(ready(Err(error)));
        }
        if let Some(live) = state.table.runs.get(&run) {
            return Box::pin(ready(Ok(Some(live.header.clone()))));
        }
        drop(state);
        self.offload(move |shared| {
            shared.read(|database| {
                let found = Snapshot::find(shared, database, run)?;
                Ok(found.map(|found| found.header))
            })
        })
    }

    fn frames(
        &self,
        run: RunId,
        from: u64,
        limit: usize,
    ) -> BoxFuture<'_, StoreResult<Vec<Bytes>>> {
        self.offload(move |shared| {
            shared.read(|database| {
                let found = view::journal(shared, database, run, from, limit)?;
                Ok(found.map_or_else(Vec::new, |(_, frames)| frames))
            })
        })
    }

    fn list(&self, query: RunQuery) -> BoxFuture<'_, StoreResult<Vec<RunHeader>>> {
        self.offload(move |shared| shared.read(|database| view::list(shared, database, &query)))
    }

    fn is_exclusive(&self) -> bool {
        true // the directory is locked, and a store cannot be cloned
    }

    fn stopped_cleanly(&self) -> bool {
        self.shared.clean
    }

    fn failure(&self) -> Option<String> {
        match &self.shared.lock().phase {
            Phase::Failed(reason) => Some(reason.clone()),
            Phase::Open | Phase::Closing { .. } | Phase::Closed => None,
        }
    }

    fn failed(&self) -> BoxFuture<'static, String> {
        let mut failed = self.shared.failed.subscribe();
        Box::pin(async move {
            let error = match failed.wait_for(Option::is_some).await {
                Ok(error) => error.clone(),
                Err(_) => None, // it is gone, and had not failed
            };
            match error {
                Some(error) => error,
                None => std::future::pending().await,
            }
        })
    }

    fn open_again(&self) -> BoxFuture<'_, StoreResult<Arc<dyn Store>>> {
        let mut closed = self.shared.closed.subscribe();
        let (path, mut options) = (self.shared.directory.clone(), self.options.clone());
        options.write_again = true;
        Box::pin(async move {
            // The committer goes last, after it has let go of the directory.
            let _ = closed.wait_for(Option::is_some).await;
            let opened = tokio::task::spawn_blocking(move || SledStore::open(path, options));
            match opened.await {
                Ok(store) => Ok(Arc::new(store?) as Arc<dyn Store>),
                Err(error) => Err(StoreError::Stopped {
                    reason: error.to_string(),
                }),
            }
        })
    }

    fn counts(&self) -> StoreCounts {
        let Counters {
            writes,
            commits,
            syncs,
            bytes,
        } = &self.shared.counters;
        StoreCounts {
            writes: writes.load(Ordering::Relaxed),
            commits: commits.load(Ordering::Relaxed),
            syncs: syncs.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        }
    }

    fn check(&self) -> BoxFuture<'_, StoreResult<()>> {
        self.offload(|shared| shared.read(|database| check::check(shared, database)))
    }

    fn close(&self) -> BoxFuture<'_, StoreResult<()>> {
        self.shared.begin_close(true);
        let mut closed = self.shared.closed.subscribe();
        Box::pin(async move {
            let outcome = closed.wait_for(Option::is_some).await;
            let outcome = outcome.expect("this handle keeps the sender alive");
            outcome.clone().expect("it was waited for")
        })
    }
}
