//! The cache group: clients of a volume that share their caches, so that a block is read from the
//! object store once.
//!
//! [`Group`] asks other members for blocks, [`Server`] answers them. The data path knows neither:
//! it sees a [`Peers`](sluice_data::Peers). What must stay true: a client without the group's key
//! gets no data. A client that can read the object store gets the right bytes, even if a member
//! fails.

mod auth;
mod blocks;
mod costs;
mod deadline;
mod directory_polling;
mod frame;
mod group;
mod health;
mod latency;
mod link;
mod member_states;
mod members;
mod node;
mod outgoing;
mod placement;
mod serve;
mod served_connection;
mod serving;
mod stats;
mod tls;
mod unauthenticated;

pub use auth::{GroupKey, KeyRing};
pub use blocks::{Blocks, Boxed};
pub use group::{Group, GroupConfig};
pub use members::{Directory, Member, Members};
pub use serve::{ServeConfig, Server};
pub use stats::Stats;
pub use tls::Fingerprint;

/// The wire format, and how a client is let in: for the servers that a member is compared with, and
/// for their clients.
pub mod wire {
    pub use crate::{
        auth::{admit, prove},
        frame::{Head, Kind, Request, Status},
        tls::{Identity, binding, client},
    };
}
