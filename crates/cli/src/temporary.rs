//! The folder for large temporary files.

use std::{env, path::PathBuf};

/// The folder that systems have for large files that need not survive a restart.
const LARGE: &str = "/var/tmp";

/// `TMPDIR`, else a folder that is hardly in memory, as `/tmp` may be.
pub(crate) fn folder() -> PathBuf {
    let large = || Some(PathBuf::from(LARGE)).filter(|large| large.is_dir());
    env::var_os("TMPDIR").map(PathBuf::from).or_else(large).unwrap_or_else(env::temp_dir)
}
