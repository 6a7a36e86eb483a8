//! A mount as a rendering client uses it: a client of the volume without FUSE, or a directory.
//!
//! What must stay true: a client without FUSE caches names and attributes exactly as long as the
//! kernel would.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustc_hash::FxHashMap;
use sluice_meta::Interrupt;
use sluice_types::{Caller, Ino};
use sluice_vfs::Vfs;

use super::data_set::{TOP, dir_name, dir_of, file_name};

/// What a program does on a mount. Lengths are in bytes.
pub(crate) trait Mount: Send {
    /// The length of a file, by its path.
    fn stat(&mut self, file: usize) -> Result<u64>;

    /// Opens a file, and closes the one that was open.
    fn open(&mut self, file: usize) -> Result<()>;

    /// The length of the open file.
    fn fstat(&mut self) -> Result<u64>;

    /// Bytes of the open file. Fewer only at its end.
    fn read(&mut self, offset: u64, length: usize, into: &mut Vec<u8>) -> Result<()>;

    /// Closes the file that is open, if one is.
    fn close(&mut self) -> Result<()>;

    /// Requests about metadata that got past the kernel's caches so far, where that is known.
    fn requests(&self) -> u64 {
        0
    }
}

/// A client of the volume, and what the kernel would have cached of it.
pub(crate) struct Client {
    vfs: Arc<Vfs>,
    caller: Caller,
    never: Interrupt,
    names: FxHashMap<Node, Known>,
    open: Option<(usize, u64)>,
    requests: u64,
}

/// A node of the data set.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Node {
    Top,
    Dir(usize),
    File(usize),
}

/// What the kernel would know.
#[derive(Clone, Copy)]
struct Known {
    ino: Ino,
    length: u64,
    name_until: Instant,
    attr_until: Instant,
}

impl Client {
    pub(crate) fn new(vfs: Arc<Vfs>) -> Self {
        let caller = vfs.caller(0, 0, 1);
        Self { vfs, caller, never: Interrupt::never(), names: FxHashMap::default(), open: None, requests: 0 }
    }

    pub(crate) fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    fn walk(&mut self, node: Node) -> Result<Known> {
        let now = Instant::now();
        if let Some(known) = self.names.get(&node).filter(|known| known.name_until > now) {
            return Ok(*known);
        }
        let (parent, name) = match node {
            Node::Top => (self.vfs.root(), TOP.to_owned()),
            Node::Dir(dir) => (self.walk(Node::Top)?.ino, dir_name(dir)),
            Node::File(file) => (self.walk(Node::Dir(dir_of(file)))?.ino, file_name(file)),
        };
        self.requests += 1;
        let entry = self.vfs.lookup(&self.caller, &self.never, parent, name.as_bytes());
        let entry = entry.with_context(|| format!("lookup of {name}"))?;
        let known = Known {
            ino: entry.ino,
            length: entry.attr.length,
            name_until: now + entry.entry_ttl,
            attr_until: now + entry.attr_ttl,
        };
        self.names.insert(node, known);
        Ok(known)
    }

    fn length(&mut self, file: usize) -> Result<u64> {
        let known = self.walk(Node::File(file))?;
        let now = Instant::now();
        if known.attr_until > now {
            return Ok(known.length);
        }
        self.requests += 1;
        let (attr, ttl) = self.vfs.getattr(&self.never, known.ino)?;
        let known = Known { length: attr.length, attr_until: now + ttl, ..known };
        self.names.insert(Node::File(file), known);
        Ok(attr.length)
    }
}

impl Mount for Client {
    fn stat(&mut self, file: usize) -> Result<u64> {
        self.length(file)
    }

    fn open(&mut self, file: usize) -> Result<()> {
        self.close()?;
        let ino = self.walk(Node::File(file))?.ino;
        self.requests += 1;
        let opened = self.vfs.open(&self.caller, &self.never, ino, libc::O_RDONLY)?;
        self.open = Some((file, opened.fh));
        Ok(())
    }

    fn fstat(&mut self) -> Result<u64> {
        let (file, _) = self.open.context("no file is open")?;
        self.length(file)
    }

    fn read(&mut self, offset: u64, length: usize, into: &mut Vec<u8>) -> Result<()> {
        let (_, fh) = self.open.context("no file is open")?;
        into.clear();
        for piece in self.vfs.read(&self.never, fh, offset, length as u32)? {
            into.extend_from_slice(&piece);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let Some((_, fh)) = self.open.take() else { return Ok(()) };
        self.vfs.flush(fh, 0)?;
        Ok(self.vfs.release(fh, None)?)
    }

    fn requests(&self) -> u64 {
        self.requests
    }
}

/// The mount point of a real mount.
pub(crate) struct Directory {
    point: PathBuf,
    open: Option<File>,
}

impl Directory {
    pub(crate) fn new(point: PathBuf) -> Self {
        Self { point, open: None }
    }

    fn path(&self, file: usize) -> PathBuf {
        self.point.join(TOP).join(dir_name(dir_of(file))).join(file_name(file))
    }
}

impl Mount for Directory {
    fn stat(&mut self, file: usize) -> Result<u64> {
        Ok(std::fs::metadata(self.path(file))?.len())
    }

    fn open(&mut self, file: usize) -> Result<()> {
        self.open = Some(File::open(self.path(file))?);
        Ok(())
    }

    fn fstat(&mut self) -> Result<u64> {
        Ok(self.open.as_ref().context("no file is open")?.metadata()?.len())
    }

    fn read(&mut self, offset: u64, length: usize, into: &mut Vec<u8>) -> Result<()> {
        let file = self.open.as_ref().context("no file is open")?;
        // What is there already need not be cleared.
        into.resize(length, 0);
        let mut done = 0;
        while done < length {
            match file.read_at(&mut into[done..], offset + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        into.truncate(done);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.open = None;
        Ok(())
    }
}

/// How long clients believe names, attributes and what an open needs: the data set does not change.
pub(crate) const BELIEVED: Duration = Duration::from_hours(1);
