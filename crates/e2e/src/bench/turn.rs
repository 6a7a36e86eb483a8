//! One program's turn at some rows.

use super::plan::Plan;
use crate::rig::{Engine, Volume};
use std::path::{Path, PathBuf};

/// Who works in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Sluice,
    JuiceFs,
    /// Nobody's file system: the bare engine, or FUSE over memory.
    Limit,
}

/// One program's turn at one group of rows.
pub(super) struct Turn<'p> {
    pub(super) plan: &'p Plan,
    pub(super) side: Side,
    pub(super) engine: Engine,
    pub(super) round: usize,
}

impl Turn<'_> {
    pub(super) fn program(&self) -> &Path {
        match (&self.plan.juicefs, self.side) {
            (Some(juicefs), Side::JuiceFs) => juicefs,
            _ => &self.plan.sluice,
        }
    }

    /// A new volume.
    pub(super) fn volume(&self) -> anyhow::Result<Volume> {
        self.volume_with(&[])
    }

    /// The same with further flags of `format`.
    pub(super) fn volume_with(&self, options: &[&str]) -> anyhow::Result<Volume> {
        Volume::new(self.program(), self.engine, &self.plan.within, options)
    }

    /// A new volume whose server is only reached through a proxy.
    pub(super) fn volume_behind_proxy(&self) -> anyhow::Result<Volume> {
        Volume::behind_proxy(self.program(), self.engine, &self.plan.within, &[])
    }

    /// What `JuiceFS` needs to be told to work quietly and within the volume's folder: no report,
    /// no backup.
    pub(super) fn quiet(&self) -> &'static [&'static str] {
        if self.side == Side::JuiceFs { &["--no-usage-report", "--backup-meta", "0"] } else { &[] }
    }

    /// Mounts it with the program's defaults and the plan's options, without backups, and with a
    /// block cache of the same size for all.
    pub(super) fn mount(&self, volume: &mut Volume) -> anyhow::Result<PathBuf> {
        self.mount_with(volume, &[])
    }

    /// [`Self::mount`] with more options.
    pub(super) fn mount_with(&self, volume: &mut Volume, more: &[&str]) -> anyhow::Result<PathBuf> {
        let mut options = [&["--cache-size", "10240", "--backup-meta", "0"], self.quiet(), more].concat();
        if self.side == Side::Sluice {
            options.extend(self.plan.mount_options.iter().map(String::as_str));
        }
        volume.mount_plain(&options)
    }

    /// A seed that is the same for every side of a round.
    pub(super) fn seed(&self) -> u64 {
        self.plan.seed + self.round as u64
    }
}

/// How many a second, `count` of them having taken as long as it is since `start`.
pub(super) fn rate(count: usize, start: std::time::Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64().max(1e-9)
}
