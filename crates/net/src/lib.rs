//! How an engine reaches a database server: addresses, sockets, encryption, a pool of connections,
//! and the options of URLs.
//!
//! What must stay true: every wait has a deadline, and no message shows a password. This crate
//! knows no protocol: it moves bytes, and the engines interpret them.

mod address;
mod near;
mod pool;
mod stream;
pub mod tls;
pub mod url;

pub use address::Address;
pub use pool::{Connection, Limits, Pool};
pub use stream::{Deadline, Kind, Stream, describe};
pub use tls::Tls;
