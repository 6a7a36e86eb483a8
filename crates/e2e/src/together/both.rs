//! A volume that two programs have mounted.

use crate::rig::Volume;
use anyhow::Context;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// How long one program may go on showing names that the other has changed.
pub(super) const NAMES: Duration = Duration::from_mins(1);

/// Mounts the volume with both programs for `work`; each one's `fsck` must find it clean then.
pub(super) fn both(
    volume: &mut Volume,
    programs: [&Path; 2],
    work: impl FnOnce(&[PathBuf]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut mounts = Vec::new();
    for program in programs {
        mounts.push(volume.mount_by(program, &[])?);
    }
    work(&mounts).with_context(|| format!("the mounts said:\n{}", volume.log()))?;
    volume.unmount()?;
    for program in programs {
        volume.fsck_by(program).with_context(|| format!("fsck of {}", program.display()))?;
    }
    Ok(())
}
