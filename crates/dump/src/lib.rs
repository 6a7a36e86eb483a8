//! Dumps: the metadata of a volume as a file, in the two forms of JuiceFS.

pub mod binary;
mod error;

pub use error::DumpError;
