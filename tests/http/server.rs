//! An axum server on a free port, with a handler that counts.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use workflow_runtime::Engine;

/// A server that stops when it is dropped.
pub(crate) struct Server {
    pub(crate) at: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("serves");
        });
        Self { at, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Counts what was done, by a name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<HashMap<String, u32>>>);

impl Tally {
    /// Counts one more, and returns how many there are.
    pub(crate) fn count(&self, what: &str) -> u32 {
        let mut all = self.0.lock().expect("not poisoned");
        let n = all.entry(what.to_owned()).or_default();
        *n += 1;
        *n
    }

    pub(crate) fn of(&self, what: &str) -> u32 {
        let all = self.0.lock().expect("not poisoned");
        all.get(what).copied().unwrap_or_default()
    }

    pub(crate) fn total(&self) -> u32 {
        self.0.lock().expect("not poisoned").values().sum()
    }
}

pub(crate) async fn engine() -> Engine {
    Engine::builder().open_in_memory().await.expect("opens")
}
