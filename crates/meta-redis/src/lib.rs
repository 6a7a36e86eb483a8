//! The Redis engine: the volume format's keys, three generic scripts, one round trip per call.
//!
//! It maps records to keys and bytes and decides nothing. Every commit is one script that checks everything before
//! its first write, so a commit either happens whole or not at all; reads take no locks, the checks at the commit stand
//! in for them. What survives a power cut is what the server's own configuration (`appendonly`, `appendfsync`) saves.

mod codec;
mod commit;
mod config;
mod conn;
mod engine;
mod keys;
mod pipeline;
mod read;
mod scan;
mod script;
mod watch;
mod wire;

pub use config::{Address, Config, Tls};
pub use engine::RedisEngine;
