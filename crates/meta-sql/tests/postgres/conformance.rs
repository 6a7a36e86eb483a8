//! The PostgreSQL engine keeps the contract.

use std::sync::Arc;

use sluice_meta::engine::Engine;

use super::{fresh_url, open};

fn fresh() -> Arc<dyn Engine> {
    Arc::new(open(&fresh_url()))
}

sluice_testkit::conformance_tests!(fresh);
