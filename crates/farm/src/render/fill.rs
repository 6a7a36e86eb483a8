//! Writes the data set into the volume, as one client.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::Result;
use sluice_data::{DataConfig, DataStore};
use sluice_meta::{Interrupt, Meta};
use sluice_types::{Caller, FileType, Ino};
use sluice_vfs::{MetaIndex, NewNode, Place, Vfs, VfsConfig};

use super::{
    data_set::{DataSet, TOP, content, dir_name, dir_of, file_name},
    volume,
};

/// Threads that write.
const THREADS: usize = 8;
/// Bytes of one write.
const WRITE: u64 = 1 << 20;

/// Writes all files.
pub(crate) fn fill(url: &str, set: &DataSet) -> Result<()> {
    let meta = Meta::open(volume::engine(url)?, volume::options("fill".into(), false))?;
    let store = sluice_object::open(&volume::store_config(&meta))?;
    let config = DataConfig { volume: meta.env().format().uuid.clone(), ..DataConfig::default() };
    let index = MetaIndex::new(meta);
    let data = DataStore::open(&config, store, Arc::clone(&index) as _, None)?;
    let vfs = Vfs::new(index, data, VfsConfig { cleaning: false, ..VfsConfig::default() });
    let filling = Filling { vfs: &vfs, caller: vfs.caller(0, 0, 1), never: Interrupt::never() };
    let top = filling.dir(vfs.root(), TOP)?;
    let dirs: Vec<Ino> =
        (0..set.dirs()).map(|dir| filling.dir(top, &dir_name(dir))).collect::<Result<_>>()?;
    let next = AtomicUsize::new(0);
    let written = std::thread::scope(|scope| {
        let write = || {
            loop {
                let file = next.fetch_add(1, Ordering::Relaxed);
                if file >= set.files() {
                    return Ok(());
                }
                filling.file(dirs[dir_of(file)], file, set.size(file))?;
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(write)).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|_| anyhow::bail!("a thread that writes files panicked"))
        };
        threads.into_iter().map(ended).fold(Ok(()), Result::and)
    });
    let closed = vfs.close(None);
    written?;
    Ok(closed?)
}

struct Filling<'v> {
    vfs: &'v Arc<Vfs>,
    caller: Caller,
    never: Interrupt,
}

impl Filling<'_> {
    fn dir(&self, parent: Ino, name: &str) -> Result<Ino> {
        let node = NewNode { kind: FileType::Dir, mode: 0o755, umask: 0, rdev: 0 };
        Ok(self.vfs.make(&self.caller, &self.never, parent, name.as_bytes(), node)?.ino)
    }

    fn file(&self, dir: Ino, file: usize, size: u64) -> Result<()> {
        let node = NewNode { kind: FileType::File, mode: 0o644, umask: 0, rdev: 0 };
        let flags = libc::O_WRONLY | libc::O_CREAT;
        let name = file_name(file);
        let (_, opened) = self.vfs.create(&self.caller, &self.never, dir, name.as_bytes(), node, flags)?;
        let mut at = 0;
        while at < size {
            let bytes = content(file, at, WRITE.min(size - at) as usize);
            let place = Place { fh: opened.fh, offset: at };
            at += u64::from(self.vfs.write(&self.caller, &self.never, place, &bytes, false)?);
        }
        self.vfs.flush(opened.fh, 0)?;
        Ok(self.vfs.release(opened.fh, None)?)
    }
}
