//! How an engine reaches a database server: addresses, sockets, encryption, a pool of connections,
//! and the options of URLs.
//!
//! What must stay true: every wait has a deadline, and no message shows a password. This crate
//! knows no protocol: it moves bytes, and the engines interpret them.

mod address;
#[cfg(unix)]
mod connect;
#[cfg(unix)]
mod near;
mod pool;
#[cfg(unix)]
mod processors;
// It waits with poll(2), which other systems do not have.
#[cfg(unix)]
mod stream;
pub mod tls;
pub mod url;

pub use address::Address;
pub use pool::{Connection, Limits, Pool};
#[cfg(unix)]
pub use stream::{Deadline, Kind, Stream, describe};
pub use tls::Tls;
