//! Counts the usage that quotas record, and compares the two.
//!
//! What must stay true: concurrent writes cause no false report. A difference counts only if
//! several reads find the same one.

use std::time::Duration;

use rustc_hash::FxHashMap;
use sluice_types::{FsError, FsResult, Ino, wait};

use crate::{
    batch::Interrupt,
    engine::Scan,
    meta::Meta,
    ops::{
        quota::{AddUsage, LookAtTree, SetUsage},
        tree_usage::TreeUsage,
    },
    schema::{Quota, QuotaKey, Row},
    tree::Progress,
};

/// Most directories of a tree that are read together: some 2 MB.
const MOST_DIRS: usize = 10_000;
/// How long a tree is read while others change it.
const LONGEST: Duration = Duration::from_secs(30);
/// Counts of one tree. The last one is used even if others changed something meanwhile.
const TRIES: usize = 10;
/// Reads that must find the same difference.
const SAME_READS: usize = 3;

/// How usage is counted.
pub struct Counting<'a> {
    /// Count each entry, and do not use the statistics of directories.
    pub strict: bool,
    /// Interrupts the count.
    pub interrupt: &'a Interrupt,
    /// Called with the progress.
    pub progress: Progress<'a>,
}

/// Recorded and counted usage: bytes and inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Whose.
    pub key: QuotaKey,
    /// The record, if there is one.
    pub stored: Option<Quota>,
    /// As counted.
    pub counted: (i64, i64),
}

impl Usage {
    /// The recorded usage minus the counted usage.
    pub fn difference(&self) -> (i64, i64) {
        let (space, inodes) = used(self.stored);
        (space - self.counted.0, inodes - self.counted.1)
    }
}

fn used(quota: Option<Quota>) -> (i64, i64) {
    quota.map_or((0, 0), |quota| (quota.used_space, quota.used_inodes))
}

impl Meta {
    /// Counts the usage below a directory with a quota, and records it. Returns whether the record
    /// is exact.
    ///
    /// # Errors
    /// [`FsError::NoData`] if the directory has no quota.
    pub fn settle_tree(&self, dir: Ino, counting: &Counting<'_>) -> FsResult<bool> {
        if let Some(usage) = self.seen_at_once(dir, counting)? {
            let (space, inodes) = usage.difference();
            if (space, inodes) != (0, 0) {
                // The difference stays the same, whatever others add to both.
                self.run(AddUsage { dir, usage: (-space, -inodes) }, counting.interrupt)?;
            }
            return Ok(true);
        }
        let key = QuotaKey::Dir(dir);
        for left in (0..TRIES).rev() {
            let seen = used(Some(self.quota(key, counting.interrupt)?.ok_or(FsError::NoData)?));
            let counted = self.usage_below(dir, counting)?;
            if self.run(SetUsage { key, seen, counted, add_charged: left == 0 }, counting.interrupt)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The recorded usage of a directory and the usage below it, both at one time. `None` if that
    /// is impossible: the count is to be strict, there are too many directories, some have no
    /// statistics, or others change something all the time.
    fn seen_at_once(&self, dir: Ino, counting: &Counting<'_>) -> FsResult<Option<Usage>> {
        let until = wait::now() + LONGEST;
        while !counting.strict && wait::now() < until {
            let found = self.dirs_of(dir, counting.interrupt, counting.progress)?;
            if found.dirs.len() > MOST_DIRS || found.usage.is_none() {
                break;
            }
            let look = LookAtTree { dir, dirs: found.dirs.into() };
            let mut before = self.read(&look, counting.interrupt)?;
            while wait::now() < until {
                if before.usage == TreeUsage::Changed {
                    break;
                }
                let after = self.read(&look, counting.interrupt)?;
                if let (true, TreeUsage::Exact(space, inodes)) = (after == before, after.usage) {
                    let (key, stored) = (QuotaKey::Dir(dir), Some(after.quota));
                    return Ok(Some(Usage { key, stored, counted: (space, inodes) }));
                }
                before = after;
            }
        }
        Ok(None)
    }

    /// Bytes and inodes below a directory.
    fn usage_below(&self, dir: Ino, counting: &Counting<'_>) -> FsResult<(i64, i64)> {
        if !counting.strict
            && let Some(usage) = self.dirs_of(dir, counting.interrupt, counting.progress)?.usage
        {
            return Ok(usage);
        }
        self.walked_usage(dir, counting.interrupt, counting.progress)
    }

    /// Compares the recorded usage of a directory with the usage below it.
    ///
    /// # Errors
    /// [`FsError::NoData`] if the directory has no quota.
    pub fn compare_tree(&self, dir: Ino, counting: &Counting<'_>) -> FsResult<Usage> {
        if let Some(usage) = self.seen_at_once(dir, counting)? {
            return Ok(usage);
        }
        let key = QuotaKey::Dir(dir);
        let look = || -> FsResult<Usage> {
            let stored = self.quota(key, counting.interrupt)?.ok_or(FsError::NoData)?;
            let counted = self.usage_below(dir, counting)?;
            Ok(Usage { key, stored: Some(stored), counted })
        };
        let mut usage: Usage = look()?;
        let mut same = 1;
        for _ in 0..TRIES {
            if usage.difference() == (0, 0) || same == SAME_READS {
                break;
            }
            let next = look()?;
            same = if next.difference() == usage.difference() { same + 1 } else { 1 };
            usage = next;
        }
        Ok(usage)
    }

    /// Compares as [`Self::compare_tree`] does. If `repair`, a wrong record is corrected. Returns
    /// the usage before that, and whether the record is exact now.
    ///
    /// # Errors
    /// [`FsError::NoData`] if the directory has no quota.
    pub fn check_dir_quota(
        &self,
        dir: Ino,
        repair: bool,
        counting: &Counting<'_>,
    ) -> FsResult<(Usage, bool)> {
        let usage = self.compare_tree(dir, counting)?;
        let is_right = usage.difference() == (0, 0);
        Ok((usage, is_right || repair && self.settle_tree(dir, counting)?))
    }

    /// Compares as [`Self::compare_owners`] does. If `repair`, wrong records are corrected. Returns
    /// the usage before that.
    pub fn check_owner_quotas(&self, repair: bool, counting: &Counting<'_>) -> FsResult<Vec<Usage>> {
        let usage = self.compare_owners(counting)?;
        if repair && usage.iter().any(|usage| usage.difference() != (0, 0)) {
            self.settle_owners(counting)?;
        }
        Ok(usage)
    }

    /// The recorded and the counted usage of all users and groups.
    ///
    /// Memory: some 100 bytes for each of them.
    pub fn compare_owners(&self, counting: &Counting<'_>) -> FsResult<Vec<Usage>> {
        let mut usage = self.look_at_owners(counting)?;
        for _ in 1..SAME_READS {
            if usage.iter().all(|usage| usage.difference() == (0, 0)) {
                break;
            }
            let before: FxHashMap<QuotaKey, Usage> = usage.iter().map(|usage| (usage.key, *usage)).collect();
            usage = self.look_at_owners(counting)?;
            for usage in &mut usage {
                let known = before.get(&usage.key).map(Usage::difference);
                if known != Some(usage.difference()) {
                    // Another client writes there.
                    usage.counted = used(usage.stored);
                }
            }
        }
        Ok(usage)
    }

    fn look_at_owners(&self, counting: &Counting<'_>) -> FsResult<Vec<Usage>> {
        let stored: FxHashMap<QuotaKey, Quota> = self.quotas(counting.interrupt)?.into_iter().collect();
        let mut counted: FxHashMap<QuotaKey, (i64, i64)> = FxHashMap::default();
        self.each_page(Scan::Nodes, counting.interrupt, |rows| {
            (counting.progress)(rows.len() as u64);
            for row in rows {
                let Row::Node(ino, attr) = row else { continue };
                // The root and the root of the trash belong to the volume.
                if ino == Ino::ROOT || ino == Ino::TRASH {
                    continue;
                }
                for key in [QuotaKey::User(attr.uid), QuotaKey::Group(attr.gid)] {
                    let (space, inodes) = counted.entry(key).or_default();
                    (*space, *inodes) = (*space + attr.space(), *inodes + 1);
                }
            }
            Ok(())
        })?;
        let owner = |key: &&QuotaKey| !matches!(key, QuotaKey::Dir(_));
        let mut keys: Vec<QuotaKey> = counted.keys().chain(stored.keys().filter(owner)).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        let usage = keys.into_iter().map(|key| Usage {
            key,
            stored: stored.get(&key).copied(),
            counted: counted.get(&key).copied().unwrap_or_default(),
        });
        Ok(usage.collect())
    }

    /// Counts the usage of users and groups, and records it. Returns whether the records are exact.
    pub fn settle_owners(&self, counting: &Counting<'_>) -> FsResult<bool> {
        for left in (0..TRIES).rev() {
            let usage = self.look_at_owners(counting)?;
            let wrong = usage.iter().filter(|usage| usage.difference() != (0, 0) || usage.stored.is_none());
            let repairs = wrong.map(|usage| SetUsage {
                key: usage.key,
                seen: used(usage.stored),
                counted: usage.counted,
                add_charged: left == 0,
            });
            let repairs: Vec<SetUsage> = repairs.collect();
            let mut exact = true;
            for done in self.run_all(repairs, counting.interrupt) {
                exact &= done?;
            }
            if exact {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
