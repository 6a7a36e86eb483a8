//! The TiKV engine keeps the contract.

mod server;

sluice_testkit::conformance_tests!(server::fresh);
