//! Rows about backups of metadata: the rate of creates while backups run one after the other, and
//! the memory that they cost the mount.
//!
//! What must stay true: a backup runs during the whole measurement, and each backup is complete.

use super::{Side, Turn, memory, metadata};
use crate::rig::{self, Volume};
use anyhow::ensure;
use std::{fs, path::PathBuf, time::Duration};

/// Has a mount make backups without a pause; the least interval of its flag is minutes.
const ALWAYS: &str = "SLUICE_TEST_BACKUP_META=1ms";
const TIMEOUT: Duration = Duration::from_mins(15);

/// Files made during backups in % of those made without, and what MiB more the mount holds.
pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    if turn.side == Side::Limit {
        return Ok(vec![None, None]);
    }
    let mut volume = turn.volume()?;
    metadata::fill(turn, &volume, turn.plan.sizes.backed)?;
    // What is measured second finds a fuller volume: the order changes.
    let first = turn.round.is_multiple_of(2);
    let mut measured = Vec::new();
    for backups in [first, !first] {
        measured.push((backups, beside(turn, &mut volume, backups)?));
    }
    measured.sort_by_key(|(backups, _)| *backups);
    let [(_, (rate, held)), (_, (slowed, holding))] = measured[..] else { return Ok(vec![None; 2]) };
    Ok(vec![Some(100.0 * slowed / rate), Some(holding - held)])
}

/// Files a second, and MiB of the mount.
fn beside(turn: &Turn, volume: &mut Volume, backups: bool) -> anyhow::Result<(f64, f64)> {
    let environment: &[&str] = if backups { &[ALWAYS] } else { &[] };
    let mount = volume.mount_in(environment, &["--backup-meta", "0"])?;
    let made = |volume: &Volume| fs::read_dir(folder(volume)).map_or(0, Iterator::count);
    if backups {
        rig::until("a first backup", TIMEOUT, || made(volume) > 0)?;
    }
    let before = made(volume);
    // What a backup costs is not spread evenly over its time: as many files as the volume has take
    // longer than one backup.
    let dir = if backups { "/with" } else { "/without" };
    let rate = metadata::beside(turn, volume, dir, turn.plan.sizes.backed)?;
    if backups {
        rig::until("a whole backup", TIMEOUT, || made(volume) > before)?;
    }
    let [resident, _] = memory::memory(&mount)?;
    volume.unmount()?;
    ensure!(backups || made(volume) == before, "backups were made that nobody wanted");
    Ok((rate, resident))
}

/// Where the backups are.
fn folder(volume: &Volume) -> PathBuf {
    volume.path("objects/e2e-volume/meta")
}
