//! The operations on the in-memory engine: the suite, and their budget of trips.

#![allow(clippy::unwrap_used, reason = "a test may panic wherever it fails")]

mod deep;
mod leftovers;
mod links;
mod listings;
mod liveness;
mod members;
mod moves;
mod settings;
mod trips;

use std::sync::Arc;

use sluice_meta::mem::MemEngine;
use sluice_testkit::operations::SharedStore;

fn fresh() -> SharedStore {
    let engine = MemEngine::new();
    SharedStore::new(move || Arc::new(engine.clone()))
}

sluice_testkit::operations_tests!(fresh);

#[test]
fn a_quota_set_under_stress_is_exact() {
    sluice_testkit::operations::quota_stress::a_quota_set_under_stress_is_exact(&fresh);
}

#[test]
fn stress_under_nested_quotas_is_counted() {
    sluice_testkit::operations::quota_stress::stress_under_nested_quotas_is_counted(&fresh);
}
