//! Reads directories ahead, on a few threads.
//!
//! What must stay true: the amount that is read ahead is limited, for any tree. If a page that was
//! not read ahead is needed, the thread that needs it reads it at once.

use std::{
    panic::resume_unwind,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::{Scope, ScopedJoinHandle},
};

use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{Cursor, Found, List, Read, Scan},
    schema::{AclRule, Key, Row},
};
use sluice_types::{Attr, FileType, Ino, Name};

use crate::{DumpError, json::Node, source::Source};

/// Entries of a part.
pub(crate) const PAGE: usize = 1000;
/// Pages read ahead at most; each holds some 300 bytes for an entry.
const AHEAD: usize = 32;
/// Bytes of a chunk.
const CHUNK: u64 = 1 << 26;

/// Part of a directory: its entries with what belongs to them.
pub(crate) struct Part {
    pub(crate) entries: Vec<(Name, Node)>,
    pub(crate) next: Next,
}

/// Where a directory goes on.
pub(crate) enum Next {
    End,
    At(Cursor),
    Coming(Coming),
}

/// Reads directories, a part of up to [`PAGE`] entries at a time.
pub(crate) trait Parts {
    /// Reads the part of `dir` that begins there.
    fn read(&self, dir: Ino, from: Option<&Cursor>) -> Result<Part, DumpError>;

    /// Has the first part of `dir` read ahead, if that is possible now.
    fn ahead(&self, dir: Ino) -> Option<Coming>;

    /// Waits for a part that is read ahead.
    fn take(&self, coming: &Coming) -> Result<Part, DumpError>;
}

/// A part that is being read.
pub(crate) struct Coming(Receiver<Result<Part, DumpError>>);

struct Job {
    dir: Ino,
    from: Option<Cursor>,
    answer: SyncSender<Result<Part, DumpError>>,
}

/// Reads directories.
pub(crate) struct Fetch<'e> {
    source: &'e Source<'e>,
    acls: FxHashMap<u32, AclRule>,
    /// Whether any node may have extended attributes.
    xattrs: bool,
    jobs: Mutex<Option<Sender<Job>>>,
    queue: Mutex<Receiver<Job>>,
    ahead: AtomicUsize,
}

impl<'e> Fetch<'e> {
    pub(crate) fn new(source: &'e Source<'e>, acls: FxHashMap<u32, AclRule>, xattrs: bool) -> Self {
        let (jobs, queue) = channel();
        Self {
            source,
            acls,
            xattrs,
            jobs: Mutex::new(Some(jobs)),
            queue: Mutex::new(queue),
            ahead: AtomicUsize::new(0),
        }
    }

    /// Starts a thread that reads ahead until [`Self::stop`].
    pub(crate) fn start<'s>(&'s self, scope: &'s Scope<'s, '_>) -> ScopedJoinHandle<'s, ()> {
        scope.spawn(|| {
            loop {
                let job = self.queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(Job { dir, from, answer }) = job else { return };
                // After the end nobody takes what was asked for before.
                if self.jobs.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
                    return;
                }
                // Whoever asked may have given up.
                let _ = answer.send(self.read(dir, from.as_ref()));
            }
        })
    }

    /// Lets the threads end.
    pub(crate) fn stop(&self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Has a part read ahead, if there is room; else gives back where it begins.
    fn ahead_from(&self, dir: Ino, from: Option<Cursor>) -> Result<Coming, Option<Cursor>> {
        let more = |count| (count < AHEAD).then_some(count + 1);
        if self.ahead.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return Err(from);
        }
        let (answer, coming) = sync_channel(1);
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        // After the end nobody takes what was read.
        if let Some(jobs) = jobs.as_ref() {
            let _ = jobs.send(Job { dir, from, answer });
        }
        Ok(Coming(coming))
    }

    /// Adds to nodes what other records hold of them. One trip.
    pub(crate) fn fill<'n>(&self, nodes: impl Iterator<Item = &'n mut Node>) -> Result<(), DumpError> {
        let mut nodes: Vec<&mut Node> = nodes.collect();
        let (mut reads, mut of) = (Vec::with_capacity(2 * nodes.len()), Vec::with_capacity(2 * nodes.len()));
        for (at, node) in nodes.iter().enumerate() {
            let content = match (node.attr.kind, chunks(&node.attr)) {
                (FileType::Symlink, _) => Some(Read::Get(Key::Symlink(node.ino))),
                (_, 0) => None,
                // By its key, a single chunk is found with those of other files.
                (_, 1) => Some(Read::Get(Key::Chunk(node.ino, 0))),
                (_, chunks) => Some(Read::All(List::Chunks(node.ino, 0, chunks))),
            };
            let xattrs = self.xattrs.then_some(Read::All(List::Xattrs(node.ino)));
            for read in xattrs.into_iter().chain(content) {
                reads.push(read);
                of.push(at);
            }
        }
        let found = if reads.is_empty() { Vec::new() } else { self.source.read(&reads)? };
        for (at, found) in of.into_iter().zip(found) {
            let rows = match found {
                Found::Rows(rows) => rows,
                Found::Row(row) => row.into_iter().collect(),
                Found::Names(_) => Vec::new(),
            };
            for row in rows {
                hold(nodes[at], row);
            }
        }
        for node in nodes {
            complete(node, &self.acls);
        }
        Ok(())
    }
}

impl Parts for Fetch<'_> {
    /// What follows may be read ahead.
    fn read(&self, dir: Ino, from: Option<&Cursor>) -> Result<Part, DumpError> {
        let page = self.source.scan(Scan::Entries { dir, nodes: true }, from, PAGE)?.sound()?;
        let next = match page.next {
            None => Next::End,
            Some(cursor) => match self.ahead_from(dir, Some(cursor)) {
                Ok(coming) => Next::Coming(coming),
                Err(Some(cursor)) => Next::At(cursor),
                Err(None) => Next::End,
            },
        };
        let mut entries = Vec::with_capacity(page.rows.len() / 2);
        let mut named = None;
        for row in page.rows {
            match row {
                Row::Entry(_, name, _) => named = Some(name),
                // An entry without a node leads nowhere.
                Row::Node(ino, attr) => {
                    entries.extend(named.take().map(|name| (name, Node::new(ino, attr))));
                }
                _ => {}
            }
        }
        self.fill(entries.iter_mut().map(|(_, node)| node))?;
        Ok(Part { entries, next })
    }

    fn ahead(&self, dir: Ino) -> Option<Coming> {
        self.ahead_from(dir, None).ok()
    }

    fn take(&self, coming: &Coming) -> Result<Part, DumpError> {
        let part = coming.0.recv();
        self.ahead.fetch_sub(1, Ordering::Relaxed);
        // The thread panicked: whoever joins it says why.
        part.unwrap_or_else(|_| Err(DumpError::File(std::io::ErrorKind::BrokenPipe.into())))
    }
}

/// How many chunks of a node are its content.
pub(crate) fn chunks(attr: &Attr) -> u32 {
    if attr.is_file() { attr.length.div_ceil(CHUNK) as u32 } else { 0 }
}

/// Adds to a node what follows from all that it holds; `acls` are the rules by their ids.
pub(crate) fn complete(node: &mut Node, acls: &FxHashMap<u32, AclRule>) {
    node.chunks.sort_unstable_by_key(|(index, _)| *index);
    // Engines return them in any order.
    node.xattrs.sort_unstable();
    let rule = |id: u32| acls.get(&id).cloned();
    node.access_acl = rule(node.attr.access_acl);
    node.default_acl = rule(node.attr.default_acl);
}

/// Adds what a record holds to its node.
pub(crate) fn hold(node: &mut Node, row: Row) {
    match row {
        Row::Xattr(_, name, value) => node.xattrs.push((name, value)),
        Row::Symlink(_, target) => node.symlink = target,
        Row::Chunk(_, index, slices) => node.chunks.push((index, slices)),
        _ => {}
    }
}

/// Waits for threads; panics as they did.
pub(crate) fn join(threads: Vec<ScopedJoinHandle<'_, ()>>) {
    for thread in threads {
        thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    }
}
