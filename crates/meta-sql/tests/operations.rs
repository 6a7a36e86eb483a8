//! The operations on the SQLite engine, which several clients open at once.

mod support;

use std::sync::Arc;

use sluice_testkit::operations::SharedStore;

fn fresh() -> SharedStore {
    let dir = tempfile::tempdir().expect("a directory");
    SharedStore::new(move || Arc::new(support::open(&dir.path().join("volume.db"))))
}

sluice_testkit::operations_tests!(fresh);
