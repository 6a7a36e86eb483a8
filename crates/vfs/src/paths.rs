//! What a path API needs and a kernel does not: a kernel walks paths, lists with offsets and orders
//! appends itself.
//!
//! What must stay true: no attribute is shown here that hides what this client wrote.

use std::sync::Arc;

use sluice_meta::{
    Interrupt,
    engine::{Cursor, Scan},
    ops::walk::{Walk, Walked},
    schema::Row,
};
use sluice_types::{Access, Attr, Caller, FileType, FsResult, Ino, Name, wait};

use crate::{io::Place, vfs::Vfs};

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

impl Vfs {
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
        let mut guesses = Vec::with_capacity(names.len());
        let mut at = dir;
        for name in names.iter().take(names.len().saturating_sub(1)) {
            let Some(guess) = self.cache().child_hint(at, name) else { break };
            guesses.push(guess);
            at = guess;
        }
        let moment = self.cache().moment();
        let walk = Walk { dir, names: names.to_vec(), guesses: guesses.clone(), caller: caller.clone() };
        let mut walked = self.meta.read_cached(&walk, interrupt)?;
        at = dir;
        for (index, ((ino, attr), name)) in walked.found.iter_mut().zip(names).enumerate() {
            if attr.is_dir() && guesses.get(index) != Some(ino) {
                self.cache().hint(at, name, *ino);
            }
            *attr = self.shown(*ino, *attr, moment, interrupt);
            at = *ino;
        }
        self.cache().answered(at);
        Ok(walked)
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
        let handle = self.handles.file(fh)?;
        let _order = wait::lock(&handle.file.append_lock);
        let begin = self.append_at(interrupt, Place { fh, offset: 0 }, true)?;
        let mut offset = begin;
        for piece in data.chunks(MAX_WRITE) {
            self.write(caller, interrupt, Place { fh, offset }, piece, kill_suid)?;
            offset += piece.len() as u64;
        }
        Ok(begin)
    }
}
