//! Everything that is tried on a real etcd.

mod conformance;
mod failures;
mod limits;
mod operations;
mod server;
