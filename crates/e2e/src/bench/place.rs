//! The mounted directory in which a row works: a volume, or a file system in memory that shows the
//! cost of FUSE alone.
//!
//! What must stay true: `cold` drops all caches of the kernel, in the same way for every program.

use super::{Side, Turn, memory};
use crate::rig::{self, Volume};
use anyhow::{Context, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// A mounted directory; unmounted when dropped.
pub(super) struct Place<'t> {
    turn: &'t Turn<'t>,
    /// Of the mount, besides those of every turn.
    options: &'static [&'static str],
    mounted: Mounted,
    point: PathBuf,
    /// MiB that its earlier mounts held at most.
    held: f64,
}

enum Mounted {
    Volume(Box<Volume>),
    // Its drop is what it is for.
    Memory { _floor: Floor },
}

/// What happens to the block cache on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocks {
    Stay,
    Go,
}

impl<'t> Place<'t> {
    /// One for this turn; none if it is the limit's and no program for it was named.
    pub(super) fn new(turn: &'t Turn<'t>) -> anyhow::Result<Option<Self>> {
        if turn.side == Side::Limit {
            let Some(program) = &turn.plan.floor else { return Ok(None) };
            let floor = Floor::new(program, &turn.plan.within)?;
            let point = floor.point.clone();
            let mounted = Mounted::Memory { _floor: floor };
            return Ok(Some(Self { turn, options: &[], mounted, point, held: 0.0 }));
        }
        Self::with_options(turn, &[]).map(Some)
    }

    /// A volume for this turn, mounted with more options.
    pub(super) fn with_options(turn: &'t Turn, options: &'static [&'static str]) -> anyhow::Result<Self> {
        Self::of(turn, turn.volume()?, options)
    }

    /// This volume, mounted with more options.
    pub(super) fn of(
        turn: &'t Turn,
        volume: Volume,
        options: &'static [&'static str],
    ) -> anyhow::Result<Self> {
        let mut volume = Box::new(volume);
        let point = turn.mount_with(&mut volume, options)?;
        Ok(Self { turn, options, mounted: Mounted::Volume(volume), point, held: 0.0 })
    }

    pub(super) fn path(&self) -> &Path {
        &self.point
    }

    /// Makes the kernel and the program forget what they know: a volume is mounted anew.
    ///
    /// With its blocks a volume loses what the disk's own cache holds too; a file system in memory
    /// has nothing else.
    pub(super) fn cold(&mut self, blocks: Blocks) -> anyhow::Result<()> {
        let Mounted::Volume(volume) = &mut self.mounted else { return forget() };
        self.held = self.held.max(memory::memory(&self.point)?[1]);
        volume.unmount()?;
        if blocks == Blocks::Go {
            let cache = volume.path(rig::FIRST_CACHE);
            if cache.exists() {
                fs::remove_dir_all(&cache)?;
            }
            forget()?;
        }
        self.turn.mount_with(volume, self.options)?;
        Ok(())
    }

    /// Bytes in the block cache on disk; none where there is no such cache.
    pub(super) fn cached(&self) -> Option<u64> {
        match &self.mounted {
            Mounted::Volume(volume) => Some(size(&volume.path(rig::FIRST_CACHE))),
            Mounted::Memory { .. } => None,
        }
    }

    /// MiB that the process of the mount held at most since the last call, all mounts of this place
    /// counted; none of a file system in memory.
    pub(super) fn highest(&mut self) -> anyhow::Result<Option<f64>> {
        let Mounted::Volume(_) = self.mounted else { return Ok(None) };
        let highest = self.held.max(memory::memory(&self.point)?[1]);
        self.held = 0.0;
        memory::forget(&self.point)?;
        Ok(Some(highest))
    }

    /// Ends it and says whether it ended well.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self.mounted {
            Mounted::Volume(mut volume) => volume.unmount(),
            Mounted::Memory { .. } => Ok(()),
        }
    }
}

/// Drops the kernel's caches of pages, names and inodes.
pub(super) fn forget() -> anyhow::Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")
        .context("only root may drop the kernel's caches: run it as root")
}

fn size(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return fs::metadata(path).map_or(0, |found| found.len()) };
    entries.flatten().map(|entry| size(&entry.path())).sum()
}

struct Floor {
    process: Child,
    point: PathBuf,
    _folder: TempDir,
}

impl Floor {
    fn new(program: &Path, within: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(within)?;
        let folder = tempfile::Builder::new().prefix("floor-").tempdir_in(within)?;
        let point = folder.path().join("mnt");
        fs::create_dir(&point)?;
        let process = Command::new(program)
            .arg(&point)
            .env("ATTR_TTL", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut floor = Self { process, point, _folder: folder };
        let mut died = false;
        rig::until("the file system in memory", Duration::from_secs(20), || {
            died = floor.process.try_wait().ok().flatten().is_some();
            died || rig::mounted(&floor.point)
        })?;
        ensure!(!died, "{} ended at once", program.display());
        Ok(floor)
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.point).stderr(Stdio::null()).status();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
