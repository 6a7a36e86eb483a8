//! The operations on the etcd engine, over connections of several clients.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use sluice_testkit::operations::SharedStore;

use super::server;

fn fresh() -> SharedStore {
    // Clients with one commit under way, as they are by themselves, beside some with several.
    let (url, opened) = (server::fresh_url(), AtomicU32::new(0));
    let lanes = move || 1 + opened.fetch_add(1, Ordering::Relaxed) % 3;
    SharedStore::new(move || Arc::new(server::open(&format!("{url}?max_open_conns={}", lanes()))))
}

sluice_testkit::operations_tests!(fresh);
