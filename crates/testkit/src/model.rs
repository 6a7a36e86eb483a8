//! The reference file system: a plain tree in memory with POSIX semantics, as the superuser sees it.
//!
//! It is written from the manual pages, not from the operations it judges, and knows no engine.

use std::collections::BTreeMap;

use sluice_types::{FileType, FsError, FsResult};

/// An inode of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Kind of node.
    pub kind: FileType,
    /// Names of a file; 2 + sub-directories of a directory.
    pub nlink: u32,
    /// Entries of a directory.
    pub entries: BTreeMap<String, u64>,
}

/// A tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// All inodes, by number; the root is 1.
    pub inodes: BTreeMap<u64, Inode>,
}

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

/// A directory and a name in it.
pub type Place<'p> = (u64, &'p str);

impl Default for Model {
    fn default() -> Self {
        let root = Inode { kind: FileType::Dir, nlink: 2, entries: BTreeMap::new() };
        Self { inodes: BTreeMap::from([(1, root)]) }
    }
}

impl Model {
    fn dir(&self, ino: u64) -> FsResult<&Inode> {
        let inode = self.inodes.get(&ino).ok_or(FsError::NotFound)?;
        if inode.kind == FileType::Dir { Ok(inode) } else { Err(FsError::NotDir) }
    }

    /// What a name stands for.
    pub fn lookup(&self, (dir, name): Place<'_>) -> FsResult<u64> {
        self.dir(dir)?.entries.get(name).copied().ok_or(FsError::NotFound)
    }

    fn is_dir(&self, ino: u64) -> bool {
        self.inodes[&ino].kind == FileType::Dir
    }

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

    fn leave(&mut self, (dir, name): Place<'_>) {
        let ino = self.inodes.get_mut(&dir).unwrap().entries.remove(name).unwrap();
        if self.is_dir(ino) {
            self.links(dir, -1);
        }
    }

    /// Takes one name off a node that has been left; the last takes the node.
    fn drop_link(&mut self, ino: u64) {
        self.links(ino, -1);
        if self.is_dir(ino) || self.inodes[&ino].nlink == 0 {
            self.inodes.remove(&ino);
        }
    }

    /// Whether `ino` is `dir` or lies above it.
    fn is_above(&self, ino: u64, dir: u64) -> bool {
        ino == dir
            || self.inodes[&ino]
                .entries
                .values()
                .any(|child| self.is_dir(*child) && self.is_above(*child, dir))
    }

    /// creat, mkdir, mknod, symlink.
    pub fn create(&mut self, at: Place<'_>, ino: u64, kind: FileType) -> FsResult<()> {
        match self.lookup(at) {
            Ok(_) => Err(FsError::Exists),
            Err(FsError::NotFound) if self.inodes.contains_key(&at.0) => {
                let nlink = if kind == FileType::Dir { 2 } else { 1 };
                self.inodes.insert(ino, Inode { kind, nlink, entries: BTreeMap::new() });
                self.enter(at, ino);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// link.
    pub fn link(&mut self, ino: u64, at: Place<'_>) -> FsResult<()> {
        self.dir(at.0)?;
        let inode = self.inodes.get(&ino).ok_or(FsError::NotFound)?;
        if inode.kind == FileType::Dir {
            return Err(FsError::Perm);
        }
        if self.lookup(at).is_ok() {
            return Err(FsError::Exists);
        }
        self.links(ino, 1);
        self.enter(at, ino);
        Ok(())
    }

    /// unlink.
    pub fn unlink(&mut self, at: Place<'_>) -> FsResult<()> {
        let ino = self.lookup(at)?;
        if self.is_dir(ino) {
            return Err(FsError::IsDir);
        }
        self.leave(at);
        self.drop_link(ino);
        Ok(())
    }

    /// rmdir.
    pub fn rmdir(&mut self, at: Place<'_>) -> FsResult<()> {
        let ino = self.lookup(at)?;
        if !self.dir(ino)?.entries.is_empty() {
            return Err(FsError::NotEmpty);
        }
        self.leave(at);
        self.drop_link(ino);
        Ok(())
    }

    /// rename, renameat2.
    pub fn rename(&mut self, from: Place<'_>, to: Place<'_>, replace: Replace) -> FsResult<()> {
        self.dir(from.0)?;
        self.dir(to.0)?;
        let moved = self.lookup(from)?;
        let there = self.lookup(to).ok();
        match (replace, there) {
            (Replace::No, Some(_)) => return Err(FsError::Exists),
            (Replace::Exchange, None) => return Err(FsError::NotFound),
            _ => {}
        }
        if there == Some(moved) {
            return Ok(());
        }
        let swaps = there.filter(|_| replace == Replace::Exchange);
        if self.is_dir(moved) && self.is_above(moved, to.0)
            || swaps.is_some_and(|other| self.is_dir(other) && self.is_above(other, from.0))
        {
            return Err(FsError::Invalid);
        }
        if let Some(other) = swaps {
            self.leave(from);
            self.leave(to);
            self.enter(to, moved);
            self.enter(from, other);
            return Ok(());
        }
        if let Some(old) = there {
            match (self.is_dir(moved), self.is_dir(old)) {
                (true, false) => return Err(FsError::NotDir),
                (false, true) => return Err(FsError::IsDir),
                (true, true) if !self.dir(old)?.entries.is_empty() => return Err(FsError::NotEmpty),
                _ => {}
            }
            self.leave(to);
            self.drop_link(old);
        }
        self.leave(from);
        self.enter(to, moved);
        Ok(())
    }
}
