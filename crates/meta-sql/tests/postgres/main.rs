//! The PostgreSQL engine on a real server.

mod conformance;
mod operations;

use sluice_meta::engine::Engine;
use sluice_meta_sql::PostgresEngine;
use sluice_testkit::server;

/// A new, empty volume on the server that the tests of this process share; its URL.
pub(crate) fn fresh_url() -> String {
    let server = server::postgres().expect("a server");
    server.unix_url(&server.database().expect("a database"))
}

pub(crate) fn open(url: &str) -> PostgresEngine {
    let engine = PostgresEngine::open(url).expect("a valid URL");
    engine.prepare().expect("prepare");
    engine
}
