//! What was removed is deleted: the chunks of files without names, slices that nothing shows, their
//! blocks.
//!
//! Many at a time, so that it takes little from those who wait for the engine. What must stay true:
//! what is to be deleted stays on record until it is, block by block; one that cannot be deleted
//! keeps no other.

use sluice_types::{CHUNK_SIZE, FsError, FsResult, Ino};

use crate::{
    batch::Interrupt,
    engine::Scan,
    meta::Meta,
    ops::{
        chunks::FindChunks,
        compact::{DropChunk, DropDelayed, ForgetFile, ForgetSlice},
    },
    schema::Row,
};

/// Where blocks of slices are deleted that nothing shows any more.
pub trait BlockSink: Send + Sync {
    /// Deletes all blocks of slices (id, size). Answers in their order; an error leaves the slice
    /// on record, to be tried again later.
    fn delete_slices(&self, slices: &[(u64, u32)]) -> Vec<FsResult<()>>;
}

/// Files deleted together.
const FILES_AT_ONCE: usize = 256;
/// Slices deleted together.
const SLICES_AT_ONCE: usize = 1000;
/// Chunks of a deleted file looked for at once.
const CHUNKS_AT_ONCE: u32 = 1 << 14;
/// Chunks (2 GiB) that must be missing behind the end and the last chunk of a deleted file for it
/// to have no more.
const CHUNKS_BEHIND: u32 = 32;

/// A deleted file whose chunks are being looked for.
struct Search {
    ino: Ino,
    /// Chunks up to its length.
    end: u32,
    /// Where to look next.
    from: u32,
}

impl Search {
    fn to(&self) -> u32 {
        self.end.max(self.from).saturating_add(CHUNKS_BEHIND).min(self.from.saturating_add(CHUNKS_AT_ONCE))
    }

    /// Takes note of the last chunk found up to [`Self::to`]; whether there may be more.
    fn goes_on(&mut self, last: Option<u32>) -> bool {
        let to = self.to();
        self.end = self.end.max(last.map_or(0, |last| last + 1));
        let more = to > self.from && to < self.end.saturating_add(CHUNKS_BEHIND);
        self.from = to;
        more
    }
}

impl Meta {
    /// Deletes the chunks of files deleted before `before`, Unix seconds.
    pub fn clean_deleted_files(
        &self,
        before: i64,
        sink: &dyn BlockSink,
        interrupt: &Interrupt,
    ) -> FsResult<()> {
        self.each_page(Scan::DelFiles, interrupt, |rows| {
            let files = rows.into_iter().filter_map(|row| match row {
                Row::DelFile(ino, length, time) if time <= before => Some((ino, length)),
                _ => None,
            });
            self.delete_files(&files.collect::<Vec<_>>(), sink, interrupt)
        })
    }

    /// Deletes the chunks of deleted files (inode, length), then the records that they were
    /// deleted. The first error is answered when all were tried.
    pub fn delete_files(
        &self,
        files: &[(Ino, u64)],
        sink: &dyn BlockSink,
        interrupt: &Interrupt,
    ) -> FsResult<()> {
        let mut failed = Ok(());
        for files in files.chunks(FILES_AT_ONCE) {
            if let Err(error) = self.delete_some(files, sink, interrupt)
                && failed.is_ok()
            {
                failed = Err(error);
            }
        }
        failed
    }

    fn delete_some(&self, files: &[(Ino, u64)], sink: &dyn BlockSink, interrupt: &Interrupt) -> FsResult<()> {
        let chunks = self.chunks_of_deleted(files, interrupt)?;
        let drops = chunks.iter().map(|(ino, index)| DropChunk { ino: *ino, index: *index }).collect();
        let (mut unused, mut kept, mut failed) = (Vec::new(), Vec::new(), Ok(()));
        for (dropped, (ino, _)) in self.run_all(drops, interrupt).into_iter().zip(&chunks) {
            match dropped {
                Ok(slices) => unused.extend(slices),
                Err(error) => {
                    kept.push(*ino);
                    failed = failed.and(Err(error));
                }
            }
        }
        self.delete_slices(&unused, sink, interrupt)?;
        let gone = files.iter().filter(|(ino, _)| !kept.contains(ino));
        let forget = gone.map(|(ino, length)| ForgetFile { ino: *ino, length: *length }).collect();
        self.run_all(forget, interrupt).into_iter().collect::<FsResult<()>>().and(failed)
    }

    /// Chunks of deleted files. Some may lie behind the end, where a truncation left them; not
    /// every engine can list them, so they are looked for until none comes for a while.
    fn chunks_of_deleted(&self, files: &[(Ino, u64)], interrupt: &Interrupt) -> FsResult<Vec<(Ino, u32)>> {
        let search = |(ino, length): &(Ino, u64)| Search {
            ino: *ino,
            end: length.div_ceil(CHUNK_SIZE) as u32,
            from: 0,
        };
        let mut open: Vec<Search> = files.iter().map(search).collect();
        let mut chunks = Vec::new();
        while !open.is_empty() {
            let ranges = open.iter().map(|search| (search.ino, search.from, search.to())).collect();
            let mut found = self.read(&FindChunks(ranges), interrupt)?.into_iter();
            open.retain_mut(|search| {
                let indices = found.next().unwrap_or_default();
                let last = indices.last().copied();
                chunks.extend(indices.into_iter().map(|index| (search.ino, index)));
                search.goes_on(last)
            });
        }
        Ok(chunks)
    }

    /// Deletes the blocks of slices that nothing shows, then their records. What cannot be deleted
    /// stays on record.
    pub fn delete_slices(
        &self,
        slices: &[(u64, u32)],
        sink: &dyn BlockSink,
        interrupt: &Interrupt,
    ) -> FsResult<()> {
        for slices in slices.chunks(SLICES_AT_ONCE) {
            let mut forget = Vec::with_capacity(slices.len());
            for ((id, size), deleted) in slices.iter().copied().zip(sink.delete_slices(slices)) {
                match deleted {
                    Ok(()) => forget.push(ForgetSlice { id, size }),
                    Err(error) => {
                        tracing::warn!(id, size, %error, "the blocks of a slice could not be deleted; it is tried again later");
                    }
                }
            }
            self.run_all(forget, interrupt).into_iter().collect::<FsResult<()>>()?;
            if interrupt.is_set() {
                return Err(FsError::Interrupted);
            }
        }
        Ok(())
    }

    /// Deletes slices without references.
    ///
    /// # Errors
    /// The engine's. Blocks that could not be deleted are none: their slices stay on record.
    pub fn clean_unreferenced(&self, sink: &dyn BlockSink, interrupt: &Interrupt) -> FsResult<()> {
        self.each_page(Scan::SliceRefs, interrupt, |rows| {
            let unused = rows.into_iter().filter_map(|row| match row {
                Row::SliceRef(id, size, refs) if refs <= 0 => Some((id, size)),
                _ => None,
            });
            self.delete_slices(&unused.collect::<Vec<_>>(), sink, interrupt)
        })
    }

    /// Lets go of slices that compactions replaced before `before`, Unix seconds.
    ///
    /// # Errors
    /// The engine's. Blocks that could not be deleted are none: their slices stay on record.
    pub fn clean_delayed(&self, before: i64, sink: &dyn BlockSink, interrupt: &Interrupt) -> FsResult<()> {
        self.each_page(Scan::DelSlices, interrupt, |rows| {
            let due = rows.into_iter().filter_map(|row| match row {
                Row::DelSlices(id, time, slices) if time < before => Some(DropDelayed { id, time, slices }),
                _ => None,
            });
            let mut unused = Vec::new();
            for slices in self.run_all(due.collect(), interrupt) {
                unused.extend(slices?);
            }
            self.delete_slices(&unused, sink, interrupt)
        })
    }
}
