//! Operations on quotas: set and remove limits, and correct the usage.
//!
//! What must stay true: a commit that changes usage compares it with what was read, so that no
//! charge that others commit meanwhile is lost.

use std::sync::Arc;

use sluice_types::{Attr, FsError, Ino};
use smallvec::smallvec;

use super::{
    rules,
    tree_usage::{TreeUsage, questions, tree_usage},
};
use crate::{
    change_log::Line,
    engine::{Hold, Write},
    op::{ConflictKey, ConflictKeys, Op},
    schema::{DirStat, Key, Quota, QuotaKey, Row},
    view::{Stop, View},
    want::Want,
};

/// A quota, if there is one. One trip.
#[derive(Clone, Copy, Debug)]
pub struct GetQuota(pub QuotaKey);

impl Op for GetQuota {
    type Out = Option<Quota>;
    const NAME: &'static str = "get_quota";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![]
    }

    fn run(&self, view: &mut View<'_>) -> Result<Self::Out, Stop> {
        stored(view, self.0, Hold::None)
    }
}

/// Sets limits. The first limits of a directory make its record, with zero usage. Clients that know
/// the record charge it from then on. The caller has to count what is there. Two trips.
#[derive(Clone, Copy, Debug)]
pub struct SetLimits {
    /// What is limited.
    pub key: QuotaKey,
    /// Bytes, 0 for no limit; `None` leaves it as it is.
    pub max_space: Option<i64>,
    /// Inodes, 0 for no limit; `None` leaves it as it is.
    pub max_inodes: Option<i64>,
}

impl Op for SetLimits {
    /// Whether there was no record.
    type Out = bool;
    const NAME: &'static str = "set_limits";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("quota")]
    }

    /// # Errors
    /// [`FsError::NotFound`] if there is no such directory, [`FsError::NotDir`] if it is none.
    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        if let QuotaKey::Dir(dir) = self.key {
            view.want(&[Want::node(dir, Hold::Guard), Want::get(Key::Quota(self.key), Hold::Lock)])?;
            let attr = rules::existing_dir(view, dir, Hold::Guard)?;
            rules::require(!dir.is_trash() && !attr.parent.is_trash(), FsError::Perm)?;
        }
        let before = stored(view, self.key, Hold::Lock)?;
        let mut quota = before.unwrap_or(Quota::UNLIMITED);
        quota.max_space = self.max_space.unwrap_or(quota.max_space);
        quota.max_inodes = self.max_inodes.unwrap_or(quota.max_inodes);
        view.put(Row::Quota(self.key, quota));
        let (space, inodes) = (self.max_space.unwrap_or(-1), self.max_inodes.unwrap_or(-1));
        view.log(|| Line::SetQuota { key: self.key, space, inodes });
        Ok(before.is_none())
    }
}

/// Removes limits. The usage of users and groups stays recorded. Two trips.
#[derive(Clone, Copy, Debug)]
pub struct DropLimits(pub QuotaKey);

impl Op for DropLimits {
    /// Whether there were any.
    type Out = bool;
    const NAME: &'static str = "drop_limits";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("quota")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        let Some(quota) = stored(view, self.0, Hold::Lock)? else { return Ok(false) };
        view.log(|| Line::DropQuota(self.0));
        if let QuotaKey::Dir(_) = self.0 {
            view.delete(Key::Quota(self.0));
            return Ok(true);
        }
        let Quota { max_space, max_inodes, .. } = Quota::UNLIMITED;
        view.put(Row::Quota(self.0, Quota { max_space, max_inodes, ..quota }));
        Ok(quota.max_space > 0 || quota.max_inodes > 0)
    }
}

/// Reads a directory's quota and the usage below it. If two such reads return the same, that was
/// the state at some time between them. One trip.
#[derive(Clone, Debug)]
pub struct LookAtTree {
    /// The directory.
    pub dir: Ino,
    /// It and all directories below it.
    pub dirs: Arc<[Ino]>,
}

/// The result of [`LookAtTree`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLook {
    /// The quota.
    pub quota: Quota,
    /// What lies below the directory.
    pub usage: TreeUsage,
    /// All directories.
    pub dirs: Vec<(Attr, DirStat)>,
}

impl Op for LookAtTree {
    type Out = TreeLook;
    const NAME: &'static str = "look_at_tree";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![]
    }

    /// # Errors
    /// [`FsError::NoData`] if the directory has no quota.
    fn run(&self, view: &mut View<'_>) -> Result<TreeLook, Stop> {
        let key = QuotaKey::Dir(self.dir);
        let mut wants = questions(&self.dirs, Hold::None);
        wants.push(Want::get(Key::Quota(key), Hold::None));
        view.want(&wants)?;
        let quota = stored(view, key, Hold::None)?.ok_or(FsError::NoData)?;
        let (usage, dirs) = tree_usage(view, self.dir, &self.dirs, Hold::None)?;
        Ok(TreeLook { quota, usage, dirs })
    }
}

/// Adds to the recorded usage of a directory, as others do meanwhile. Two trips.
#[derive(Clone, Copy, Debug)]
pub struct AddUsage {
    /// The directory.
    pub dir: Ino,
    /// Bytes and inodes.
    pub usage: (i64, i64),
}

impl Op for AddUsage {
    type Out = ();
    const NAME: &'static str = "add_usage";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("quota")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        view.write(Write::Charge(QuotaKey::Dir(self.dir), self.usage.0, self.usage.1));
        Ok(())
    }
}

/// Records usage that was counted while the record said `seen`. Two trips.
#[derive(Clone, Copy, Debug)]
pub struct SetUsage {
    /// Whose usage.
    pub key: QuotaKey,
    /// Bytes and inodes in the record when the count began.
    pub seen: (i64, i64),
    /// Bytes and inodes counted.
    pub counted: (i64, i64),
    /// If something was charged since the count began: whether to add that, or to do nothing.
    pub add_charged: bool,
}

impl Op for SetUsage {
    /// Whether the usage is the one counted: nothing was charged since the count began.
    type Out = bool;
    const NAME: &'static str = "set_usage";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("quota")]
    }

    /// # Errors
    /// [`FsError::NoData`] if a directory has no quota any more.
    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        let mut quota = stored(view, self.key, Hold::Lock)?.or(self.key.kept()).ok_or(FsError::NoData)?;
        let charged = (quota.used_space - self.seen.0, quota.used_inodes - self.seen.1);
        let same = charged == (0, 0);
        if same || self.add_charged {
            quota.used_space = self.counted.0 + charged.0;
            quota.used_inodes = self.counted.1 + charged.1;
            view.put(Row::Quota(self.key, quota));
        }
        Ok(same)
    }
}

fn stored(view: &mut View<'_>, key: QuotaKey, hold: Hold) -> Result<Option<Quota>, Stop> {
    Ok(match view.get(&Key::Quota(key), hold)? {
        Some(Row::Quota(_, quota)) => Some(quota),
        _ => None,
    })
}
