//! The Redis engine: the volume format's keys, three generic scripts, one round trip per call.
//!
//! It maps records to keys and bytes and decides nothing. Every commit is one script that checks
//! everything before its first write, so a commit happens as a whole or not at all. Reads take no
//! locks: the checks at the commit replace them. The server's configuration (`appendonly`,
//! `appendfsync`) decides what survives a power cut. The server may be a single one, the master of
//! a Sentinel group, or the node of a cluster that has the volume's slot.

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
mod log;
mod mixed;
mod pipeline;
mod pool;
mod read;
mod scan;
mod script;
mod tracking;
mod vacant;
mod watch;
mod wire;

pub use config::{Config, Servers};
pub use engine::RedisEngine;
pub use sluice_net::{Address, tls::Files as Tls, url::Secret};
