//! Quotas as commands use them: list, set, remove, count again.
//!
//! What must stay true: the usage of a quota is exact in the end, even if others write while it is
//! set. The record is made first, with zero usage. Clients charge it once they know it, which is
//! after a heartbeat. From then on, the usage below the directory and the recorded usage differ by
//! a constant amount, whatever clients change. To find this amount, all directories and the record
//! are read twice, one read after the other. If both reads are equal, the amount is added to the
//! record.

mod count;
mod others;
mod owners;

use sluice_types::{FsError, FsResult};

pub use self::count::{Counting, Usage};
use crate::{
    batch::Interrupt,
    engine::Scan,
    meta::Meta,
    ops::{
        quota::{DropLimits, GetQuota, SetLimits},
        setting::{ChangeSetting, DropDirStats},
    },
    schema::{Quota, QuotaKey, Row, VolumeFormat},
    tree::Progress,
};

/// The result of setting a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaSet {
    /// The quota as it is now.
    pub quota: Quota,
    /// Whether its usage is exact. If not, others wrote too much during the count. A later check
    /// repairs it.
    pub settled: bool,
}

impl Meta {
    /// All quotas, those without limits included. In memory some 50 bytes each.
    pub fn quotas(&self, interrupt: &Interrupt) -> FsResult<Vec<(QuotaKey, Quota)>> {
        let mut quotas = Vec::new();
        self.each_page(Scan::Quotas, interrupt, |rows| {
            quotas.extend(rows.into_iter().filter_map(|row| match row {
                Row::Quota(key, quota) => Some((key, quota)),
                _ => None,
            }));
            Ok(())
        })?;
        quotas.sort_unstable_by_key(|(key, _)| *key);
        quotas.dedup_by_key(|(key, _)| *key);
        Ok(quotas)
    }

    /// A quota, if there is one.
    pub fn quota(&self, key: QuotaKey, interrupt: &Interrupt) -> FsResult<Option<Quota>> {
        self.read(&GetQuota(key), interrupt)
    }

    /// Sets limits. The first limits of a directory, and the first of any user or group, count the
    /// present usage. If other clients must learn of the quota first, `waiting` is called with
    /// their number.
    ///
    /// # Errors
    /// [`FsError::NotFound`] and [`FsError::NotDir`] if there is no such directory.
    pub fn set_quota(
        &self,
        limits: SetLimits,
        counting: &Counting<'_>,
        waiting: &dyn Fn(usize),
    ) -> FsResult<QuotaSet> {
        let interrupt = counting.interrupt;
        let begins = self.begin_to_count(limits.key, interrupt, counting.progress)?;
        let created = self.run(limits, interrupt)?;
        self.retry(interrupt, || self.reload_usage())?;
        let mut settled = true;
        if begins || created && matches!(limits.key, QuotaKey::Dir(_)) {
            self.count_again(limits.key, begins, counting)?;
            let others = self.others(interrupt)?;
            if !others.is_empty() {
                waiting(others.len());
                settled = self.await_others(others, interrupt)?;
            }
            settled &= self.count_again(limits.key, begins, counting)?;
            self.retry(interrupt, || self.reload_usage())?;
        }
        let quota = self.quota(limits.key, interrupt)?.ok_or(FsError::NotFound)?;
        Ok(QuotaSet { quota, settled })
    }

    /// Removes limits. Returns whether there were any.
    pub fn delete_quota(&self, key: QuotaKey, interrupt: &Interrupt) -> FsResult<bool> {
        let deleted = self.run(DropLimits(key), interrupt)?;
        self.retry(interrupt, || self.reload_usage())?;
        Ok(deleted)
    }

    fn count_again(&self, key: QuotaKey, all: bool, counting: &Counting<'_>) -> FsResult<bool> {
        match key {
            QuotaKey::Dir(dir) => self.settle_tree(dir, counting),
            QuotaKey::User(_) | QuotaKey::Group(_) if all => self.settle_owners(counting),
            QuotaKey::User(_) | QuotaKey::Group(_) => Ok(true),
        }
    }

    /// Enables what a quota needs and the volume does not count yet. Returns whether that is the
    /// usage of users and groups.
    fn begin_to_count(&self, key: QuotaKey, interrupt: &Interrupt, progress: Progress<'_>) -> FsResult<bool> {
        let old = self.retry(interrupt, || Self::load_format(self.engine.as_ref()))?;
        let old = old.ok_or(FsError::NotFound)?;
        let owners = !matches!(key, QuotaKey::Dir(_));
        let new = VolumeFormat {
            dir_stats: old.dir_stats || !owners,
            user_group_quota: old.user_group_quota || owners,
            ..old.clone()
        };
        if new == old {
            return Ok(false);
        }
        if new.dir_stats && !old.dir_stats {
            // What was counted before is out of date.
            self.each_page(Scan::DirStats, interrupt, |rows| {
                let dirs = rows.into_iter().filter_map(|row| match row {
                    Row::DirStat(dir, _) => Some(dir),
                    _ => None,
                });
                let dirs: Vec<_> = dirs.collect();
                progress(dirs.len() as u64);
                self.run(DropDirStats(dirs), interrupt)
            })?;
        }
        self.run(ChangeSetting { old, new: new.clone() }, interrupt)?;
        self.env.set_format(new);
        Ok(owners)
    }
}
