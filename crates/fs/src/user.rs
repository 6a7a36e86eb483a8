//! The user on whose behalf a program calls.

use sluice_types::Caller;

/// A user, as the program asserts it. Nothing authenticates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group of the files that the user makes.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Whether permissions are denied in nothing. Files that a superuser makes belong to `uid` like
    /// those of others. Root is not one by its number alone.
    pub superuser: bool,
    /// Bits that are cleared in the modes of new files and directories, unless their directory has
    /// a default ACL.
    pub umask: u16,
}

impl User {
    /// A user with one group and umask 022.
    pub const fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Vec::new(), superuser: false, umask: 0o022 }
    }

    /// Root of the machine, who is a superuser.
    pub fn root() -> Self {
        Self { superuser: true, ..Self::new(0, 0) }
    }

    /// The same user with these further groups.
    #[must_use]
    pub fn with_groups(self, groups: &[u32]) -> Self {
        Self { groups: groups.to_vec(), ..self }
    }

    /// The same user with this umask.
    #[must_use]
    pub fn with_umask(self, umask: u16) -> Self {
        Self { umask: umask & 0o777, ..self }
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller {
            uid: self.uid,
            gid: self.gid,
            groups: self.groups.clone(),
            superuser: self.superuser,
            pid: std::process::id(),
            check: true,
            admitted: false,
        }
    }
}
