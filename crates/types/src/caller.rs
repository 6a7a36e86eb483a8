//! On whose behalf an operation runs.

use crate::{Attr, FsError, FsResult};

/// Permission bits to check, as in `access(2)`: `READ | WRITE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub u8);

impl Access {
    /// May read the content or list the directory.
    pub const READ: Self = Self(4);
    /// May change the content or the entries.
    pub const WRITE: Self = Self(2);
    /// May run the file or pass through the directory.
    pub const EXEC: Self = Self(1);
    /// To change the entries of a directory needs both write and search permission.
    pub const CHANGE: Self = Self(3);
}

/// The process on whose behalf an operation runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups (may repeat `gid`).
    pub groups: Vec<u32>,
    /// Whether permissions are denied to the caller in nothing. On a machine this is root. A
    /// program that asserts its users decides it itself.
    pub superuser: bool,
    /// Process id, 0 if unknown.
    pub pid: u32,
    /// Whether operations check permissions themselves. Off for the client's own work (background
    /// jobs, tools).
    pub check: bool,
    /// Whether the kernel has checked modes and ACLs already, because it knows groups that the
    /// server cannot find out. Operations still check what the kernel does not (owners, flags, the
    /// trash).
    pub admitted: bool,
}

impl Caller {
    /// The client itself: root, without permission checks.
    pub const fn client() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new(), superuser: true, pid: 0, check: false, admitted: false }
    }

    /// A user of this machine with one group, whose permissions are checked. Root is the
    /// superuser.
    pub const fn user(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Vec::new(), superuser: uid == 0, pid: 0, check: true, admitted: false }
    }

    /// Whether nothing is denied to the caller: the superuser, and the client itself. A change by
    /// other callers clears setuid and setgid.
    pub const fn is_privileged(&self) -> bool {
        !self.check || self.superuser
    }

    /// Whether modes and ACLs are not checked at all.
    pub const fn passes_modes(&self) -> bool {
        self.is_privileged() || self.admitted
    }

    /// Whether the caller belongs to `gid`, as far as is known.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Checks the mode bits of `attr`. ACLs are checked by the metadata crate, which knows the
    /// rules.
    ///
    /// # Errors
    /// [`FsError::Access`] if the caller lacks one of the bits.
    pub fn check_mode(&self, attr: &Attr, access: Access) -> FsResult<()> {
        if self.passes_modes() {
            return Ok(());
        }
        let shift = if self.uid == attr.uid {
            6
        } else if self.in_group(attr.gid) {
            3
        } else {
            0
        };
        let granted = (attr.mode >> shift) as u8 & 7;
        if granted & access.0 == access.0 { Ok(()) } else { Err(FsError::Access) }
    }
}
