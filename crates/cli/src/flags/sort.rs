//! The directory where commands sort data that does not fit into memory.

use std::{env, path::PathBuf};

use clap::Args;
use sluice_meta::sort::{SortError, SortSpace};

/// Bytes that a sort keeps in memory; for tests, to have it done on disk.
const BYTES_NAME: &str = "SLUICE_SORT_BYTES";

/// Where to sort if nobody says where.
const DEFAULT: &str = "/var/tmp";

/// Where to sort.
#[derive(Args)]
pub(crate) struct SortFlags {
    /// Where to sort what does not fit into memory: some 40 bytes an object, and with fsck some 120
    /// bytes a file [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    external_sort_dir: Option<PathBuf>,
}

impl SortFlags {
    /// The folder, and the memory that a sort takes.
    ///
    /// # Errors
    /// No file can be made in the folder that was named.
    pub(crate) fn space(&self) -> Result<SortSpace, SortError> {
        let bytes = env::var(BYTES_NAME).ok().and_then(|bytes| bytes.parse().ok());
        let dir = self.external_sort_dir.clone().unwrap_or_else(|| DEFAULT.into());
        let space = SortSpace { dir, bytes: bytes.unwrap_or(SortSpace::BYTES) };
        // Without a folder on the command line, small volumes need none.
        if self.external_sort_dir.is_some() {
            space.check()?;
        }
        Ok(space)
    }
}
