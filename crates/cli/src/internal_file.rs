//! The internal files of a mount: `.stats`, `.config` and `.accesslog`.
//!
//! What must stay true: they have the names and formats of `JuiceFS`, so that Sluice's commands
//! also work on mounts of `JuiceFS`.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use sluice_types::Ino;

/// The directory that is meant, if a volume is mounted exactly there.
pub(crate) fn mount_of(path: &Path) -> Result<PathBuf> {
    let found = fs::canonicalize(path).with_context(|| format!("{} cannot be used", path.display()))?;
    let is_volume = |kind: &String| sluice_fuse::is_volume_type(kind);
    if !sluice_fuse::types_on(&found).iter().any(is_volume) {
        bail!(
            "no volume is mounted on {}; name the directory that `sluice mount` was given",
            found.display()
        );
    }
    Ok(found)
}

/// Where an internal file is. Its short name is looked for first: a mount whose internal files have
/// it asks the engine for the long one, which may be away.
pub(crate) fn path(mountpoint: &Path, name: &str) -> PathBuf {
    let short = mountpoint.join(format!(".{name}"));
    let ours = fs::symlink_metadata(&short).is_ok_and(|found| Ino(found.ino()).is_internal());
    if ours { short } else { mountpoint.join(format!(".jfs.{name}")) }
}

/// Content of an internal file.
pub(crate) fn read(mountpoint: &Path, name: &str) -> io::Result<String> {
    fs::read_to_string(path(mountpoint, name))
}

/// The numbers of `.stats`, by name.
pub(crate) fn numbers(stats: &str) -> BTreeMap<String, f64> {
    let number = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    stats.lines().filter_map(number).collect()
}
