//! Dumps: the metadata of a volume as a file, in the two forms of JuiceFS.

pub mod binary;
mod error;
pub mod json;

pub use error::DumpError;
