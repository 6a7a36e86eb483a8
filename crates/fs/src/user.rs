//! The user on whose behalf a program calls.

use std::fs;

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

    /// The user that this process runs as, with its groups and its umask; a superuser if that is
    /// root.
    pub fn of_process() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let groups = rustix::process::getgroups().unwrap_or_default();
        let umask = fs::read_to_string("/proc/self/status").ok().and_then(|status| umask_in(&status));
        Self {
            groups: groups.into_iter().map(rustix::process::Gid::as_raw).collect(),
            superuser: uid == 0,
            umask: umask.unwrap_or(0o022),
            ..Self::new(uid, gid)
        }
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

/// The umask in a text of `/proc/PID/status`. To ask the kernel itself is to change it.
fn umask_in(status: &str) -> Option<u16> {
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u16::from_str_radix(line.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_the_process_has_its_ids() {
        let user = User::of_process();
        assert_eq!(user.uid, rustix::process::geteuid().as_raw());
        assert_eq!(user.superuser, user.uid == 0);
        assert_eq!(umask_in("Name:\tx\nUmask:\t0027\nState:\tR\n"), Some(0o027));
        assert_eq!(umask_in("Name:\tx\n"), None);
    }
}
