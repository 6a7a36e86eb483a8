//! The etcd engine keeps the contract.

use std::sync::Arc;

use sluice_meta::engine::Engine;

use super::server;

/// With several commits under way at once, so that they meet.
fn fresh() -> Arc<dyn Engine> {
    Arc::new(server::open(&format!("{}?max_open_conns=4&max-txn-ops=8192", server::fresh_url())))
}

sluice_testkit::conformance_tests!(fresh);
