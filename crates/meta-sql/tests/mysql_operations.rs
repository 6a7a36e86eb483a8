//! The operations on the MySQL engine, which several clients open at once.

mod mysql;

use std::sync::Arc;

use sluice_testkit::operations::SharedStore;

fn fresh() -> SharedStore {
    let url = mysql::fresh_url();
    SharedStore::new(move || Arc::new(mysql::open(&url)))
}

sluice_testkit::operations_tests!(fresh);
