//! Facts about the volume that operations find out.

use std::sync::Arc;

use sluice_types::Ino;

use crate::schema::{AclRule, Quota, QuotaKey};

/// What an operation found out. It stays true whatever becomes of the commit, but for where
/// directories lie: that is so only if the commit says so.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    /// The rule of an ACL id.
    Acl(u32, Arc<AclRule>),
    /// The hour directory of the trash of that name.
    TrashHour(String, Ino),
    /// A directory, and the one that it lay in.
    Above(Ino, Ino),
    /// A quota as it is stored.
    Quota(QuotaKey, Quota),
}

impl Fact {
    /// A directory, and where it lies.
    pub(crate) fn place(&self) -> Option<(Ino, Ino)> {
        match self {
            Self::Above(dir, parent) => Some((*dir, *parent)),
            _ => None,
        }
    }
}
