//! Does the background work of clients now and completely: it deletes expired trash, deleted files
//! and replaced slices, and compacts files.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use sluice_data::{DataConfig, DataStore};
use sluice_meta::{BlockSink, engine::Scan, schema::Row};
use sluice_object::Compression;
use sluice_types::{Clock, FsError, FsResult, Ino, SystemClock};
use sluice_vfs::MetaIndex;

use super::{Collector, Found};
use crate::progress::Progress;

const DAY: i64 = 24 * 3600;
/// Age from which a clone without a name has no client any more that works on it, seconds.
const ABANDONED: i64 = DAY;
/// Memory for compactions, bytes.
const BUFFER: u64 = 64 << 20;
/// How often a chunk is tried that others compact at the same time: the blocks of what they
/// replaced are gone.
const TRIES: usize = 3;

/// Deletes blocks through the data path, and counts.
struct Sink<'a> {
    data: &'a DataStore,
    progress: &'a Progress,
    slices: AtomicU64,
}

impl BlockSink for Sink<'_> {
    fn delete_slices(&self, slices: &[(u64, u32)]) -> Vec<FsResult<()>> {
        self.slices.fetch_add(slices.len() as u64, Ordering::Relaxed);
        self.progress.add(slices.iter().map(|(_, size)| u64::from(*size)).sum());
        self.data.delete_slices(slices).into_iter().map(|deleted| deleted.map_err(FsError::io)).collect()
    }
}

impl Collector<'_> {
    /// Cleans as far as the flags say, and counts what waits to be. How many slices were deleted,
    /// if any were to be.
    pub(super) fn clean(&self, found: &mut Found) -> Result<Option<u64>> {
        let (now, delete) = (SystemClock.now().sec, self.args.delete);
        let edge = now - DAY * self.meta.env().format().trash_days;
        if delete {
            let entries = self.meta.due_trash(now, &self.interrupt).context("the trash cannot be listed")?;
            let progress = Progress::new("empty trash", Some(entries));
            self.meta
                .clean_trash(now, &self.interrupt, &|count| progress.add(count))
                .context("the trash cannot be emptied")?;
            progress.finish();
            let abandoned = self.meta.clean_detached(now - ABANDONED, &self.interrupt);
            let count = abandoned.context("abandoned clones cannot be removed")?;
            if count > 0 {
                errln!("removed {count} abandoned clones");
            }
        }
        self.count_waiting(edge, found)?;
        if !delete && !self.args.compact {
            return Ok(None);
        }
        let index = MetaIndex::new(Arc::clone(self.meta));
        let config = self.data_config()?;
        let data = DataStore::open(&config, Arc::clone(&self.store), index, None)?;
        let mut slices = 0;
        if delete {
            // First, for nobody needs their chunks compacted.
            slices += delete_with(&data, "delete files", Some(found.deleted_files.bytes), |sink| {
                self.meta.clean_deleted_files(i64::MAX, sink, &self.interrupt)
            })
            .context("deleted files cannot be cleaned up")?;
        }
        if self.args.compact {
            self.compact(&data)?;
        }
        let mut unused = || {
            if delete {
                slices +=
                    delete_with(&data, "delete replaced slices", Some(found.delayed_slices.bytes), |sink| {
                        self.meta.clean_delayed(edge, sink, &self.interrupt)
                    })?;
            }
            // How many there are shows only when all references are read.
            slices += delete_with(&data, "delete unused slices", None, |sink| {
                self.meta.clean_unreferenced(sink, &self.interrupt)
            })?;
            Ok::<_, FsError>(slices)
        };
        unused().context("slices that nothing shows cannot be cleaned up").map(Some)
    }

    /// Counts deleted files, and slices that were replaced: with `--delete` those that now go,
    /// replaced before `edge`, Unix seconds.
    fn count_waiting(&self, edge: i64, found: &mut Found) -> Result<()> {
        if !self.args.delete {
            // As JuiceFS: these are the numbers of what is cleaned.
            return Ok(());
        }
        let counted = self
            .meta
            .each_page(Scan::DelFiles, &self.interrupt, |rows| {
                for row in rows {
                    if let Row::DelFile(_, length, _) = row {
                        found.deleted_files.add(length);
                    }
                }
                Ok(())
            })
            .and_then(|()| {
                self.meta.each_page(Scan::DelSlices, &self.interrupt, |rows| {
                    for row in rows {
                        let Row::DelSlices(_, time, slices) = row else { continue };
                        let due = slices.iter().filter(|_| time < edge);
                        due.for_each(|(_, size)| found.delayed_slices.add(u64::from(*size)));
                    }
                    Ok(())
                })
            });
        counted.context("what waits to be deleted cannot be listed")
    }

    fn data_config(&self) -> Result<DataConfig> {
        let format = self.meta.env().format();
        Ok(DataConfig {
            volume: format.uuid.clone(),
            block_size: self.layout.block_size,
            hash_prefix: self.layout.hash_prefix,
            compression: format.compression.parse::<Compression>().map_err(anyhow::Error::msg)?,
            buffer_size: BUFFER,
            max_deletes: self.args.threads,
            auto_compact: false,
            ..DataConfig::default()
        })
    }

    /// Calls `each` with the chunks of each page that have more than one slice.
    fn each_split(&self, mut each: impl FnMut(&[(Ino, u32)]) -> FsResult<()>) -> Result<()> {
        let chunk = |row| match row {
            Row::Chunk(ino, index, records) if records.len() > 1 => Some((ino, index)),
            _ => None,
        };
        self.meta
            .each_page(Scan::Chunks, &self.interrupt, |rows| {
                each(&rows.into_iter().filter_map(chunk).collect::<Vec<_>>())
            })
            .context("the chunks cannot be compacted")
    }

    /// Compacts all chunks of more than one slice.
    fn compact(&self, data: &DataStore) -> Result<()> {
        let mut split = 0;
        self.each_split(|chunks| {
            split += chunks.len() as u64;
            Ok(())
        })?;
        let progress = Progress::new("compact chunks", Some(split));
        let (mut failed, mut replaced) = (None, 0);
        let compact = |chunks: &[(Ino, u32)]| {
            let (count, error) = self.compact_some(data, chunks, &progress);
            replaced += count;
            failed = failed.take().or(error);
            if self.interrupt.is_set() { Err(FsError::Interrupted) } else { Ok(()) }
        };
        let compacted = if split > 0 { self.each_split(compact) } else { Ok(()) };
        progress.finish();
        compacted?;
        errln!("compacted {replaced} chunks");
        match failed {
            Some(error) => Err(error).context("some chunks could not be compacted; begin gc again"),
            None => Ok(()),
        }
    }

    /// Compacts chunks side by side. How many were, and the first error.
    fn compact_some(
        &self,
        data: &DataStore,
        chunks: &[(Ino, u32)],
        progress: &Progress,
    ) -> (usize, Option<FsError>) {
        let (next, replaced, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            while let Some((ino, index)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                if self.interrupt.is_set() {
                    return;
                }
                match compact_one(data, *ino, *index) {
                    Ok(true) => drop(replaced.fetch_add(1, Ordering::Relaxed)),
                    // Nothing to gain, or the file is gone.
                    Ok(false) | Err(FsError::NotFound | FsError::Stale) => {}
                    Err(error) => {
                        tracing::warn!(%ino, chunk = index, %error, "a chunk could not be compacted");
                        failed.lock().get_or_insert(error);
                    }
                }
                progress.add(1);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.args.threads.min(chunks.len()) {
                scope.spawn(work);
            }
            work();
        });
        (replaced.into_inner(), failed.into_inner())
    }
}

/// Runs something that deletes slices of about so many bytes; how many it deleted.
fn delete_with(
    data: &DataStore,
    what: &'static str,
    about: Option<u64>,
    work: impl FnOnce(&Sink<'_>) -> FsResult<()>,
) -> FsResult<u64> {
    let progress = Progress::bytes(what, about);
    let sink = Sink { data, progress: &progress, slices: AtomicU64::new(0) };
    let done = work(&sink);
    let slices = sink.slices.into_inner();
    progress.finish();
    done.map(|()| slices)
}

/// Compacts a chunk, with its records as they are then.
fn compact_one(data: &DataStore, ino: Ino, index: u32) -> FsResult<bool> {
    let mut compacted = data.compact(ino, index);
    for _ in 1..TRIES {
        if !matches!(compacted, Err(FsError::Io(_))) {
            break;
        }
        compacted = data.compact(ino, index);
    }
    compacted
}
