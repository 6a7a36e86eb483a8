//! Whole trees, and files made of other files.

use std::ops::Range;

use sluice_types::{Access, FsError, Ino, wait};
use sluice_vfs::{CloneOptions, Denied, OpKind, Summary};

use crate::{
    error::{Error, Result},
    fs::Fs,
    open_options::OpenOptions,
};

/// How a tree is cloned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clone {
    /// Whether owner, mode and times are kept; the owner only if it is the user, unless that is a
    /// superuser.
    pub preserve: bool,
}

impl Fs {
    /// Removes what is at a path and all below it. If the volume has a trash, it goes there, unless
    /// `skip_trash` says otherwise.
    ///
    /// # Errors
    /// The first one: what could be removed before it is gone. [`FsError::Perm`] if anybody but a
    /// superuser passes the trash by.
    pub fn remove_all(&self, path: impl AsRef<[u8]>, skip_trash: bool) -> Result<()> {
        self.run(OpKind::Rmdir, path.as_ref(), |interrupt, path| {
            if skip_trash && !self.caller().is_privileged() {
                return Err(FsError::Perm);
            }
            let place = self.place(interrupt, path)?;
            let name = place.name(|_| FsError::Busy)?;
            // That the directory may be searched is checked first: it says what exists.
            let (_, attr) = self.look(interrupt, place.dir, name)?.ok_or(FsError::NotFound)?;
            if place.slash && !attr.is_dir() {
                return Err(FsError::NotDir);
            }
            let at = (place.dir, &name[..]);
            wait::apart(|| self.vfs().remove_tree(self.caller(), interrupt, at, skip_trash, &|_| {}))
        })
    }

    /// Clones what is at a path, and all below it, without a copy of data.
    ///
    /// # Errors
    /// [`FsError::Exists`] if there is something at `to`, [`FsError::Access`] if the user may not
    /// read all of it.
    pub fn clone_tree(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>, how: Clone) -> Result<Ino> {
        let to = to.as_ref();
        self.run(OpKind::Mkdir, from.as_ref(), |interrupt, from| {
            let (source, _) = self.existing(interrupt, from, false)?;
            let place = self.place(interrupt, to)?;
            let name = place.name(|_| FsError::Exists)?;
            let options = CloneOptions { preserve: how.preserve, umask: self.umask() };
            let at = (place.dir, &name[..]);
            let clone = || self.vfs().clone_tree(self.caller(), interrupt, source, at, options, &|_| {});
            wait::apart(clone).map(|(ino, _)| ino)
        })
    }

    /// Counts what is at a path and all below it. Directories that the user may not list are left
    /// out and returned beside the sum. Data that is not stored yet does not count.
    pub fn summary(&self, path: impl AsRef<[u8]>) -> Result<(Summary, Denied)> {
        self.run(OpKind::Readdir, path.as_ref(), |interrupt, path| {
            let (ino, _) = self.existing(interrupt, path, true)?;
            let (node, denied) = self.vfs().summarize(self.caller(), interrupt, ino, (0, 0), &|_| {})?;
            Ok((node.total, denied))
        })
    }

    /// Divides a file into parts of `part` bytes, and names the machines that cache the most bytes
    /// of each part in the cache group: at most three, the one with the most bytes first. The parts
    /// are those that `range` touches, up to the end of the file; without a cache group, no machine
    /// is named.
    ///
    /// # Errors
    /// [`FsError::Access`] if the user may not read the file.
    pub fn block_hosts(
        &self,
        path: impl AsRef<[u8]>,
        range: &Range<u64>,
        part: u64,
    ) -> Result<Vec<Vec<String>>> {
        self.run(OpKind::GetAttr, path.as_ref(), |interrupt, path| {
            let (ino, attr) = self.existing(interrupt, path, true)?;
            self.check(interrupt, (ino, &attr), Access::READ)?;
            let range = range.start..range.end.min(attr.length);
            self.vfs().block_hosts(interrupt, ino, &range, part)
        })
    }

    /// Appends files to a file, without a copy of data, and removes them.
    ///
    /// # Errors
    /// If one cannot be appended, the file is as it was. If one cannot be removed afterwards, it
    /// and those after it are still there: [`FsError::Busy`] if it grew meanwhile.
    /// [`FsError::Invalid`] if a file comes twice, or by a symbolic link.
    pub fn concat<P: AsRef<[u8]>>(&self, target: impl AsRef<[u8]>, sources: &[P]) -> Result<()> {
        let path = target.as_ref();
        let target = self.open_with(path, OpenOptions::new().write(true))?;
        let mut opened = Vec::with_capacity(sources.len());
        for source in sources {
            let source = self.open(source)?;
            let twice = |other: &crate::file::File| other.ino() == source.ino();
            if twice(&target) || opened.iter().any(twice) {
                return Err(Error::new(source.path(), FsError::Invalid));
            }
            opened.push(source);
        }
        for source in &opened {
            self.may_remove(source.path(), source.ino())?;
        }
        let copied = target.append_files(&opened)?;
        target.close()?;
        for (source, length) in opened.into_iter().zip(copied) {
            if source.grew(length)? {
                return Err(Error::new(source.path(), FsError::Busy));
            }
            let (path, ino) = (source.path().to_vec(), source.ino());
            source.close()?;
            // What others have moved there meanwhile stays.
            self.unlink_node(&path, Some(ino))?;
        }
        Ok(())
    }

    /// Fails unless a name stands for this file itself, and the user may change its directory.
    fn may_remove(&self, path: &[u8], file: Ino) -> Result<()> {
        self.run(OpKind::GetAttr, path, |interrupt, path| {
            let resolved = self.resolve(interrupt, path, false)?;
            if resolved.node.is_none_or(|(ino, _)| ino != file) {
                return Err(FsError::Invalid);
            }
            let attr = self.vfs().walk(self.caller(), interrupt, resolved.dir, &[])?.start;
            self.check(interrupt, (resolved.dir, &attr), Access::CHANGE)
        })
    }
}
