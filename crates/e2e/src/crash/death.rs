//! How a mount dies.
//!
//! What must stay true: the test never removes the mount point of a dead mount. The next mount
//! replaces it.

use super::process::{ROUND, Writer};
use crate::rig::{Volume, until};
use anyhow::ensure;
use rand::{Rng, rngs::StdRng};
use std::{path::Path, sync::atomic::Ordering};

/// How a mount dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Death {
    /// All its processes are killed at once.
    Kill,
    /// It is unmounted under load, in turn: refused as it is in use, told to end, killed while it
    /// ends, and by force.
    Unmount,
}

/// Unmounts under load, in the way of this `round`.
///
/// # Errors
/// When the mount or its mount point stays, or a mount that is in use is not.
pub(super) fn unmount(
    volume: &mut Volume,
    point: &Path,
    writers: &mut [Writer],
    (round, rng): (u64, &mut StdRng),
) -> anyhow::Result<()> {
    let point = point.to_string_lossy();
    match round % 4 {
        0 => {
            let refused = volume.command(&["umount", &point]);
            ensure!(refused.is_err_and(|why| format!("{why:#}").contains("busy")), "it is in use");
            ensure!(!more(volume, writers, 20)?, "a refused unmount has ended something");
            volume.vanish(true)
        }
        1 => {
            volume.terminate()?;
            volume.vanish(false)
        }
        2 => {
            volume.terminate()?;
            more(volume, writers, rng.random_range(0..20))?;
            volume.vanish(true)
        }
        _ => {
            volume.command(&["umount", "--force", &point])?;
            volume.vanish(rng.random())
        }
    }
}

/// Waits for some more durable steps; whether the mount or a writer ended before.
fn more(volume: &mut Volume, writers: &mut [Writer], steps: u64) -> anyhow::Result<bool> {
    let done =
        |writers: &[Writer]| writers.iter().map(|writer| writer.done.load(Ordering::SeqCst)).sum::<u64>();
    let wanted = done(writers) + steps;
    let mut ended = false;
    until("the writers' work", ROUND, || {
        ended = volume.has_ended() || writers.iter_mut().any(Writer::has_ended);
        ended || done(writers) >= wanted
    })?;
    Ok(ended)
}
