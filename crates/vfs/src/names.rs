//! Operations that create, remove or move a name.
//!
//! What must stay true: the attributes that a commit produced for a directory are kept, because the
//! kernel requests them next. A file that lost its last name while it is open here exists until its
//! last close.

use bytes::Bytes;
use sluice_meta::{
    EffectKind, Interrupt,
    op::At,
    ops::{
        create::{Create, Made},
        link::Link,
        removal::RemovedNode,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        sustained::DropSustained,
        unlink::Unlink,
    },
};
use sluice_types::{Caller, FileType, FsError, FsResult, Ino, Name};

use crate::{entry::Entry, paths::Dir, vfs::Vfs};

/// Longest target of a symbolic link in bytes.
const MAX_TARGET: usize = 4096;

/// A node to create.
#[derive(Clone, Copy, Debug)]
pub struct NewNode {
    /// Kind.
    pub kind: FileType,
    /// Permission bits.
    pub mode: u16,
    /// Bits that are cleared, unless the directory has a default ACL.
    pub umask: u16,
    /// Device number of device nodes.
    pub rdev: u32,
}

impl Vfs {
    /// Creates a node without opening it: `mkdir` and `mknod`. Two trips.
    ///
    /// # Errors
    /// [`FsError::Again`] if `dir` is a guess ([`Self::guess`]) and wrong.
    pub fn make(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        dir: impl Into<Dir>,
        name: &[u8],
        node: NewNode,
    ) -> FsResult<Entry> {
        if let Some(entry) = self.made_before(interrupt, EffectKind::Create)? {
            return Ok(entry);
        }
        let ino = self.new_ino(interrupt)?;
        self.make_as(caller, interrupt, dir.into(), name, (ino, node), None)
    }

    /// Makes a symbolic link. Two trips.
    pub fn symlink(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        dir: Ino,
        name: &[u8],
        target: &[u8],
    ) -> FsResult<Entry> {
        match target.len() {
            0 => return Err(FsError::NotFound),
            len if len > MAX_TARGET => return Err(FsError::NameTooLong),
            _ if target.contains(&0) => return Err(FsError::Invalid),
            _ => {}
        }
        if let Some(entry) = self.made_before(interrupt, EffectKind::Create)? {
            return Ok(entry);
        }
        let node = NewNode { kind: FileType::Symlink, mode: 0o777, umask: 0, rdev: 0 };
        let ino = self.new_ino(interrupt)?;
        self.make_as(caller, interrupt, dir.into(), name, (ino, node), Some(Bytes::copy_from_slice(target)))
    }

    pub(crate) fn new_ino(&self, interrupt: &Interrupt) -> FsResult<Ino> {
        self.writable()?;
        self.meta.new_ino(interrupt)
    }

    pub(crate) fn make_as(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        place: Dir,
        name: &[u8],
        (ino, node): (Ino, NewNode),
        target: Option<Bytes>,
    ) -> FsResult<Entry> {
        let dir = place.ino;
        let at = At::new(dir, self.new_name(dir, name)?);
        let NewNode { kind, mode, umask, rdev } = node;
        let umask = self.umask(umask);
        let create = Create { at: at.clone(), ino, kind, mode, umask, rdev, target, caller: caller.clone() };
        let begun = self.cache().moment();
        let Made { attr, dir: parent } = self.run_in([place], create, interrupt)?;
        self.cache().entry_changed(dir, &parent, begun);
        Ok(self.cache().looked_up(dir, &at.name, begun, self.entry(ino, attr)))
    }

    /// Adds a name to a node. Two trips.
    pub fn link(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        ino: Ino,
        dir: Ino,
        name: &[u8],
    ) -> FsResult<Entry> {
        if ino.is_internal() {
            return Err(FsError::Perm);
        }
        if let Some(entry) = self.made_before(interrupt, EffectKind::Link)? {
            return Ok(entry);
        }
        let at = At::new(dir, self.new_name(dir, name)?);
        let begun = self.cache().moment();
        let link = Link { ino, at: at.clone(), caller: caller.clone() };
        let Made { attr, dir: parent } = self.meta.run(link, interrupt)?;
        self.cache().renamed(ino, &attr);
        self.cache().entry_changed(dir, &parent, begun);
        let shown = self.shown(ino, attr, begun, interrupt);
        Ok(self.cache().looked_up(dir, &at.name, begun, self.entry(ino, shown)))
    }

    /// Removes a name of a node that is no directory. Two trips.
    ///
    /// # Errors
    /// [`FsError::Again`] if `dir` is a guess ([`Self::guess`]) and wrong.
    pub fn unlink(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        dir: impl Into<Dir>,
        name: &[u8],
    ) -> FsResult<()> {
        self.unlink_node(caller, interrupt, dir.into(), name, None)
    }

    /// [`Self::unlink`], of a name that must stand for `only`. Another node stays, as if there was
    /// none of this name.
    pub fn unlink_node(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        place: Dir,
        name: &[u8],
        only: Option<Ino>,
    ) -> FsResult<()> {
        if self.was_done(interrupt, EffectKind::Remove) {
            return Ok(());
        }
        let dir = place.ino;
        let at = At::new(dir, self.old_name(dir, name)?);
        let unlink = Unlink { at, only, skip_trash: false, caller: caller.clone() };
        let begun = self.cache().moment();
        let removed = self.run_in([place], unlink, interrupt)?;
        self.cache().entry_changed(dir, &removed.dir, begun);
        self.name_removed(removed.ino, removed.node);
        Ok(())
    }

    /// Removes an empty directory. Two trips if it was looked up recently, else three.
    pub fn rmdir(&self, caller: &Caller, interrupt: &Interrupt, dir: Ino, name: &[u8]) -> FsResult<()> {
        if self.was_done(interrupt, EffectKind::Remove) {
            return Ok(());
        }
        let at = At::new(dir, self.old_name(dir, name)?);
        let hint = self.cache().child_hint(dir, &at.name);
        let rmdir = Rmdir { at, hint, skip_trash: false, caller: caller.clone() };
        let begun = self.cache().moment();
        let removed = self.meta.run(rmdir, interrupt)?;
        self.cache().entry_changed(dir, &removed.dir, begun);
        self.name_removed(removed.ino, removed.node);
        Ok(())
    }

    /// Renames, also over an existing name, or exchanges two names. Two trips, three if it replaces
    /// a directory.
    ///
    /// # Errors
    /// [`FsError::Again`] if a directory is a guess ([`Self::guess`]), and it is wrong, or what
    /// lies below it has to be counted first.
    pub fn rename(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        from: (impl Into<Dir>, &[u8]),
        to: (impl Into<Dir>, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()> {
        if self.was_done(interrupt, EffectKind::Rename) {
            return Ok(());
        }
        let places: [Dir; 2] = [from.0.into(), to.0.into()];
        let [from_dir, to_dir] = [places[0].ino, places[1].ino];
        let from = At::new(from_dir, self.old_name(from_dir, from.1)?);
        let to = At::new(to_dir, self.new_name(to_dir, to.1)?);
        self.cache().rename_to(to_dir, &to.name);
        if let RenameMode::Exchange = mode {
            self.cache().rename_to(from_dir, &from.name);
        }
        let rename = Rename { from, to: to.clone(), mode, caller: caller.clone() };
        let begun = self.cache().moment();
        let renamed = if places.iter().any(Dir::is_guess) {
            self.run_in(places, rename, interrupt)?
        } else {
            self.meta.rename(&rename, interrupt)?
        };
        self.cache().entry_changed(from_dir, &renamed.from_dir, begun);
        self.cache().entry_changed(to_dir, &renamed.to_dir, begun);
        self.cache().renamed(renamed.ino, &renamed.attr);
        if renamed.attr.is_dir() {
            self.cache().hint(to_dir, &to.name, renamed.ino);
        }
        if let Some((ino, attr)) = renamed.exchanged {
            self.cache().renamed(ino, &attr);
        }
        if let Some((ino, node)) = renamed.replaced {
            self.name_removed(ino, node);
        }
        Ok(())
    }

    /// Work after a node lost a name.
    pub(crate) fn name_removed(&self, ino: Ino, node: RemovedNode) {
        match node {
            RemovedNode::Kept(attr) => self.cache().renamed(ino, &attr),
            RemovedNode::Sustained(attr) => {
                self.cache().renamed(ino, &attr);
                // The last handle may have been closed while the commit was under way.
                if !self.cache().unlinked(ino) {
                    self.drop_sustained(ino);
                }
            }
            RemovedNode::Deleted { file_length, attr } => {
                self.cache().removed(ino, attr);
                if let Some(length) = file_length {
                    self.jobs.queue().file(ino, length);
                }
            }
        }
    }

    /// Deletes a file without a name, after its last close here.
    pub(crate) fn drop_sustained(&self, ino: Ino) {
        let drop = DropSustained { sid: self.meta.sid(), ino, dead_before: None };
        match self.meta.run(drop, &Interrupt::never()) {
            Ok(Some(length)) => {
                self.cache().content_changed(ino);
                self.jobs.queue().file(ino, length);
            }
            // If it was opened again, a heartbeat deletes it after the close.
            Ok(None) | Err(FsError::Busy) => {}
            // The end of the session deletes it.
            Err(error) => {
                tracing::warn!(%ino, %error, "a deleted file could not be let go after its last close");
            }
        }
    }

    /// A valid name to create.
    pub(crate) fn new_name(&self, dir: Ino, name: &[u8]) -> FsResult<Name> {
        if self.internals.is_reserved(self.root(), dir, name) {
            Err(FsError::Exists)
        } else {
            Name::new(name)
        }
    }

    /// A valid name to remove.
    pub(crate) fn old_name(&self, dir: Ino, name: &[u8]) -> FsResult<Name> {
        if self.internals.is_reserved(self.root(), dir, name) { Err(FsError::Perm) } else { Name::new(name) }
    }
}
