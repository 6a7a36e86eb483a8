//! The in-memory engine keeps the contract.

use std::sync::Arc;

use sluice_meta::{engine::Engine, mem::MemEngine};

fn fresh() -> Arc<dyn Engine> {
    Arc::new(MemEngine::new())
}

sluice_testkit::conformance_tests!(fresh);
