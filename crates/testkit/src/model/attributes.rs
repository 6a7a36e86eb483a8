//! Calls that change a node itself.

use sluice_types::{Caller, FileType, FsError};

use super::{Answer, Faults, Inode, Model, WRITE};

impl Model {
    /// A node that has a name, or the fault that it has none.
    fn live(&mut self, ino: u64) -> Result<&mut Inode, Vec<FsError>> {
        if !self.is_live(ino) {
            return Err(vec![FsError::NotFound]);
        }
        self.inodes.get_mut(&ino).ok_or_else(|| vec![FsError::NotFound])
    }

    /// chmod.
    pub fn chmod(&mut self, ino: u64, mode: u16, who: &Caller) -> Answer {
        let owns = self.owns(ino, who);
        let inode = self.live(ino)?;
        let mut faults = Faults::default();
        faults.on(!owns, [FsError::Perm]);
        faults.answer()?;
        inode.mode = mode;
        // Directories may keep the bit, and do.
        if !Self::is_root(who) && !who.in_group(inode.gid) && inode.kind != FileType::Dir {
            inode.mode &= !0o2000;
        }
        Ok(())
    }

    /// chown: a new owner, a new group, or both.
    pub fn chown(&mut self, ino: u64, uid: Option<u32>, gid: Option<u32>, who: &Caller) -> Answer {
        let (owns, root) = (self.owns(ino, who), Self::is_root(who));
        let inode = self.live(ino)?;
        let mut faults = Faults::default();
        faults.on((uid.is_some() || gid.is_some()) && !owns, [FsError::Perm]);
        faults.on(uid.is_some_and(|uid| uid != inode.uid) && !root, [FsError::Perm]);
        faults.on(gid.is_some_and(|gid| gid != inode.gid && !who.in_group(gid)) && !root, [FsError::Perm]);
        faults.answer()?;
        let foreign = !root && !who.in_group(inode.gid);
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        if (uid.is_some() || gid.is_some()) && inode.kind != FileType::Dir {
            // Without execution by the group, setgid stands for mandatory locks and stays for those
            // who belong to it.
            let setgid = if inode.mode & 0o010 != 0 || foreign { 0o2000 } else { 0 };
            inode.mode &= !(0o4000 | setgid);
        }
        Ok(())
    }

    /// truncate.
    pub fn truncate(&mut self, ino: u64, length: u64, who: &Caller) -> Answer {
        let may = self.may(ino, who, WRITE);
        let inode = self.live(ino)?;
        let mut faults = Faults::default();
        faults.on(inode.kind == FileType::Dir, [FsError::IsDir]);
        faults.on(!matches!(inode.kind, FileType::Dir | FileType::File), [FsError::Invalid]);
        faults.on(!may, [FsError::Access]);
        faults.answer()?;
        inode.length = length;
        Ok(())
    }

    /// pwrite up to `end`, through a handle that was opened before.
    pub fn write(&mut self, ino: u64, end: u64) -> Answer {
        let inode = self.live(ino)?;
        let mut faults = Faults::default();
        faults.on(inode.kind == FileType::Dir, [FsError::IsDir]);
        faults.on(!matches!(inode.kind, FileType::Dir | FileType::File), [FsError::Invalid]);
        faults.answer()?;
        inode.length = inode.length.max(end);
        Ok(())
    }

    /// setxattr; `exists` says whether the attribute must be there already, or must not.
    pub fn set_xattr(
        &mut self,
        ino: u64,
        (name, value): (&str, &[u8]),
        exists: Option<bool>,
        who: &Caller,
    ) -> Answer {
        let mut faults = self.check_xattr(ino, name, who)?;
        let inode = self.live(ino)?;
        let found = inode.xattrs.contains_key(name);
        faults.on(exists == Some(true) && !found, [FsError::NoData]);
        faults.on(exists == Some(false) && found, [FsError::Exists]);
        faults.answer()?;
        inode.xattrs.insert(name.into(), value.into());
        Ok(())
    }

    /// removexattr.
    pub fn remove_xattr(&mut self, ino: u64, name: &str, who: &Caller) -> Answer {
        let mut faults = self.check_xattr(ino, name, who)?;
        let inode = self.live(ino)?;
        faults.on(!inode.xattrs.contains_key(name), [FsError::NoData]);
        faults.answer()?;
        inode.xattrs.remove(name);
        Ok(())
    }

    /// A user's attributes are part of the content, all others belong to the owner.
    fn check_xattr(&mut self, ino: u64, name: &str, who: &Caller) -> Result<Faults, Vec<FsError>> {
        let (may, owns) = (self.may(ino, who, WRITE), self.owns(ino, who));
        self.live(ino)?;
        let mut faults = Faults::default();
        let user = name.starts_with("user.");
        faults.on(user && !may, [FsError::Access]);
        faults.on(!user && !owns, [FsError::Perm]);
        Ok(faults)
    }
}
