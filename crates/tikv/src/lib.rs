//! Requests straight to the stores of a TiKV cluster: scans of many rows, and transactions that
//! store many rows of one region.
//!
//! The client library of TiKV makes all other requests. It needs 2 µs for each row of a scan,
//! because each row has room for every error there is, and it sends the names of all keys of a
//! transaction with each of its parts.
//!
//! What must stay true: anything but the expected answer is an [`Error`], whatever the reason. Then
//! the caller uses the client library, which waits for regions that move, and resolves locks.

mod call;
mod error;
mod keys;
mod regions;
mod rows;
mod stores;
mod wire;

pub use error::Error;
pub use rows::Pair;
pub use stores::{ROWS, Stores};
