//! The operations on the PostgreSQL engine, which several clients open at once.

use std::sync::Arc;

use sluice_testkit::operations::SharedStore;

use super::{fresh_url, open};

fn fresh() -> SharedStore {
    let url = fresh_url();
    SharedStore::new(move || Arc::new(open(&url)))
}

sluice_testkit::operations_tests!(fresh);
