//! The operations on the TiKV engine, over connections of several clients.

mod server;

use std::sync::Arc;

use sluice_testkit::operations::SharedStore;

fn fresh() -> SharedStore {
    let url = server::fresh_url();
    SharedStore::new(move || Arc::new(server::open(&url)))
}

sluice_testkit::operations_tests!(fresh);
