//! What the testing kit sees of the writes of a [`MemoryStore`](super::MemoryStore).
//!
//! Owns the list of writes in their order, each as what it holds, and a hook behind each of them. Never
//! changes what is written.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::MemoryStore;
use super::disk::Write;
use super::faults::Fault;
use crate::ids::RunId;
use crate::store::{Changes, NewRun};

/// A write, as far as it can be told.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// What kind of write it is, if it has no frames.
    pub(crate) what: &'static str,
    /// The frames that it adds to runs.
    pub(crate) frames: Vec<(RunId, Bytes)>,
}

impl Written {
    fn of(write: &Write) -> Self {
        let mut frames = Vec::new();
        let what = match write {
            Write::Create(new) => {
                add_run(&mut frames, new);
                "the creation of a run"
            }
            Write::Append(append) => {
                let own = append.frames.iter();
                frames.extend(own.map(|frame| (append.run, frame.clone())));
                if let Some(changes) = &append.changes {
                    add_changes(&mut frames, changes);
                }
                "a sync of what was written before"
            }
            Write::Commit(changes) => {
                add_changes(&mut frames, changes);
                match changes.post.is_empty() {
                    true => "a note of the engine's",
                    false => "a letter to a run: a signal, a child's end or a request to cancel",
                }
            }
            Write::Park(_, Some(_)) => "the parking of a run",
            Write::Park(_, None) => "the resumption of a parked run",
            Write::Reopen(reopening) => {
                frames.push((reopening.run, reopening.frame.clone()));
                "the reopening of a run"
            }
            Write::Delete(_) => "the deletion of runs",
            Write::Sleep(..) | Write::Wake(_) => "a run that sleeps or wakes",
            Write::Forget(..) => "records that a run does not need any more",
            Write::Close => "the mark of a clean stop",
        };
        Self { what, frames }
    }
}

fn add_run(frames: &mut Vec<(RunId, Bytes)>, new: &NewRun) {
    let all = [&new.first].into_iter().chain(&new.rest);
    frames.extend(all.map(|frame| (new.header.run, frame.clone())));
}

fn add_changes(frames: &mut Vec<(RunId, Bytes)>, changes: &Changes) {
    changes.create.iter().for_each(|new| add_run(frames, new));
}

/// What is known of a process's writes.
#[derive(Default)]
pub(super) struct Watched {
    /// `None`: nobody asked.
    writes: Option<Vec<Written>>,
    hook: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Watched {
    /// A write is about to be made, or to go wrong.
    pub(super) fn see(&mut self, write: &Write, fault: Option<Fault>) {
        if let Some(writes) = &mut self.writes {
            writes.push(Written::of(write));
        }
        if let (None, Some(hook)) = (fault, &self.hook) {
            hook();
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let writes = self.writes.as_ref().map(Vec::len);
        f.debug_struct("Watched")
            .field("writes", &writes)
            .finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// Remembers all writes from now on.
    pub(crate) fn watch(&self) {
        self.lock().watched.writes = Some(Vec::new());
    }

    /// Returns all writes since the store was watched, the one that went wrong included.
    pub(crate) fn written(&self) -> Vec<Written> {
        self.lock().watched.writes.clone().unwrap_or_default()
    }

    /// Has this called at every write. It must not call the store.
    pub(crate) fn at_each_write(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.lock().watched.hook = Some(Arc::new(hook));
    }
}
