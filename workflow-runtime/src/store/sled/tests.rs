//! The contract on a real directory; damage and power cuts are in `tests/crash`.

use std::sync::{Arc, Mutex, PoisonError};

use super::{SledOptions, SledStore};
use crate::store::conformance::Harness;
use crate::store::{BoxFuture, Store};

/// Opens stores in temporary directories.
#[derive(Default)]
struct SledHarness {
    current: Mutex<Option<tempfile::TempDir>>,
}

impl SledHarness {
    fn open(&self) -> Arc<dyn Store> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = current.as_ref().expect("a directory was made");
        let path = directory.path().join("store");
        Arc::new(SledStore::open(path, SledOptions::default()).expect("the store opens"))
    }
}

impl Harness for SledHarness {
    fn fresh(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(directory);
        Box::pin(async { self.open() })
    }

    fn again(&self, old: Arc<dyn Store>) -> BoxFuture<'_, Option<Arc<dyn Store>>> {
        assert_eq!(Arc::strong_count(&old), 1, "the last handle");
        drop(old);
        Box::pin(async { Some(self.open()) })
    }
}

crate::store_conformance!(SledHarness::default());
