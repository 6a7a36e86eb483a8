//! The directory where commands sort data that does not fit into memory.

use std::{env, path::PathBuf};

use clap::Args;
use sluice_meta::sort::SortSpace;

/// Bytes that a sort keeps in memory; for tests, to have it done on disk.
const BYTES_NAME: &str = "SLUICE_SORT_BYTES";

/// Where to sort.
#[derive(Args)]
pub(crate) struct SortFlags {
    /// Where to sort what does not fit into memory: some 40 bytes an object, and with fsck some 120
    /// bytes a file
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    external_sort_dir: PathBuf,
}

impl SortFlags {
    /// The folder, and the memory that a sort takes.
    pub(crate) fn space(&self) -> SortSpace {
        let bytes = env::var(BYTES_NAME).ok().and_then(|bytes| bytes.parse().ok());
        SortSpace { dir: self.external_sort_dir.clone(), bytes: bytes.unwrap_or(SortSpace::BYTES) }
    }
}
