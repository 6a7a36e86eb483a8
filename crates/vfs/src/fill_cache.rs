//! The request of `.control` that fetches files into the block cache, drops them from it, or counts
//! what of them is there.
//!
//! What must stay true: memory does not grow with the tree or the files. A file that is removed
//! meanwhile is not a failure. No user can fetch a file that the user may not read.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use serde_json::json;
use sluice_data::{BlockKey, WarmError, visible};
use sluice_meta::{
    engine::{Cursor, Scan},
    op::At,
    ops::{
        chunks::{ReadChunk, ReadChunks},
        getattr::GetAttr,
        lookup::Lookup,
        readlink::Readlink,
    },
    schema::Row,
};
use sluice_types::{Access, Attr, CHUNK_SIZE, FileType, FsError, FsResult, Ino, Name, printable};

use crate::control::{Answer, Asker, requests::CacheAction};
use crate::{vfs::Vfs, work::work_off};

/// Most threads of one request.
const MAX_THREADS: usize = 64;
/// Entries of a directory that are read at once.
const PAGE: usize = 1024;
/// Chunks of a file whose records are read at once.
const CHUNKS: u32 = 64;
/// Failures after which the rest is left out.
const MAX_FAILURES: u64 = 1000;
/// Failures that are named, in the answer and in the log.
const MAX_NAMED: usize = 20;
/// Symbolic links that a path may lead through.
const MAX_LINKS: u32 = 40;
const LIST: Access = Access(Access::READ.0 | Access::EXEC.0);

/// What is left to do.
enum Work {
    /// A path of the request.
    Path(Vec<u8>),
    /// The entries of a directory, from a place on.
    Entries(Ino, Option<Cursor>),
    /// The chunks of a file from one to another.
    Chunks(Ino, u32, u32),
    /// A block of a chunk, to be fetched.
    Block(Ino, u32, BlockKey),
}

/// A request under way.
struct Filling<'a> {
    vfs: &'a Vfs,
    asker: Asker<'a>,
    action: CacheAction,
    counts: Counts,
}

/// The result of a request.
#[derive(Default)]
struct Counts {
    files: AtomicU64,
    slices: AtomicU64,
    bytes: AtomicU64,
    /// Bytes of blocks that are not in the cache; of those that are to be dropped, also what stays
    /// there.
    missed: AtomicU64,
    places: Mutex<BTreeMap<PathBuf, u64>>,
    failures: Mutex<Failures>,
}

#[derive(Default)]
struct Failures {
    count: u64,
    named: Vec<String>,
    /// Blocks among them. Several files may have the same one.
    blocks: FxHashSet<BlockKey>,
}

impl Counts {
    fn answer(&self, incomplete: bool) -> Answer {
        let number = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let places = self.places.lock();
        let failures = self.failures.lock();
        Answer::Json(json!({
            "FileCount": number(&self.files),
            "SliceCount": number(&self.slices),
            "TotalBytes": number(&self.bytes),
            "MissBytes": number(&self.missed),
            "Locations": places
                .iter()
                .map(|(place, bytes)| (place.display().to_string(), (*bytes).into()))
                .collect::<serde_json::Map<_, _>>(),
            "Failures": { "Count": failures.count, "Named": failures.named, "Incomplete": incomplete },
        }))
    }
}

impl Vfs {
    /// The answer to a request that goes on in the background.
    pub(crate) fn begun() -> Answer {
        Counts::default().answer(false)
    }

    /// Does `action` with the blocks of files, and of all files below directories. A path begins at
    /// the root of the mount, or is `inode:` and a number. The caller has a place among the walks.
    pub(crate) fn fill_cache(
        &self,
        asker: Asker<'_>,
        paths: Vec<Vec<u8>>,
        threads: usize,
        action: CacheAction,
    ) -> FsResult<Answer> {
        self.data().notice_removal();
        let filling = Filling { vfs: self, asker, action, counts: Counts::default() };
        let first = paths.into_iter().rev().map(Work::Path).collect();
        let done = work_off(first, threads.clamp(1, MAX_THREADS), |work, more| filling.visit(work, more));
        if asker.interrupt.is_set() {
            return Err(FsError::Interrupted);
        }
        let Counts { files, bytes, missed, failures, .. } = &filling.counts;
        tracing::info!(
            files = files.load(Ordering::Relaxed),
            bytes = bytes.load(Ordering::Relaxed),
            not_cached = missed.load(Ordering::Relaxed),
            failures = failures.lock().count,
            complete = done.is_ok(),
            "{} has ended",
            action.name()
        );
        Ok(filling.counts.answer(done.is_err()))
    }

    /// The node at a path from the root of the mount. Links in it are followed, unless they lead
    /// out of the volume.
    fn at_path(&self, asker: Asker<'_>, path: &[u8]) -> FsResult<(Ino, Attr)> {
        let Asker { caller, interrupt, .. } = asker;
        let number = path.strip_prefix(b"inode:").and_then(|number| str::from_utf8(number).ok());
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            let ino = self.reached(Ino(number), caller, interrupt)?;
            return Ok((ino, self.meta.read(&GetAttr(ino), interrupt)?));
        }
        let root = (self.root(), self.meta.read(&GetAttr(self.root()), interrupt)?);
        let (mut at, mut above, mut links) = (root, Vec::new(), 0);
        let mut left = vec![path.to_vec()];
        while let Some(path) = left.pop() {
            let (name, rest) = match path.iter().position(|byte| *byte == b'/') {
                Some(slash) => (&path[..slash], Some(&path[slash + 1..])),
                None => (&path[..], None),
            };
            left.extend(rest.map(<[u8]>::to_vec));
            match name {
                b"" | b"." => continue,
                b".." => {
                    at = above.pop().unwrap_or(root);
                    continue;
                }
                _ => {}
            }
            if !at.1.is_dir() {
                return Err(FsError::NotDir);
            }
            self.meta.check_access(at.0, &at.1, caller, Access::EXEC, interrupt)?;
            let found = self.meta.read(&Lookup(At::new(at.0, Name::new(name)?)), interrupt)?;
            if found.1.kind != FileType::Symlink {
                above.push(at);
                at = found;
                continue;
            }
            let target = self.meta.read(&Readlink(found.0), interrupt)?;
            links += 1;
            if links > MAX_LINKS {
                return Err(FsError::Loop);
            }
            if target.starts_with(b"/") {
                return Err(FsError::CrossDevice);
            }
            left.push(target.to_vec());
        }
        Ok(at)
    }
}

impl Filling<'_> {
    fn visit(&self, work: Work, more: &mut Vec<Work>) -> FsResult<()> {
        let interrupt = self.asker.interrupt;
        if interrupt.is_set() {
            return Err(FsError::Interrupted);
        }
        let (ino, done) = match work {
            Work::Path(path) => {
                let found = self.vfs.at_path(self.asker, &path);
                let entered = found.and_then(|(ino, attr)| self.enter(ino, &attr, more));
                let name = || String::from_utf8_lossy(&path).into_owned();
                return entered.or_else(|error| self.failed(name, &error, None));
            }
            Work::Block(ino, index, block) => return self.fetch(ino, index, block, more),
            Work::Entries(dir, from) => (dir, self.list(dir, from.as_ref(), more)),
            Work::Chunks(ino, from, to) => (ino, self.read_chunks(ino, (from, to), more)),
        };
        match done {
            // It was removed meanwhile.
            Err(FsError::NotFound) | Ok(()) => Ok(()),
            Err(error) => self.failed(|| self.name(ino), &error, None),
        }
    }

    /// Adds what a directory or a file consists of.
    fn enter(&self, ino: Ino, attr: &Attr, more: &mut Vec<Work>) -> FsResult<()> {
        let Asker { caller, interrupt, progress } = self.asker;
        let access = match attr.kind {
            FileType::Dir => LIST,
            FileType::File => Access::READ,
            _ => return Ok(()),
        };
        self.vfs.meta.check_access(ino, attr, caller, access, interrupt)?;
        if attr.is_dir() {
            more.push(Work::Entries(ino, None));
            return Ok(());
        }
        self.counts.files.fetch_add(1, Ordering::Relaxed);
        progress.add(1, 0);
        let chunks = attr.length.div_ceil(CHUNK_SIZE) as u32;
        more.extend((chunks > 0).then_some(Work::Chunks(ino, 0, chunks)));
        Ok(())
    }

    fn list(&self, dir: Ino, from: Option<&Cursor>, more: &mut Vec<Work>) -> FsResult<()> {
        let scan = Scan::Entries { dir, nodes: true };
        let page = self.vfs.meta.scan_readable(scan, from, PAGE, self.asker.interrupt)?;
        let page = page.sound().map_err(FsError::io)?;
        more.extend(page.next.map(|next| Work::Entries(dir, Some(next))));
        for row in page.rows {
            if let Row::Node(ino, attr) = row
                && let Err(error) = self.enter(ino, &attr, more)
            {
                self.failed(|| self.name(ino), &error, None)?;
            }
        }
        Ok(())
    }

    fn read_chunks(&self, ino: Ino, (from, to): (u32, u32), more: &mut Vec<Work>) -> FsResult<()> {
        let until = to.min(from.saturating_add(CHUNKS));
        more.extend((until < to).then_some(Work::Chunks(ino, until, to)));
        let chunks = ReadChunks { ino, from, to: until };
        for (index, records) in self.vfs.meta.read(&chunks, self.asker.interrupt)? {
            let pieces = visible(&records);
            self.counts.slices.fetch_add(pieces.len() as u64, Ordering::Relaxed);
            let layout = self.vfs.data.layout();
            let parts = pieces.into_iter().flat_map(|piece| layout.parts(piece));
            let mut blocks: Vec<BlockKey> = parts.map(|part| part.block).collect();
            // Two pieces may be of one block.
            blocks.sort_unstable();
            blocks.dedup();
            match self.action {
                CacheAction::Warm => {
                    more.extend(blocks.into_iter().map(|block| Work::Block(ino, index, block)));
                }
                CacheAction::Check => blocks.into_iter().for_each(|block| self.count(block)),
                CacheAction::Evict => blocks.into_iter().for_each(|block| {
                    let (data, interrupt) = (&self.vfs.data, self.asker.interrupt);
                    let place = data.find(block, interrupt);
                    data.evict_everywhere(block, interrupt);
                    // One that waits for its upload stays.
                    let stays = data.find(block, interrupt).is_some();
                    self.count_at(block, place.filter(|_| !stays));
                }),
            }
        }
        Ok(())
    }

    fn fetch(&self, ino: Ino, index: u32, block: BlockKey, more: &mut Vec<Work>) -> FsResult<()> {
        let interrupt = self.asker.interrupt;
        let error = match self.vfs.data.warm(block, interrupt) {
            Ok(_) => {
                self.count(block);
                return Ok(());
            }
            Err(_) if interrupt.is_set() => return Err(FsError::Interrupted),
            Err(error) => error,
        };
        if matches!(error, WarmError::Missing(_)) {
            match self.is_used(ino, index, block) {
                // The file was removed.
                Err(FsError::NotFound) => return Ok(()),
                // The chunk consists of other slices now.
                Ok(false) => {
                    more.push(Work::Chunks(ino, index, index + 1));
                    return Ok(());
                }
                _ => {}
            }
        }
        self.count(block);
        self.failed(|| self.name(ino), &FsError::io(&error), Some(block))?;
        match error {
            WarmError::Missing(_) | WarmError::Damaged(_) => Ok(()),
            WarmError::Unavailable(_) => Err(FsError::io(error)),
        }
    }

    /// Whether a chunk still shows a part of a block's slice.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if the file is gone. Its records may go later.
    fn is_used(&self, ino: Ino, index: u32, block: BlockKey) -> FsResult<bool> {
        let Asker { interrupt, .. } = self.asker;
        self.vfs.meta.read(&GetAttr(ino), interrupt)?;
        let records = self.vfs.meta.read(&ReadChunk { ino, index }, interrupt)?;
        Ok(visible(&records).iter().any(|piece| piece.id == block.id))
    }

    /// Counts a block where it is now.
    fn count(&self, block: BlockKey) {
        self.count_at(block, self.vfs.data.find(block, self.asker.interrupt));
    }

    fn count_at(&self, block: BlockKey, place: Option<&Path>) {
        let bytes = u64::from(block.size);
        if let Some(place) = place {
            let mut places = self.counts.places.lock();
            if let Some(sum) = places.get_mut(place) {
                *sum += bytes;
            } else {
                places.insert(place.to_owned(), bytes);
            }
        } else {
            self.counts.missed.fetch_add(bytes, Ordering::Relaxed);
        }
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.asker.progress.add(0, bytes);
    }

    /// Counts a failure, and names it if it is one of the first.
    ///
    /// # Errors
    /// The failure itself if nobody waits any more, or if there are too many.
    fn failed(&self, name: impl Fn() -> String, error: &FsError, block: Option<BlockKey>) -> FsResult<()> {
        if self.asker.interrupt.is_set() {
            return Err(FsError::Interrupted);
        }
        let mut failures = self.counts.failures.lock();
        if block.is_some_and(|block| !failures.blocks.insert(block)) {
            return Ok(());
        }
        failures.count += 1;
        if failures.count >= MAX_FAILURES {
            return Err(error.clone());
        }
        let is_named = failures.named.len() < MAX_NAMED;
        drop(failures);
        if is_named {
            let text = format!("{}: {error}", printable(name()));
            tracing::warn!("{}: {text}", self.action.name());
            let mut failures = self.counts.failures.lock();
            if failures.named.len() < MAX_NAMED {
                failures.named.push(text);
            }
        }
        Ok(())
    }

    /// A path of a node, for messages.
    fn name(&self, ino: Ino) -> String {
        let paths = self.vfs.meta.paths_of(ino, self.vfs.root(), self.asker.interrupt);
        let path = paths.ok().and_then(|paths| paths.into_iter().next());
        path.unwrap_or_else(|| format!("inode {}", ino.0))
    }
}
