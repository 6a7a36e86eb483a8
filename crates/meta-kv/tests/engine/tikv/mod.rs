//! Everything that is tried on a real TiKV.

mod conformance;
mod failures;
mod operations;
mod records;
mod regions;
mod server;
