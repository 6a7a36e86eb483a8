//! The requests of `.control` on whole trees. They use the same functions as the command line.
//!
//! What must stay true: what is created or removed here is treated as if it had happened through
//! the mount, and is invalidated in the kernel. No user sees the content of directories that the
//! user may not list.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use sluice_data::visible;
use sluice_meta::{
    Interrupt,
    engine::Scan,
    ops::{chunks::ReadChunks, getattr::GetAttr, reach::Reach},
    schema::Row,
    tree::{Denied, Summary, SummaryNode},
};
use sluice_types::{Access, CHUNK_SIZE, Caller, FileType, FsError, FsResult, Ino, Name, Slice};

use crate::control::{Answer, Asker, Progress, requests::Request};
use crate::{trees::CloneOptions, vfs::Vfs, work::work_off};

/// Most levels and entries of each directory that a summary shows.
const MAX_SHOWN: (u8, u8) = (10, 100);
/// Most files that one request compacts at once.
const MAX_COMPACTING: usize = 64;

impl Vfs {
    pub(super) fn serve(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        request: Request,
        progress: &Progress<'_>,
    ) -> FsResult<Answer> {
        let asker = Asker { caller, interrupt, progress };
        match request {
            Request::Remove { parent, name, skip_trash } => {
                if skip_trash && !caller.superuser {
                    return Err(FsError::Perm);
                }
                let dir = self.reached(parent, caller, interrupt)?;
                let done = |count| progress.add(count, 0);
                self.remove_tree(caller, interrupt, (dir, &name), skip_trash, &done)?;
                Ok(Answer::Done)
            }
            Request::Info { ino, recursive, raw, text } => {
                let ino = self.reached(ino, caller, interrupt)?;
                self.info(asker, ino, (recursive, raw, text))
            }
            Request::FillCache { paths, threads, background, action } => {
                // In the background it has its place already.
                let walks = &self.internals.control.walks;
                let _walking = (!background).then(|| walks.begin(caller, interrupt)).transpose()?;
                self.fill_cache(asker, paths, usize::from(threads), action)
            }
            Request::Clone { source, parent, name, umask, preserve } => {
                let dir = self.reached(parent, caller, interrupt)?;
                let source = self.reached(source, caller, interrupt)?;
                let done = |count| progress.add(count, count);
                let options = CloneOptions { preserve, umask };
                self.clone_tree(caller, interrupt, source, (dir, &name), options, &done)?;
                Ok(Answer::Done)
            }
            Request::Summary { ino, depth, top } => {
                let ino = self.reached(ino, caller, interrupt)?;
                let shown = (depth.min(MAX_SHOWN.0).into(), top.min(MAX_SHOWN.1).into());
                let (node, denied) = self.sum_up(asker, ino, shown)?;
                progress.set(node.total.files + node.total.dirs, node.total.size);
                Ok(Answer::Json(json!({ "Errno": 0, "Tree": tree(&node, ""), "Denied": denied })))
            }
            Request::Compact { ino, threads } => {
                let ino = self.reached(ino, caller, interrupt)?;
                self.compact_tree(asker, ino, usize::from(threads).clamp(1, MAX_COMPACTING))?;
                Ok(Answer::Done)
            }
        }
    }

    /// The inode that a program means. It knows the root of the mount as 1, and it may name inodes
    /// that its user cannot reach by any path.
    pub(crate) fn reached(&self, ino: Ino, caller: &Caller, interrupt: &Interrupt) -> FsResult<Ino> {
        let root = self.root();
        let ino = if ino == Ino::ROOT { root } else { ino };
        self.meta.read(&Reach { ino, root, caller: caller.clone() }, interrupt)?;
        Ok(ino)
    }

    fn sum_up(&self, asker: Asker<'_>, ino: Ino, shown: (usize, usize)) -> FsResult<(SummaryNode, Denied)> {
        let Asker { caller, interrupt, progress } = asker;
        self.summarize(caller, interrupt, ino, shown, &|count| progress.add(count, 0))
    }

    fn info(
        &self,
        asker: Asker<'_>,
        ino: Ino,
        (recursive, raw, text): (bool, bool, bool),
    ) -> FsResult<Answer> {
        let Asker { interrupt, progress, .. } = asker;
        self.data.flush_without_reporting(ino)?;
        let attr = self.meta.read(&GetAttr(ino), interrupt)?;
        let mut total = Summary { files: 1, length: attr.length, size: attr.space() as u64, dirs: 0 };
        let mut denied = Denied::default();
        if attr.is_dir() {
            total = Summary { files: 0, length: 0, size: 4096, dirs: 1 };
            if recursive {
                let node;
                (node, denied) = self.sum_up(asker, ino, (0, 0))?;
                total = node.total;
            }
        }
        progress.set(total.files + total.dirs, total.size);
        let paths = self.meta.paths_of(ino, self.root(), interrupt)?;
        if text {
            let path = paths.first().map_or("", String::as_str);
            let mut text = format!(
                "  inode: {ino}\n  files: {}\n   dirs: {}\n length: {} Bytes\n   size: {} Bytes\n   path: {path}\n",
                total.files, total.dirs, total.length, total.size,
            );
            if denied.count > 0 {
                text.extend([" denied: ", &denied.count.to_string(), " directories may not be listed\n"]);
            }
            return Ok(Answer::Text(text));
        }
        let (mut chunks, mut objects) = (Value::Null, Value::Null);
        if attr.is_file() {
            let to = attr.length.div_ceil(CHUNK_SIZE) as u32;
            let read = self.meta.read(&ReadChunks { ino, from: 0, to }, interrupt)?;
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
            "Denied": denied,
        })))
    }

    /// The objects that hold a part of a slice.
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

    /// Compacts every chunk of a file, or of all files below a directory: those that the caller may
    /// write, so many `at_once`.
    ///
    /// # Errors
    /// [`FsError::Access`] if there are others, too, after the rest was done.
    fn compact_tree(&self, asker: Asker<'_>, ino: Ino, at_once: usize) -> FsResult<()> {
        self.writable()?;
        let _walking = self.internals.control.walks.begin(asker.caller, asker.interrupt)?;
        let left_out = AtomicBool::new(false);
        work_off(vec![ino], at_once, |at, below| match self.compact_node(asker, at) {
            Ok(found) => {
                below.extend(found);
                Ok(())
            }
            // It was removed meanwhile.
            Err(FsError::NotFound) if at != ino => Ok(()),
            Err(FsError::Access) => {
                left_out.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error),
        })?;
        if left_out.into_inner() { Err(FsError::Access) } else { Ok(()) }
    }

    /// Compacts the chunks of a file, or answers what lies in a directory.
    fn compact_node(&self, asker: Asker<'_>, ino: Ino) -> FsResult<Vec<Ino>> {
        let Asker { caller, interrupt, progress } = asker;
        let attr = self.meta.read(&GetAttr(ino), interrupt)?;
        let access = if attr.is_file() { Access::WRITE } else { Access(Access::READ.0 | Access::EXEC.0) };
        self.meta.check_access(ino, &attr, caller, access, interrupt)?;
        if attr.is_file() {
            let to = attr.length.div_ceil(CHUNK_SIZE) as u32;
            if interrupt.is_set() {
                return Err(FsError::Interrupted);
            }
            for (index, records) in self.meta.read(&ReadChunks { ino, from: 0, to }, interrupt)? {
                progress.add(1, 0);
                if records.len() > 1 {
                    self.data.compact(ino, index)?;
                }
                progress.add(0, 1);
            }
            return Ok(Vec::new());
        }
        let mut below = Vec::new();
        self.meta.each_page(Scan::Entries { dir: ino, nodes: false }, interrupt, |rows| {
            below.extend(rows.into_iter().filter_map(|row| match row {
                Row::Entry(_, _, entry) if matches!(entry.kind, FileType::File | FileType::Dir) => {
                    Some(entry.ino)
                }
                _ => None,
            }));
            Ok(())
        })?;
        Ok(below)
    }
}

/// The content of a chunk as pieces, including holes between them.
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
