//! The Redis engine: the volume format's keys, three generic scripts, one round trip per call.
//!
//! It maps records to keys and bytes and decides nothing. Every commit is one script that checks
//! everything before its first write, so a commit either happens whole or not at all; reads take no
//! locks, the checks at the commit stand in for them. What survives a power cut is what the
//! server's own configuration (`appendonly`, `appendfsync`) saves. The server may be one alone, the
//! master that sentinels name, or the node of a cluster that has the volume's slot.

mod answer;
mod codec;
mod commit;
mod config;
mod conn;
mod dial;
mod engine;
mod error;
mod handshake;
mod keys;
mod load;
mod locate;
mod pipeline;
mod pool;
mod read;
mod scan;
mod script;
mod tracking;
mod watch;
mod wire;

pub use config::{Config, Servers};
pub use engine::RedisEngine;
pub use sluice_net::{Address, tls::Files as Tls};
