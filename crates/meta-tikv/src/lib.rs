//! The TiKV engine: keys and values of the JuiceFS volume format in optimistic transactions.
//!
//! A read is one flight of point reads and ranges at a snapshot; a commit is one two-phase commit, tried again by the
//! engine itself where others were faster and everything expected still holds. Nothing here knows what an operation
//! of a file system is.

mod codec;
mod commit;
mod config;
mod engine;
mod error;
mod keys;
mod locks;
mod read;
mod scan;
mod store;
mod totals;
mod values;
mod watch;

pub use config::Config;
pub use engine::TikvEngine;
