//! Whole trees: remove, clone and count them.
//!
//! This module has no special code for batches. Each function walks a tree and submits operations
//! on single entries, many at a time.

mod clone;
mod remove;
mod rename;
mod summary;
mod usage;

use sluice_types::{Access, Attr, Caller, FsError, FsResult, Ino};

pub use self::{
    clone::{CloneTree, Ready},
    remove::Removed,
    summary::{Denied, Summary, SummaryNode},
};
use crate::{
    batch::Interrupt,
    meta::Meta,
    ops::acl::{AclKind, GetAcl},
};

/// How far a walk has come, called with the number of entries done since the last call.
pub type Progress<'p> = &'p (dyn Fn(u64) + Sync);

impl Meta {
    /// Checks what the mode and the ACL of a node allow to a caller. No trip if it has no ACL, at
    /// most two if it has.
    ///
    /// # Errors
    /// [`FsError::Access`] if they do not allow all of `access`.
    pub fn check_access(
        &self,
        ino: Ino,
        attr: &Attr,
        caller: &Caller,
        access: Access,
        interrupt: &Interrupt,
    ) -> FsResult<()> {
        // The group bits are the mask of an ACL: if they are empty it cannot grant anything.
        if caller.is_privileged() || attr.access_acl == 0 || attr.mode & 0o070 == 0 {
            return caller.check_mode(attr, access);
        }
        match self.read(&GetAcl { ino, kind: AclKind::Access }, interrupt) {
            Ok(rule) => rule.check(attr, caller, access),
            // It was removed just now.
            Err(FsError::NoData) => caller.check_mode(attr, access),
            Err(error) => Err(error),
        }
    }

    /// Whether mode and ACL of a node allow that much; not what is gone meanwhile.
    pub fn may_access(
        &self,
        ino: Ino,
        attr: &Attr,
        caller: &Caller,
        access: Access,
        interrupt: &Interrupt,
    ) -> FsResult<bool> {
        match self.check_access(ino, attr, caller, access, interrupt) {
            Ok(()) => Ok(true),
            Err(FsError::Access | FsError::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
