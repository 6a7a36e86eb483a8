//! The work behind `.control`: whole trees, by the functions that the tools use too.
//!
//! What must stay true: whatever is removed here is treated as if it had been removed through the mount.

use serde_json::{Value, json};
use sluice_data::visible;
use sluice_meta::{
    Interrupt,
    engine::Scan,
    op::At,
    ops::{chunks::ReadChunks, getattr::GetAttr, reach::Reach},
    schema::{Change, Row},
    tree::{CloneTree, Summary, SummaryNode},
};
use sluice_types::{CHUNK_SIZE, Caller, FileType, FsError, FsResult, Ino, Name, Slice};

use super::{Answer, Progress, requests::Request};
use crate::vfs::Vfs;

impl Vfs {
    pub(super) fn serve(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        request: Request,
        progress: &Progress<'_>,
    ) -> FsResult<Answer> {
        match request {
            Request::Remove { parent, name, skip_trash } => {
                if skip_trash && !caller.is_root() {
                    return Err(FsError::Perm);
                }
                let at = At::new(self.reached(parent, caller, interrupt)?, Name::new(&name)?);
                let removed = self
                    .meta
                    .remove_tree(&at, skip_trash, caller, interrupt, &|count| progress.add(count, 0));
                self.after_trees(at.dir);
                self.tell_stale(&Change::Entry(at.dir, at.name));
                removed.map(|()| Answer::Done)
            }
            Request::Info { ino, recursive, raw, text } => {
                let ino = self.reached(ino, caller, interrupt)?;
                self.info(interrupt, ino, (recursive, raw, text), progress)
            }
            Request::FillCache => Err(FsError::NotSupported),
            Request::Clone { source, parent, name, umask, preserve } => {
                let at = At::new(self.reached(parent, caller, interrupt)?, Name::new(&name)?);
                let dir = at.dir;
                let source = self.reached(source, caller, interrupt)?;
                let clone = CloneTree { source, at, preserve, umask, caller: caller.clone() };
                self.data.flush_all()?;
                let cloned = self.meta.clone_tree(&clone, interrupt, &|count| progress.add(count, count));
                self.known().note(dir);
                self.dirs.drop(dir);
                cloned.map(|_| Answer::Done)
            }
            Request::Summary { ino, depth, top } => {
                let ino = self.reached(ino, caller, interrupt)?;
                let (depth, top) = (usize::from(depth), usize::from(top));
                let node =
                    self.meta.summarize(ino, depth, top, interrupt, &|count| progress.add(count, 0))?;
                progress.set(node.total.files + node.total.dirs, node.total.size);
                Ok(Answer::Json(json!({ "Errno": 0, "Tree": tree(&node, "") })))
            }
            Request::Compact { ino } => {
                self.compact_tree(self.reached(ino, caller, interrupt)?, interrupt, progress)?;
                Ok(Answer::Done)
            }
        }
    }

    /// The inode that a program means, which sees the root of the mount as 1, and names by number what its user may not
    /// come to by any path.
    fn reached(&self, ino: Ino, caller: &Caller, interrupt: &Interrupt) -> FsResult<Ino> {
        let root = self.root();
        let ino = if ino == Ino::ROOT { root } else { ino };
        self.meta.ask(&Reach { ino, root, caller: caller.clone() }, interrupt)?;
        Ok(ino)
    }

    /// After trees were removed without asking the mount: files that are open here have lost their names, and chunks
    /// wait to be deleted.
    fn after_trees(&self, dir: Ino) {
        self.dirs.drop(dir);
        self.known().forget_names();
        for ino in self.known().open_inos() {
            let gone = match self.meta.ask(&GetAttr(ino), &Interrupt::never()) {
                Ok(attr) => attr.nlink == 0,
                Err(error) => error == FsError::NotFound,
            };
            if gone && !self.known().unlinked(ino) {
                self.drop_sustained(ino);
            }
        }
        self.jobs.queue().recorded();
    }

    fn info(
        &self,
        interrupt: &Interrupt,
        ino: Ino,
        (recursive, raw, text): (bool, bool, bool),
        progress: &Progress<'_>,
    ) -> FsResult<Answer> {
        self.flush_ino(ino)?;
        let attr = self.meta.ask(&GetAttr(ino), interrupt)?;
        let mut total = Summary { files: 1, length: attr.length, size: attr.space() as u64, dirs: 0 };
        if attr.is_dir() {
            total = Summary { files: 0, length: 0, size: 4096, dirs: 1 };
            if recursive {
                total = self.meta.summarize(ino, 0, 0, interrupt, &|count| progress.add(count, 0))?.total;
            }
        }
        progress.set(total.files + total.dirs, total.size);
        let paths = self.meta.paths_of(ino, self.root(), interrupt)?;
        if text {
            let path = paths.first().map_or("", String::as_str);
            return Ok(Answer::Text(format!(
                "  inode: {ino}\n  files: {}\n   dirs: {}\n length: {} Bytes\n   size: {} Bytes\n   path: {path}\n",
                total.files, total.dirs, total.length, total.size,
            )));
        }
        let (mut chunks, mut objects) = (Value::Null, Value::Null);
        if attr.is_file() {
            let to = attr.length.div_ceil(CHUNK_SIZE) as u32;
            let read = self.meta.ask(&ReadChunks { ino, from: 0, to }, interrupt)?;
            let shown = read.iter().flat_map(|(index, list)| shown(*index, list));
            if raw {
                chunks = shown.map(|(index, slice)| chunk(index, &slice)).collect();
            } else {
                objects = shown.flat_map(|(index, slice)| self.objects(index, slice)).collect();
            }
        }
        let (flocks, plocks) = locks(&self.meta.locks_of(ino, interrupt)?);
        Ok(Answer::Json(json!({
            "Ino": ino.0,
            "Failed": false,
            "Reason": "",
            "Summary": {
                "Length": total.length, "Size": total.size, "Files": total.files, "Dirs": total.dirs
            },
            "Paths": paths,
            "Chunks": chunks,
            "Objects": objects,
            "PLocks": plocks,
            "FLocks": flocks,
            "Tier": { "ID": attr.tier, "StorageClass": "", "Tag": "" },
            "RestoreStatus": "",
        })))
    }

    /// Objects that a piece of a slice lies in.
    fn objects(&self, index: u32, slice: Slice) -> Vec<Value> {
        let layout = self.data.layout();
        if slice.is_hole() {
            return vec![
                json!({ "ChunkIndex": index, "Key": "", "Size": slice.len, "Off": 0, "Len": slice.len }),
            ];
        }
        let volume = self.meta.env().format().name.clone();
        let object = |part: sluice_data::Part| {
            let key = format!("{volume}/{}", layout.name(part.block));
            json!({
                "ChunkIndex": index, "Key": key, "Size": part.block.size, "Off": part.from, "Len": part.len
            })
        };
        layout.parts(slice).map(object).collect()
    }

    /// Compacts every chunk of a file, or of all files below a directory.
    fn compact_tree(&self, ino: Ino, interrupt: &Interrupt, progress: &Progress<'_>) -> FsResult<()> {
        // The way down is a list and not the stack, which a deep tree would overflow.
        let mut left = vec![ino];
        while let Some(at) = left.pop() {
            match self.compact_node(at, &mut left, interrupt, progress) {
                // It was removed meanwhile.
                Err(FsError::NotFound) if at != ino => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Compacts the chunks of a file, or adds what lies in a directory to `left`.
    fn compact_node(
        &self,
        ino: Ino,
        left: &mut Vec<Ino>,
        interrupt: &Interrupt,
        progress: &Progress<'_>,
    ) -> FsResult<()> {
        let attr = self.meta.ask(&GetAttr(ino), interrupt)?;
        if attr.is_file() {
            let to = attr.length.div_ceil(CHUNK_SIZE) as u32;
            for (index, records) in self.meta.ask(&ReadChunks { ino, from: 0, to }, interrupt)? {
                progress.add(1, 0);
                if records.len() > 1 {
                    self.data.compact(ino, index)?;
                }
                progress.add(0, 1);
            }
            return Ok(());
        }
        self.meta.each_page(Scan::Entries { dir: ino, nodes: false }, interrupt, |rows| {
            left.extend(rows.into_iter().filter_map(|row| match row {
                Row::Entry(_, _, entry) if matches!(entry.kind, FileType::File | FileType::Dir) => {
                    Some(entry.ino)
                }
                _ => None,
            }));
            Ok(())
        })
    }
}

/// What a chunk shows, holes between its pieces included.
fn shown(index: u32, records: &[Slice]) -> Vec<(u32, Slice)> {
    let mut all = Vec::new();
    let mut pos = 0;
    for piece in visible(records) {
        if piece.pos > pos {
            all.push((index, Slice::hole(pos, piece.pos - pos)));
        }
        pos = piece.end();
        all.push((index, piece));
    }
    all
}

fn chunk(index: u32, slice: &Slice) -> Value {
    json!({
        "ChunkIndex": index, "Id": slice.id, "Size": slice.size, "Off": slice.off, "Len": slice.len
    })
}

/// The locks on a file as JSON, BSD ones and ranges.
fn locks(rows: &[Row]) -> (Vec<Value>, Vec<Value>) {
    let (mut flocks, mut plocks) = (Vec::new(), Vec::new());
    for row in rows {
        match row {
            Row::Flock(_, by, kind) => {
                let kind = char::from(kind.code()).to_string();
                flocks.push(json!({ "Sid": by.sid, "Owner": by.owner, "Type": kind }));
            }
            Row::Plock(_, by, ranges) => plocks.extend(ranges.iter().map(|range| {
                json!({
                    "Sid": by.sid, "Owner": by.owner, "Type": u32::from(range.write), "Pid": range.pid,
                    "Start": range.start, "End": range.end
                })
            })),
            _ => {}
        }
    }
    (flocks, plocks)
}

fn tree(node: &SummaryNode, above: &str) -> Value {
    let name = node.name.as_ref().map(Name::to_string).unwrap_or_default();
    let path = if above.is_empty() { name } else { format!("{above}/{name}") };
    let mut shown = json!({
        "Inode": node.ino.0, "Path": path, "Type": node.kind as u8, "Size": node.total.size,
        "Files": node.total.files, "Dirs": node.total.dirs,
    });
    if node.kind == FileType::Dir
        && let Some(members) = shown.as_object_mut()
    {
        members.insert("Children".into(), node.children.iter().map(|child| tree(child, &path)).collect());
    }
    shown
}
