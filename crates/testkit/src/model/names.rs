//! Calls that change names.

use std::collections::BTreeMap;

use sluice_types::{Caller, FileType, FsError};

use super::{Answer, Faults, Inode, Model, Place, WRITE};

/// What a rename does when the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Replaces it.
    Yes,
    /// Fails.
    No,
    /// Swaps both.
    Exchange,
}

impl Model {
    fn links(&mut self, ino: u64, by: i32) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.nlink = inode.nlink.saturating_add_signed(by);
        }
    }

    /// Enters a name for `ino`, and counts `..` if it is a directory.
    fn enter(&mut self, (dir, name): Place<'_>, ino: u64) {
        if self.is_dir(ino) {
            self.links(dir, 1);
        }
        self.inodes.get_mut(&dir).unwrap().entries.insert(name.into(), ino);
    }

    fn leave(&mut self, (dir, name): Place<'_>) -> u64 {
        let ino = self.inodes.get_mut(&dir).unwrap().entries.remove(name).unwrap();
        if self.is_dir(ino) {
            self.links(dir, -1);
        }
        ino
    }

    /// Takes a name away for good: the node goes to the trash under it, or loses a link; the last
    /// takes the node.
    fn remove(&mut self, at: Place<'_>) {
        let ino = self.leave(at);
        if let Some(trash) = &mut self.trash {
            let name = format!("{}-{ino}-{}", at.0, at.1);
            if let std::collections::btree_map::Entry::Vacant(free) = trash.entry(name) {
                free.insert(ino);
                return;
            }
        }
        self.links(ino, -1);
        if self.is_dir(ino) || self.inodes[&ino].nlink == 0 {
            self.inodes.remove(&ino);
        }
    }

    /// Whether `ino` is `dir` or lies above it.
    fn is_above(&self, ino: u64, dir: u64) -> bool {
        ino == dir || self.inodes[&ino].entries.values().any(|child| self.is_above(*child, dir))
    }

    /// creat, mkdir, mknod, symlink: a node of a kind and a mode, from which the umask takes bits.
    pub fn create(
        &mut self,
        at: Place<'_>,
        ino: u64,
        (kind, mode, umask): (FileType, u16, u16),
        who: &Caller,
    ) -> Answer {
        let mut faults = Faults::default();
        self.check_dir(at.0, who, &mut faults);
        faults.on(self.lookup(at).is_some(), [FsError::Exists]);
        faults.answer()?;
        let (nlink, length) = match kind {
            FileType::Dir => (2, 4096),
            FileType::Symlink => (1, 6),
            _ => (1, 0),
        };
        let (entries, xattrs) = (BTreeMap::new(), BTreeMap::new());
        let mut node = Inode { kind, mode, uid: who.uid, gid: who.gid, nlink, length, entries, xattrs };
        let parent = &self.inodes[&at.0];
        if parent.mode & 0o2000 != 0 {
            node.gid = parent.gid;
            if kind == FileType::Dir {
                node.mode |= 0o2000;
            } else if node.mode & 0o010 != 0 && !Self::is_root(who) && !who.in_group(node.gid) {
                node.mode &= !0o2000;
            }
        }
        node.mode &= !umask;
        self.inodes.insert(ino, node);
        self.enter(at, ino);
        Ok(())
    }

    /// link.
    pub fn link(&mut self, ino: u64, at: Place<'_>, who: &Caller) -> Answer {
        let mut faults = Faults::default();
        self.check_dir(at.0, who, &mut faults);
        faults.on(!self.is_live(ino), [FsError::NotFound]);
        faults.on(self.is_dir(ino), [FsError::Perm]);
        faults.on(self.lookup(at).is_some(), [FsError::Exists]);
        faults.answer()?;
        self.links(ino, 1);
        self.enter(at, ino);
        Ok(())
    }

    /// unlink.
    pub fn unlink(&mut self, at: Place<'_>, who: &Caller) -> Answer {
        let mut faults = Faults::default();
        self.check_dir(at.0, who, &mut faults);
        match self.lookup(at) {
            None => faults.on(true, [FsError::NotFound]),
            Some(ino) => {
                faults.on(self.is_dir(ino), [FsError::IsDir]);
                self.check_sticky(at.0, ino, who, &mut faults);
            }
        }
        faults.answer()?;
        self.remove(at);
        Ok(())
    }

    /// rmdir.
    pub fn rmdir(&mut self, at: Place<'_>, who: &Caller) -> Answer {
        let mut faults = Faults::default();
        self.check_dir(at.0, who, &mut faults);
        match self.lookup(at) {
            None => faults.on(true, [FsError::NotFound]),
            Some(ino) => {
                faults.on(!self.is_dir(ino), [FsError::NotDir]);
                faults.on(!self.inodes[&ino].entries.is_empty(), [FsError::NotEmpty]);
                self.check_sticky(at.0, ino, who, &mut faults);
            }
        }
        faults.answer()?;
        self.remove(at);
        Ok(())
    }

    /// rename, renameat2.
    pub fn rename(&mut self, from: Place<'_>, to: Place<'_>, replace: Replace, who: &Caller) -> Answer {
        let mut faults = Faults::default();
        self.check_dir(from.0, who, &mut faults);
        self.check_dir(to.0, who, &mut faults);
        let there = self.lookup(to);
        faults.on(replace == Replace::No && there.is_some(), [FsError::Exists]);
        faults.on(replace == Replace::Exchange && there.is_none(), [FsError::NotFound]);
        let Some(moved) = self.lookup(from) else {
            faults.on(true, [FsError::NotFound]);
            return faults.answer();
        };
        self.check_sticky(from.0, moved, who, &mut faults);
        if there == Some(moved) {
            return faults.answer();
        }
        self.check_moved(moved, from.0, to.0, who, &mut faults);
        if let Some(old) = there {
            self.check_sticky(to.0, old, who, &mut faults);
            if replace == Replace::Exchange {
                self.check_moved(old, to.0, from.0, who, &mut faults);
            } else {
                faults.on(self.is_dir(moved) && !self.is_dir(old), [FsError::NotDir]);
                faults.on(!self.is_dir(moved) && self.is_dir(old), [FsError::IsDir]);
                faults.on(!self.inodes[&old].entries.is_empty(), [FsError::NotEmpty]);
            }
        }
        faults.answer()?;
        match (replace, there) {
            (Replace::Exchange, Some(other)) => {
                self.leave(from);
                self.leave(to);
                self.enter(to, moved);
                self.enter(from, other);
            }
            (_, there) => {
                if there.is_some() {
                    self.remove(to);
                }
                self.leave(from);
                self.enter(to, moved);
            }
        }
        Ok(())
    }

    /// A directory goes nowhere below itself, and a new `..` is a change of the directory.
    fn check_moved(&self, ino: u64, from: u64, to: u64, who: &Caller, faults: &mut Faults) {
        if self.is_dir(ino) && from != to {
            faults.on(self.is_above(ino, to), [FsError::Invalid]);
            faults.on(!self.may(ino, who, WRITE), [FsError::Access]);
        }
    }
}
