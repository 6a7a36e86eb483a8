//! The operations on the Redis engine, over connections of several clients.

mod server;

use std::sync::Arc;

use sluice_testkit::operations::SharedStore;

fn fresh() -> SharedStore {
    let server = server::Server::start();
    SharedStore::new(move || Arc::new(server.engine(3)))
}

sluice_testkit::operations_tests!(fresh);

#[test]
fn stress_under_nested_quotas_is_counted() {
    sluice_testkit::operations::quota_stress::stress_under_nested_quotas_is_counted(&fresh);
}
