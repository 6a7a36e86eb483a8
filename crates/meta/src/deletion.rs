//! Deletes removed data: the chunks of files without names, slices to which nothing refers, and
//! their blocks.
//!
//! One operation deletes many of them, so that the database has time for other clients. What must
//! stay true: what is to be deleted stays recorded until all its blocks are deleted. If one
//! deletion fails, the others continue.

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

/// Deletes the blocks of slices to which nothing refers.
pub trait BlockSink: Send + Sync {
    /// Deletes all blocks of slices (id, size). Returns the results in their order. After an error
    /// the slice stays recorded, and is tried again later.
    fn delete_slices(&self, slices: &[(u64, u32)]) -> Vec<FsResult<()>>;
}

/// Files deleted together.
const FILES_AT_ONCE: usize = 256;
/// Slices deleted together.
const SLICES_AT_ONCE: usize = 1000;
/// Chunks of a deleted file looked for at once.
const CHUNKS_AT_ONCE: u32 = 1 << 14;
/// Chunks (2 GiB) that must be missing after the end and after the last chunk of a deleted file.
/// Then it has no more.
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

    /// Records the last chunk found up to [`Self::to`]. Returns whether there may be more.
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
    /// deleted. Returns the first error after all were tried.
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

    /// Chunks of deleted files. Some may be after the end of the file, where a truncation left
    /// them. Not every engine can list them, so they are looked up until a long run of them is
    /// missing.
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

    /// Deletes the blocks of slices to which nothing refers, then their records. What cannot be
    /// deleted stays recorded.
    pub fn delete_slices(
        &self,
        slices: &[(u64, u32)],
        sink: &dyn BlockSink,
        interrupt: &Interrupt,
    ) -> FsResult<()> {
        if !slices.is_empty() {
            // A commit that a power cut undoes may bring back a file that needs the blocks.
            self.retry(interrupt, || self.engine.sync())?;
        }
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
    /// The engine's. A block that could not be deleted is no error: its slice stays recorded.
    pub fn clean_unreferenced(&self, sink: &dyn BlockSink, interrupt: &Interrupt) -> FsResult<()> {
        self.each_page(Scan::SliceRefs, interrupt, |rows| {
            let unused = rows.into_iter().filter_map(|row| match row {
                Row::SliceRef(id, size, refs) if refs <= 0 => Some((id, size)),
                _ => None,
            });
            self.delete_slices(&unused.collect::<Vec<_>>(), sink, interrupt)
        })
    }

    /// Drops the references of slices that compactions replaced before `before`, Unix seconds.
    ///
    /// # Errors
    /// The engine's. A block that could not be deleted is no error: its slice stays recorded.
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
