//! Engines over key-value stores: the keys and values of the JuiceFS volume format, and stores that
//! keep them.
//!
//! The format, the drafts of commits and the scans are the same for all of them. A store implements
//! the trait [`Kv`]. Nothing here knows what an operation of a file system is.

mod address;
mod codec;
mod commit;
mod engine;
mod etcd;
mod keys;
mod kv;
mod locks;
mod parts;
mod read;
mod scan;
mod snapshot;
mod stored;
#[cfg(feature = "tikv")]
mod tikv;
mod totals;
mod values;

pub use engine::KvEngine;
pub use etcd::{Etcd, EtcdEngine};
pub use kv::{Change, Changes, Kv, Volume};
pub use stored::{Pair, Raw, Span};
#[cfg(feature = "tikv")]
pub use tikv::{Tikv, TikvEngine};
