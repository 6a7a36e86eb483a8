//! What a path API needs and a kernel does not: a kernel walks paths, lists with offsets and orders
//! appends itself.
//!
//! What must stay true: no attribute is shown here that hides what this client wrote.

use std::sync::Arc;

use sluice_meta::{
    Interrupt,
    engine::{Cursor, Scan},
    op::Op,
    ops::{
        walk::{Walk, Walked},
        ways::{ByWays, Way},
    },
    schema::Row,
};
use sluice_types::{Access, Attr, Caller, FileType, FsResult, Ino, Name, wait};

use crate::{io::Place, meta_cache::Moment, vfs::Vfs};

/// Most bytes of an append that are written at once.
const MAX_WRITE: usize = 1 << 30;

/// A name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Name,
    /// What it stands for.
    pub ino: Ino,
    /// Kind of the node.
    pub kind: FileType,
    /// Attributes of the node; none if it was removed while the directory was read.
    pub attr: Option<Attr>,
}

/// A directory in which a name is made, removed or moved.
#[derive(Clone, Debug)]
pub struct Dir {
    pub(crate) ino: Ino,
    way: Option<Way>,
}

impl Dir {
    /// Its inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Whether the call that gets it has to find out whether it is the right one.
    pub(crate) fn is_guess(&self) -> bool {
        self.way.is_some()
    }
}

impl From<Ino> for Dir {
    fn from(ino: Ino) -> Self {
        Self { ino, way: None }
    }
}

/// What a path leads to, as the engine said, to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub(crate) ino: Ino,
    /// Without what this client wrote and did not store yet.
    pub(crate) attr: Attr,
    pub(crate) asked: Moment,
    pub(crate) deletions: u64,
}

impl Found {
    /// Its inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }
}

impl Vfs {
    /// The directory to which names probably lead from `dir`, for a call that changes one of its
    /// names and finds out itself whether they do: that saves the trip of [`Self::walk`]. `None` if
    /// not all were met before, or if the trash is among them.
    pub fn guess(&self, caller: &Caller, dir: Ino, names: &[Name]) -> Option<Dir> {
        let Some(first) = names.first() else { return Some(Dir::from(dir)) };
        if self.internals.is_reserved(self.root(), dir, first) {
            return None;
        }
        let steps: Vec<(Name, Ino)> = names.iter().cloned().zip(self.guesses(dir, names)).collect();
        if steps.len() < names.len() {
            return None;
        }
        let way = Way { dir, steps, caller: caller.clone() };
        Some(Dir { ino: way.end(), way: Some(way) })
    }

    /// What names probably stand for, as far as that is known.
    fn guesses(&self, dir: Ino, names: &[Name]) -> Vec<Ino> {
        let mut guesses = Vec::with_capacity(names.len());
        let mut at = dir;
        for name in names {
            let Some(guess) = self.cache().child_hint(at, name) else { break };
            guesses.push(guess);
            at = guess;
        }
        guesses
    }

    /// Runs an operation in directories.
    pub(crate) fn run_in<O: Op>(
        &self,
        dirs: impl IntoIterator<Item = Dir>,
        op: O,
        interrupt: &Interrupt,
    ) -> FsResult<O::Out> {
        let mut ways: Vec<Way> = dirs.into_iter().filter_map(|dir| dir.way).collect();
        ways.dedup();
        if ways.is_empty() {
            return self.meta.run(op, interrupt);
        }
        self.meta.run(ByWays { ways, op }, interrupt)
    }

    /// Follows names from `dir`, each below the one before, and checks that the caller may search
    /// each directory. It ends before a name that does not exist, and with a symbolic link. No
    /// internal file is found but the trash. One trip if the directories were met before.
    ///
    /// # Errors
    /// Those of [`Walk`].
    pub fn walk(&self, caller: &Caller, interrupt: &Interrupt, dir: Ino, names: &[Name]) -> FsResult<Walked> {
        if let Some((first, below)) = names.split_first()
            && self.internals.is_trash(self.root(), dir, first)
        {
            let above = self.walk(caller, interrupt, dir, &[])?;
            self.meta.check_access(dir, &above.start, caller, Access::EXEC, interrupt)?;
            let mut walked = self.walk(caller, interrupt, Ino::TRASH, below)?;
            walked.found.insert(0, (Ino::TRASH, walked.start));
            return Ok(Walked { start: above.start, ..walked });
        }
        let moment = self.cache().moment();
        let walk = self.walk_from(caller, dir, names);
        let mut walked = if self.meta.has_client_cache() {
            self.meta.read_cached(&walk, interrupt)?
        } else {
            self.meta.read_together(walk.clone(), interrupt)?
        };
        self.learn_way(&walk, &walked);
        for (ino, attr) in &mut walked.found {
            *attr = self.shown(*ino, *attr, moment, interrupt);
        }
        self.cache().answered(walked.found.last().map_or(dir, |(ino, _)| *ino));
        Ok(walked)
    }

    /// As [`Self::walk`], to open what all names together lead to: that comes, too, if it is a
    /// file. The attributes lack what this client did not store yet.
    ///
    /// # Errors
    /// Those of [`Walk`].
    pub fn walk_to_open(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        dir: Ino,
        names: &[Name],
    ) -> FsResult<(Walked, Option<Found>)> {
        let in_trash = names.first().is_some_and(|first| self.internals.is_trash(self.root(), dir, first));
        if in_trash || self.meta.has_client_cache() {
            return Ok((self.walk(caller, interrupt, dir, names)?, None));
        }
        let (asked, deletions) = (self.cache().moment(), self.meta.deletions());
        let walk = self.walk_from(caller, dir, names);
        let walked = self.meta.read_together(walk.clone(), interrupt)?;
        self.learn_way(&walk, &walked);
        let last =
            walked.found.last().filter(|(_, attr)| attr.is_file() && walked.found.len() == names.len());
        let found = last.map(|(ino, attr)| Found { ino: *ino, attr: *attr, asked, deletions });
        Ok((walked, found))
    }

    fn walk_from(&self, caller: &Caller, dir: Ino, names: &[Name]) -> Walk {
        let guesses = self.guesses(dir, &names[..names.len().saturating_sub(1)]);
        Walk { dir, names: names.to_vec(), guesses, caller: caller.clone() }
    }

    /// Keeps which directories a walk met.
    fn learn_way(&self, walk: &Walk, walked: &Walked) {
        let mut at = walk.dir;
        for (index, ((ino, attr), name)) in walked.found.iter().zip(&walk.names).enumerate() {
            if attr.is_dir() && walk.guesses.get(index) != Some(ino) {
                self.cache().hint(at, name, *ino);
            }
            at = *ino;
        }
    }

    /// About `limit` names of a directory with their attributes, and where the next ones begin;
    /// `None` at its end. No internal file is listed. An engine that does not sort names may return
    /// one twice if the directory changes meanwhile. One trip.
    pub fn list(
        &self,
        interrupt: &Interrupt,
        dir: Ino,
        from: Option<&Cursor>,
        limit: usize,
    ) -> FsResult<(Vec<Listed>, Option<Cursor>)> {
        let moment = self.cache().moment();
        let scan = Scan::Entries { dir, nodes: true };
        let page = self.meta.scan_readable(scan, from, limit.max(1), interrupt)?;
        for damage in &page.damaged {
            tracing::error!("in a directory: {damage}");
        }
        let mut listed: Vec<Listed> = Vec::new();
        for row in page.rows {
            match row {
                Row::Entry(_, name, entry) => {
                    listed.push(Listed { name, ino: entry.ino, kind: entry.kind, attr: None });
                }
                Row::Node(ino, attr) => {
                    if let Some(last) = listed.last_mut().filter(|last| last.ino == ino) {
                        last.attr = Some(self.shown(ino, attr, moment, interrupt));
                    }
                }
                _ => {}
            }
        }
        Ok((listed, page.next))
    }

    /// Writes at the end of a file as this client knows it, after all appends that it began before.
    /// Returns where the data lies. The rest is as with [`Self::write`].
    pub fn append(
        self: &Arc<Self>,
        caller: &Caller,
        interrupt: &Interrupt,
        fh: u64,
        data: &[u8],
        kill_suid: bool,
    ) -> FsResult<u64> {
        self.append_with(interrupt, fh, |begin| {
            let mut offset = begin;
            for piece in data.chunks(MAX_WRITE) {
                self.write(caller, interrupt, Place { fh, offset }, piece, kill_suid)?;
                offset += piece.len() as u64;
            }
            Ok(begin)
        })
    }

    /// Length of an open file as the engine has it now, unstored data of this client included. One
    /// trip.
    pub fn length_now(&self, interrupt: &Interrupt, fh: u64) -> FsResult<u64> {
        let file = Arc::clone(&self.handles.file(fh)?.file);
        let attr = self.fetch(file.ino, interrupt)?;
        Ok(attr.length.max(self.data.dirty_end(file.ino)))
    }

    /// Runs what appends to a file, from its end on, while nothing else appends to it here.
    pub fn append_with<T>(
        &self,
        interrupt: &Interrupt,
        fh: u64,
        run: impl FnOnce(u64) -> FsResult<T>,
    ) -> FsResult<T> {
        let handle = self.handles.file(fh)?;
        let _order = wait::lock(&handle.file.append_lock);
        run(self.append_at(interrupt, Place { fh, offset: 0 }, true)?)
    }
}
