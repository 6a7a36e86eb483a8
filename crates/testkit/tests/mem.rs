//! The in-memory engine keeps the contract.

use std::sync::Arc;

use sluice_meta::{engine::Engine, mem::MemEngine};

fn fresh() -> Arc<dyn Engine> {
    Arc::new(MemEngine::new())
}

sluice_testkit::conformance_tests!(fresh);

#[test]
fn anomalies_are_forbidden_or_shown_as_the_scripts_say() {
    sluice_testkit::anomaly::run_all(&fresh, true);
}
