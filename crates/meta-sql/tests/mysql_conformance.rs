//! The MySQL engine keeps the contract.

mod mysql;

use std::sync::Arc;

use sluice_meta::engine::Engine;

fn fresh() -> Arc<dyn Engine> {
    Arc::new(mysql::fresh())
}

sluice_testkit::conformance_tests!(fresh);
