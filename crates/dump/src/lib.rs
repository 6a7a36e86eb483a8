//! Dumps: the metadata of a volume as a file, in the two forms of JuiceFS.

pub mod binary;
mod build;
mod compress;
mod copy;
mod error;
mod fetch;
mod head;
pub mod json;
mod load;
mod log;
mod records;
mod retry;
mod slice_refs;
mod source;
mod store;
mod target;
mod throttle;
mod tree;

use sluice_types::Ino;

pub use compress::{Packer, Packing};
pub use copy::{LocalCopy, has_snapshots, is_faster_by_copy};
pub use error::DumpError;
pub use load::{load_binary, load_json};
pub use records::dump_binary;
pub use tree::dump_json;

/// What to dump, and how.
#[derive(Clone, Copy, Debug)]
pub struct DumpOptions {
    /// The directory that is the root of the dump.
    pub root: Ino,
    /// Whether keys and tokens for the object store stay in the settings.
    pub keep_secrets: bool,
    /// Whether the trash is left out.
    pub skip_trash: bool,
    /// Threads, and thereby connections, that read.
    pub threads: usize,
    /// Whether the database is left to others for most of the time: a volume of up to a million
    /// files takes twenty times as long, larger ones some minutes more.
    pub throttled: bool,
}

/// How to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Threads, and thereby connections, that write.
    pub threads: usize,
}
