//! Random operations of clients under quotas: every kind of operation that changes usage.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_meta::{
    Interrupt, Meta,
    engine::Scan,
    op::At,
    ops::{
        chunks::ReadChunk,
        compact::Compact,
        copy_range::CopyRange,
        create::Create,
        link::Link,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        setattr::{Changes, SetAttr},
        truncate::{Allocation, Fallocate, Truncate},
        unlink::Unlink,
        write::Write,
    },
    schema::Row,
    tree::CloneTree,
};
use sluice_types::{Caller, FileType, FsError, FsResult, Ino, Name, Rng, Slice};

use super::clients::{NOW, at, create};

/// The first number of a node here; clones get those before.
pub(super) const FIRST: u64 = 10_010;
/// Directories that are there from the beginning, and where: three trees, with others in them. All
/// may move.
pub(super) const DIRS: [(u64, u64); 6] = [
    (FIRST, 1),
    (FIRST + 1, 1),
    (FIRST + 2, 1),
    (FIRST + 3, FIRST),
    (FIRST + 4, FIRST + 1),
    (FIRST + 5, FIRST + 3),
];
/// Users and groups.
const OWNERS: u64 = 3;

/// One step of a client.
pub(super) struct Step<'a> {
    pub(super) meta: &'a Meta,
    pub(super) rng: Rng,
    /// Number of the next node.
    pub(super) next: u64,
}

impl Step<'_> {
    fn dir(&mut self) -> u64 {
        if self.rng.below(5) == 0 { 1 } else { FIRST + self.rng.below(DIRS.len() as u64) }
    }

    fn name(&mut self) -> String {
        // The first directories move among each other, too.
        match self.rng.below(4) {
            0 => format!("d{}", FIRST + self.rng.below(DIRS.len() as u64)),
            _ => format!("n{}", self.rng.below(8)),
        }
    }

    /// A file or directory that was made a moment ago.
    fn recent(&mut self) -> Ino {
        Ino(self.next.saturating_sub(self.rng.below(40)))
    }

    fn run(&mut self) -> FsResult<()> {
        self.next += 1;
        match self.rng.below(24) {
            0..9 => self.change_names(),
            9..14 => self.change_content(),
            14 | 15 => self.change_owners(),
            16 | 17 => self.change_tree(),
            18 => self.restore(),
            _ => self.rename(),
        }
    }

    fn change_names(&mut self) -> FsResult<()> {
        let never = Interrupt::never();
        let caller = Caller::client();
        let (from, to) = (self.dir(), self.dir());
        let (old, new) = (self.name(), self.name());
        match self.rng.below(9) {
            0..5 => {
                let kind = if self.rng.below(3) == 0 { FileType::Dir } else { FileType::File };
                let (uid, gid) = (self.rng.below(OWNERS) as u32, self.rng.below(OWNERS) as u32);
                let caller = Caller { check: false, ..Caller::user(uid, gid) };
                let create = Create { caller, ..create(from, &old, self.next, kind) };
                self.meta.run(create, &never).map(drop)
            }
            5 | 6 => self.meta.run(Link { ino: self.recent(), at: at(to, &new), caller }, &never).map(drop),
            7 => {
                let unlink =
                    Unlink { at: at(from, &old), only: None, skip_trash: self.rng.below(3) == 0, caller };
                self.meta.run(unlink, &never).map(drop)
            }
            _ => {
                let rmdir = Rmdir { at: at(from, &old), hint: None, skip_trash: false, caller };
                self.meta.run(rmdir, &never).map(drop)
            }
        }
    }

    fn change_content(&mut self) -> FsResult<()> {
        let (never, meta, id) = (Interrupt::never(), self.meta, self.next);
        let (ino, length) = (self.recent(), self.rng.below(30_000));
        match self.rng.below(6) {
            0..3 => {
                let pos = self.rng.below(20_000) as u32;
                let slices = vec![Slice::whole(pos, id, 1 + self.rng.below(10_000) as u32)];
                meta.run(Write { ino, index: 0, slices, mtime: NOW }, &never).map(drop)
            }
            3 => {
                let caller = Caller::client();
                meta.run(Truncate { ino, length, opened: true, kill_suid: false, caller }, &never).map(drop)
            }
            4 if length % 2 == 0 => {
                let what = Allocation::Extend;
                meta.run(Fallocate { ino, what, offset: length / 2, length }, &never).map(drop)
            }
            4 => {
                let (from, from_offset, to_offset) = (self.recent(), 0, self.rng.below(30_000));
                let copy = CopyRange { from, from_offset, to: ino, to_offset, length };
                meta.run(copy, &never).map(drop)
            }
            _ => {
                let old = meta.read(&ReadChunk { ino, index: 0 }, &never)?;
                let end = old.iter().map(Slice::end).max().filter(|end| *end > 0).ok_or(FsError::NoData)?;
                let compact = Compact { ino, index: 0, old, keep: 0, new: Slice::whole(0, id, end) };
                meta.run(compact, &never).map(drop)
            }
        }
    }

    fn change_owners(&mut self) -> FsResult<()> {
        let (never, caller) = (Interrupt::never(), Caller::client());
        let (dir, ino) = (Ino(self.dir()), self.recent());
        let (uid, gid) = (self.rng.below(OWNERS) as u32, self.rng.below(OWNERS) as u32);
        // New nodes in a directory with this mode belong to its group.
        let mode = (self.rng.below(2) == 0).then_some(0o2775);
        let changes = Changes { uid: Some(uid), gid: Some(gid), mode, ..Changes::default() };
        let set = SetAttr { ino: dir, changes: changes.clone(), caller: caller.clone() };
        self.meta.run(set, &never)?;
        let changes = Changes { mode: None, ..changes };
        self.meta.run(SetAttr { ino, changes, caller }, &never).map(drop)
    }

    fn change_tree(&mut self) -> FsResult<()> {
        let (never, caller) = (Interrupt::never(), Caller::client());
        let (from, to) = (self.dir(), self.dir());
        let (old, new) = (self.name(), self.name());
        if self.rng.below(6) > 0 {
            let skip_trash = self.rng.below(2) == 0;
            return self.meta.remove_tree(&at(from, &old), skip_trash, &caller, &never, &|_| {});
        }
        let preserve = self.rng.below(2) == 0;
        let clone = CloneTree { source: Ino(from), at: at(to, &new), preserve, umask: 0, caller };
        self.meta.clone_tree(&clone, &never, &|_| {}).map(drop)
    }

    fn rename(&mut self) -> FsResult<()> {
        let caller = Caller::client();
        let (from, to) = (self.dir(), self.dir());
        let (old, new) = (self.name(), self.name());
        let exchanges = self.rng.below(5) == 0;
        let mode = if exchanges { RenameMode::Exchange } else { RenameMode::Replace };
        let rename = Rename { from: at(from, &old), to: at(to, &new), mode, caller };
        self.meta.rename(&rename, &Interrupt::never()).map(drop)
    }

    /// Something comes back from the trash.
    fn restore(&mut self) -> FsResult<()> {
        let Some((_, hour)) = self.entry_of(Ino::TRASH)? else { return Ok(()) };
        let Some((name, _)) = self.entry_of(hour)? else { return Ok(()) };
        let to = self.dir();
        let (from, to) = (At::new(hour, name), at(to, &self.name()));
        let rename = Rename { from, to, mode: RenameMode::Restore, caller: Caller::client() };
        self.meta.rename(&rename, &Interrupt::never()).map(drop)
    }

    /// One of the entries of a directory.
    fn entry_of(&mut self, dir: Ino) -> FsResult<Option<(Name, Ino)>> {
        let scan = Scan::Entries { dir, nodes: false };
        let page = self.meta.scan_readable(scan, None, 100, &Interrupt::never())?;
        let entries = page.rows.into_iter().filter_map(|row| match row {
            Row::Entry(_, name, entry) => Some((name, entry.ino)),
            _ => None,
        });
        let mut entries: Vec<_> = entries.collect();
        let at = self.rng.below(entries.len().max(1) as u64) as usize;
        Ok((at < entries.len()).then(|| entries.swap_remove(at)))
    }

    pub(super) fn steps(mut self, count: u64, done: &AtomicU64) {
        for _ in 0..count {
            match self.run() {
                Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                Err(FsError::Io(context)) => panic!("{context}"),
                Err(_) => {}
            }
        }
    }
}
