//! What must hold after an outage.

use super::work::Outcome;
use crate::rig::Volume;
use anyhow::Context;

/// What the mounts said goes with an error.
pub(super) fn report<T>(volume: &Volume, done: anyhow::Result<T>) -> anyhow::Result<T> {
    done.with_context(|| format!("the mounts said:\n{}", volume.last_words()))
}

/// Unmounts all, checks what is there through a fresh mount on `meta`, and the volume with it.
pub(super) fn check(volume: &mut Volume, meta: String, outcome: &Outcome) -> anyhow::Result<()> {
    volume.unmount()?;
    volume.meta = meta;
    let point = volume.mount(&[])?;
    outcome.verify(&point)?;
    volume.unmount()?;
    volume.fsck()?;
    println!("{} steps, the longest took {:?}: all is there, once", outcome.done, outcome.longest);
    Ok(())
}
