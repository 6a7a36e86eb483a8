//! Flags that several commands share, and the settings that they become.
//!
//! What must stay true: names and defaults are those of `JuiceFS`. A flag that cannot work here is
//! refused with the reason. A hidden flag either requests what always happens
//! ([`UnusedFlags::always`]) or is refused.

mod backup;
mod cache;
mod fuse;
mod group;
mod meta;
mod metrics;
mod sort;
mod store;

use anyhow::{Result, ensure};

pub(crate) use backup::{BackupFlags, BackupFormat};
pub(crate) use cache::CacheFlags;
pub(crate) use fuse::FuseFlags;
pub(crate) use group::GroupFlags;
pub(crate) use meta::{Atime, MetaCacheFlags, MetaFlags};
pub(crate) use metrics::MetricsFlags;
pub(crate) use sort::SortFlags;
pub(crate) use store::{StoreFlags, TransferFlags};

/// Collects flags of JuiceFS that have no effect here.
#[derive(Default)]
pub(crate) struct UnusedFlags {
    /// Every flag that was checked.
    checked: Vec<&'static str>,
    warned: Vec<String>,
    refused: Vec<String>,
}

impl UnusedFlags {
    /// Warns of a flag if it was given.
    pub(crate) fn note(&mut self, flag: &'static str, given: bool) {
        self.checked.push(flag);
        if given {
            self.warned.push(format!("{flag} has no effect in this version"));
        }
    }

    /// Warns of a flag if it was given and has no effect without another one.
    pub(crate) fn ineffective(&mut self, flag: &str, given: bool, without: &str) {
        if given {
            self.warned.push(format!("{flag} has no effect without {without}"));
        }
    }

    /// Warns of a flag if it was given and has no effect, and says why.
    pub(crate) fn without_effect(&mut self, flag: &str, given: bool, why: &str) {
        if given {
            self.warned.push(format!("{flag} has no effect: {why}"));
        }
    }

    /// Refuses a flag if it was given, and says why it cannot work.
    pub(crate) fn refuse(&mut self, flag: &'static str, given: bool, why: &str) {
        self.checked.push(flag);
        if given {
            self.refused.push(format!("{flag} is refused: {why}"));
        }
    }

    /// These flags request what always happens.
    pub(crate) fn always(&mut self, flags: &[&'static str]) {
        self.checked.extend(flags);
    }

    /// Whether a flag was checked at all.
    #[cfg(test)]
    pub(crate) fn has_checked(&self, flag: &str) -> bool {
        self.checked.contains(&flag)
    }

    /// Reports the flags to the user.
    ///
    /// # Errors
    /// A flag was refused.
    pub(crate) fn check(&self) -> Result<()> {
        for warning in &self.warned {
            tracing::warn!("{warning}");
        }
        ensure!(self.refused.is_empty(), "{}", self.refused.join("\n"));
        Ok(())
    }
}
