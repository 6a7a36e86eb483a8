//! The usage that this client knows: the last loaded totals, plus its own commits since.
//!
//! What must stay true: loading the totals drops nothing that this client committed. Commits during
//! a load are added to the loaded totals, although these may include them already: the sum may be
//! too large until the next load, but never too small.

use rustc_hash::FxHashMap;

use crate::schema::{Quota, QuotaKey};

/// Usage of the volume and under its quotas.
#[derive(Default)]
pub(crate) struct Used {
    sums: Sums,
    quotas: FxHashMap<QuotaKey, Quota>,
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

    /// A quota was seen as it is stored. It may be from before this client's last commits: what is
    /// known of quotas is a guess.
    pub(crate) fn seen(&mut self, key: QuotaKey, stored: Quota) {
        if let Some(quota) = self.quotas.get_mut(&key) {
            *quota = stored;
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
