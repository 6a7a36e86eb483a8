//! Facts about the volume that operations learn.

use std::sync::Arc;

use sluice_types::Ino;

use crate::schema::{AclRule, Quota, QuotaKey};

/// A fact that an operation learned. It stays true whatever the outcome of the commit. The parent
/// of a directory is an exception: it is true only if the commit succeeds.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    /// The rule of an ACL id.
    Acl(u32, Arc<AclRule>),
    /// The directory of the trash for an hour since the epoch.
    TrashHour(i64, Ino),
    /// A directory, and its parent.
    Parent(Ino, Ino),
    /// A quota as it is stored.
    Quota(QuotaKey, Quota),
}

impl Fact {
    /// The directory and its parent, if this is such a fact.
    pub(crate) fn place(&self) -> Option<(Ino, Ino)> {
        match self {
            Self::Parent(dir, parent) => Some((*dir, *parent)),
            _ => None,
        }
    }
}
