//! Quotas of directories, users and groups.

use sluice_types::{FsError, FsResult};
use sluice_vfs::{Counting, Interrupt, OpKind, Quota, QuotaKey, QuotaSet, QuotaUsage, SetLimits};

use crate::{error::Result, fs::Fs};

/// Whose quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaOwner<P> {
    /// A directory, by its path.
    Directory(P),
    /// A user, by its number.
    User(u32),
    /// A group, by its number.
    Group(u32),
}

impl<'t> QuotaOwner<&'t [u8]> {
    /// The owner that a text names: `uid:N` is a user and `gid:N` a group; all else is the path of
    /// a directory.
    ///
    /// # Errors
    /// [`FsError::Invalid`] without a number after the colon.
    pub fn parse(text: &'t [u8]) -> FsResult<Self> {
        let number = |digits: &[u8]| {
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            number.ok_or(FsError::Invalid)
        };
        Ok(match (text.strip_prefix(b"uid:"), text.strip_prefix(b"gid:")) {
            (Some(uid), _) => Self::User(number(uid)?),
            (_, Some(gid)) => Self::Group(number(gid)?),
            _ => Self::Directory(text),
        })
    }
}

impl QuotaOwner<Vec<u8>> {
    /// The text that [`QuotaOwner::parse`] takes.
    pub fn into_text(self) -> Vec<u8> {
        match self {
            Self::Directory(path) => path,
            Self::User(uid) => format!("uid:{uid}").into_bytes(),
            Self::Group(gid) => format!("gid:{gid}").into_bytes(),
        }
    }
}

/// Limits to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Bytes; 0 for no limit, `None` to keep what is set.
    pub space: Option<u64>,
    /// Inodes; 0 for no limit, `None` to keep what is set.
    pub inodes: Option<u64>,
}

impl Fs {
    /// A quota, if there is one. A directory counts only what it has itself.
    ///
    /// # Errors
    /// [`FsError::Perm`] for the quota of another user, or of a group to which the user does not
    /// belong, unless the user is a superuser.
    pub fn quota(&self, owner: QuotaOwner<&[u8]>) -> Result<Option<Quota>> {
        self.on_quota(OpKind::GetAttr, owner, |interrupt, key| {
            let own = match key {
                QuotaKey::Dir(_) => true,
                QuotaKey::User(uid) => self.caller().uid == uid,
                QuotaKey::Group(gid) => self.caller().in_group(gid),
            };
            if !own {
                self.superuser_only()?;
            }
            self.vfs().meta().quota(key, interrupt)
        })
    }

    /// The quotas that have a limit. Directories that are gone or that are not part of this view
    /// have no path, and are left out.
    ///
    /// # Errors
    /// [`FsError::Perm`] unless the user is a superuser.
    pub fn quotas(&self) -> Result<Vec<(QuotaOwner<Vec<u8>>, Quota)>> {
        let all = self.run(OpKind::GetAttr, b"", |interrupt, _| {
            self.superuser_only()?;
            self.vfs().meta().quotas(interrupt)
        })?;
        let limited = all.into_iter().filter(|(_, quota)| quota.max_space != -1 || quota.max_inodes != -1);
        let mut named = Vec::new();
        for (key, quota) in limited {
            let name = match key {
                QuotaKey::User(uid) => QuotaOwner::User(uid),
                QuotaKey::Group(gid) => QuotaOwner::Group(gid),
                QuotaKey::Dir(dir) => match self.path_of(dir) {
                    Ok(path) => QuotaOwner::Directory(path),
                    Err(error) if error.error == FsError::NotFound => continue,
                    Err(error) => return Err(error),
                },
            };
            named.push((name, quota));
        }
        Ok(named)
    }

    /// Sets limits. The first limits of a directory count what it holds: entry by entry if
    /// `strict`, else by the statistics of directories. If other clients have the volume open, this
    /// takes two of their heartbeats.
    ///
    /// # Errors
    /// [`FsError::Perm`] unless the user is a superuser, [`FsError::Invalid`] without a limit and
    /// for the user 0, [`FsError::NotDir`] if the path does not lead to a directory.
    pub fn set_quota(&self, owner: QuotaOwner<&[u8]>, limits: QuotaLimits, strict: bool) -> Result<QuotaSet> {
        self.on_quota(OpKind::SetAttr, owner, |interrupt, key| {
            self.superuser_only()?;
            let limit = |limit: Option<u64>| limit.map(i64::try_from).transpose();
            let (Ok(max_space), Ok(max_inodes)) = (limit(limits.space), limit(limits.inodes)) else {
                return Err(FsError::Invalid);
            };
            if key == QuotaKey::User(0) || (max_space, max_inodes) == (None, None) {
                return Err(FsError::Invalid);
            }
            let limits = SetLimits { key, max_space, max_inodes };
            self.vfs().meta().set_quota(limits, &counting(strict, interrupt), &|_| {})
        })
    }

    /// Removes limits. Returns whether there were any.
    ///
    /// # Errors
    /// [`FsError::Perm`] unless the user is a superuser.
    pub fn remove_quota(&self, owner: QuotaOwner<&[u8]>) -> Result<bool> {
        self.on_quota(OpKind::SetAttr, owner, |interrupt, key| {
            self.superuser_only()?;
            self.vfs().meta().delete_quota(key, interrupt)
        })
    }

    /// Counts again what a quota limits. If `repair`, a wrong record is corrected; the answer still
    /// has the record as it was.
    ///
    /// # Errors
    /// [`FsError::Perm`] unless the user is a superuser, [`FsError::NoData`] if there is no such
    /// quota.
    pub fn check_quota(&self, owner: QuotaOwner<&[u8]>, repair: bool, strict: bool) -> Result<QuotaUsage> {
        self.on_quota(OpKind::GetAttr, owner, |interrupt, key| {
            self.superuser_only()?;
            let (meta, counting) = (self.vfs().meta(), counting(strict, interrupt));
            match key {
                QuotaKey::Dir(dir) => meta.check_dir_quota(dir, repair, &counting).map(|(usage, _)| usage),
                QuotaKey::User(_) | QuotaKey::Group(_) => {
                    let owners = meta.check_owner_quotas(repair, &counting)?;
                    owners.into_iter().find(|usage| usage.key == key).ok_or(FsError::NoData)
                }
            }
        })
    }

    fn on_quota<T>(
        &self,
        kind: OpKind,
        owner: QuotaOwner<&[u8]>,
        call: impl FnOnce(&Interrupt, QuotaKey) -> FsResult<T>,
    ) -> Result<T> {
        match owner {
            QuotaOwner::User(uid) => self.run(kind, b"", |interrupt, _| call(interrupt, QuotaKey::User(uid))),
            QuotaOwner::Group(gid) => {
                self.run(kind, b"", |interrupt, _| call(interrupt, QuotaKey::Group(gid)))
            }
            QuotaOwner::Directory(path) => self.run(kind, path, |interrupt, path| {
                let (dir, _) = self.existing(interrupt, path, true)?;
                call(interrupt, QuotaKey::Dir(dir))
            }),
        }
    }

    fn superuser_only(&self) -> FsResult<()> {
        if self.caller().is_privileged() { Ok(()) } else { Err(FsError::Perm) }
    }
}

fn counting(strict: bool, interrupt: &Interrupt) -> Counting<'_> {
    Counting { strict, interrupt, progress: &|_| {} }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_read_from_their_texts() {
        let all = [
            (QuotaOwner::User(7), "uid:7"),
            (QuotaOwner::Group(u32::MAX), "gid:4294967295"),
            (QuotaOwner::Directory("/uid:7".into()), "/uid:7"),
        ];
        for (owner, text) in all {
            let found = match QuotaOwner::parse(text.as_bytes()) {
                Ok(QuotaOwner::Directory(path)) => QuotaOwner::Directory(path.to_vec()),
                Ok(QuotaOwner::User(uid)) => QuotaOwner::User(uid),
                Ok(QuotaOwner::Group(gid)) => QuotaOwner::Group(gid),
                Err(error) => panic!("{text}: {error}"),
            };
            assert_eq!((&found, found.clone().into_text()), (&owner, text.into()));
        }
        for wrong in ["uid:", "gid:-1", "uid:4294967296"] {
            assert_eq!(QuotaOwner::parse(wrong.as_bytes()), Err(FsError::Invalid), "{wrong}");
        }
    }
}
