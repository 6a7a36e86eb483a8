//! The usage that this client knows: the last loaded totals, plus its own commits since.
//!
//! What must stay true: loading the totals drops nothing that this client committed. Commits during
//! a load are added to the loaded totals, although these may include them already: the sum may be
//! too large until the next load, but never too small.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use sluice_types::wait;

use crate::schema::{Quota, QuotaKey};

/// How long what was seen of a quota is compared with its limits.
const MOMENT: Duration = Duration::from_secs(1);

/// Usage of the volume and under its quotas.
#[derive(Default)]
pub(crate) struct Used {
    sums: Sums,
    quotas: FxHashMap<QuotaKey, Quota>,
    /// When each was last seen, or compared by a commit.
    seen: FxHashMap<QuotaKey, Instant>,
    /// What this client committed since loading began, if it is under way.
    meanwhile: Option<(Sums, FxHashMap<QuotaKey, Sums>)>,
}

/// Bytes and inodes.
#[derive(Clone, Copy, Default)]
struct Sums(i64, i64);

impl Sums {
    fn add(&mut self, space: i64, inodes: i64) {
        self.0 += space;
        self.1 += inodes;
    }
}

impl Used {
    /// Bytes and inodes of the volume.
    pub(crate) fn total(&self) -> (i64, i64) {
        (self.sums.0, self.sums.1)
    }

    pub(crate) fn quota(&self, key: QuotaKey) -> Option<Quota> {
        self.quotas.get(&key).copied()
    }

    /// Whether it was seen a moment ago.
    pub(crate) fn is_fresh(&self, key: QuotaKey) -> bool {
        self.seen.get(&key).is_some_and(|seen| wait::now().saturating_duration_since(*seen) < MOMENT)
    }

    /// A quota was seen as it is stored. Less than is known may be from before this client's last
    /// commits: rather too much than too little.
    pub(crate) fn seen(&mut self, key: QuotaKey, stored: Quota) {
        if let Some(quota) = self.quotas.get_mut(&key) {
            let (space, inodes) = (quota.used_space, quota.used_inodes);
            *quota = stored;
            quota.used_space = quota.used_space.max(space);
            quota.used_inodes = quota.used_inodes.max(inodes);
            self.seen.insert(key, wait::now());
        }
    }

    /// A commit of this client found a quota so, and has charged it.
    pub(crate) fn compared(&mut self, key: QuotaKey, stored: Quota) {
        if let Some(quota) = self.quotas.get_mut(&key) {
            *quota = stored;
            self.seen.insert(key, wait::now());
        }
    }

    /// Whether any directory has a quota.
    pub(crate) fn limits_dirs(&self) -> bool {
        self.quotas.keys().any(|key| matches!(key, QuotaKey::Dir(_)))
    }

    /// This client uses so much more.
    pub(crate) fn add(&mut self, space: i64, inodes: i64) {
        self.sums.add(space, inodes);
        if let Some((sums, _)) = &mut self.meanwhile {
            sums.add(space, inodes);
        }
    }

    /// This client uses so much more under a quota.
    pub(crate) fn charge(&mut self, key: QuotaKey, space: i64, inodes: i64) {
        if let Some((_, quotas)) = &mut self.meanwhile {
            quotas.entry(key).or_default().add(space, inodes);
        }
        if let Some(quota) = self.quotas.get_mut(&key) {
            quota.charge(space, inodes);
        }
    }

    /// To be called before what is in use is asked for.
    pub(crate) fn begin_loading(&mut self) {
        self.meanwhile = Some(Default::default());
    }

    /// Takes in what the engine said. Of users and groups only limits matter.
    pub(crate) fn loaded(
        &mut self,
        (space, inodes): (i64, i64),
        quotas: impl Iterator<Item = (QuotaKey, Quota)>,
    ) {
        let (sums, charged) = self.meanwhile.take().unwrap_or_default();
        self.sums = Sums(space + sums.0, inodes + sums.1);
        let limits = |(key, quota): &(QuotaKey, Quota)| {
            matches!(key, QuotaKey::Dir(_)) || quota.max_space > 0 || quota.max_inodes > 0
        };
        self.quotas = quotas.filter(limits).collect();
        let now = wait::now();
        self.seen = self.quotas.keys().map(|key| (*key, now)).collect();
        for (key, Sums(space, inodes)) in charged {
            if let Some(quota) = self.quotas.get_mut(&key) {
                quota.charge(space, inodes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_types::Ino;

    use super::*;

    #[test]
    fn what_is_committed_while_usage_is_loaded_is_not_forgotten() {
        let (dir, user) = (QuotaKey::Dir(Ino(5)), QuotaKey::User(7));
        let quota = |used_inodes| Quota { max_inodes: 10, used_inodes, ..Quota::UNLIMITED };
        let mut used = Used::default();
        used.begin_loading();
        used.loaded((4096, 1), [(dir, quota(1)), (user, quota(1))].into_iter());
        used.add(4096, 1);
        used.charge(dir, 4096, 1);
        used.begin_loading();
        used.add(4096, 1);
        for key in [dir, user] {
            used.charge(key, 4096, 1);
        }
        let limited = |used: &Used, key| used.quota(key).map(|quota| quota.used_inodes);
        assert_eq!((used.total(), limited(&used, dir)), ((12288, 3), Some(3)));
        used.loaded((8192, 2), [(dir, quota(2)), (user, quota(1))].into_iter());
        assert_eq!((used.total(), limited(&used, dir), limited(&used, user)), ((12288, 3), Some(3), Some(2)));
        let loads = |used: &mut Used| used.loaded((12288, 3), [(user, Quota::UNLIMITED)].into_iter());
        loads(&mut used);
        assert_eq!((used.total(), used.limits_dirs()), ((12288, 3), false));
        assert_eq!(limited(&used, user), None, "it has no limit any more");
    }
}
