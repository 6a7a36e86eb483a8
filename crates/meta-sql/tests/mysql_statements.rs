//! The MySQL engine keeps the contract where a commit goes statement by statement, as to MySQL.

mod mysql;

use std::sync::Arc;

use sluice_meta::engine::Engine;

fn fresh() -> Arc<dyn Engine> {
    let engine = mysql::open(&format!("{}?compound=false", mysql::fresh_url()));
    engine.prepare().expect("prepare");
    Arc::new(engine)
}

sluice_testkit::conformance_tests!(fresh);
