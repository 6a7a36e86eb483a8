//! More records than memory holds, in order: sorted runs in files, merged as they are read.
//!
//! What must stay true: memory is one buffer while records come in, and besides it a page for each
//! run while they go out; the files have no name, so that nothing stays behind.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
};

/// Bytes read of a run at once.
const READ: usize = 64 << 10;
/// Bytes written to a run at once.
const WRITE: usize = 1 << 20;

/// Records of `N` bytes, to be sorted as bytes.
pub(super) struct Sorter<const N: usize> {
    dir: PathBuf,
    /// Records kept in memory.
    most: usize,
    kept: Vec<[u8; N]>,
    runs: Vec<File>,
    added: u64,
}

impl<const N: usize> Sorter<N> {
    /// One that keeps `bytes` in memory, and what is beyond in files in `dir`.
    pub(super) fn new(dir: &Path, bytes: usize) -> Self {
        Self { dir: dir.to_owned(), most: (bytes / N).max(1), kept: Vec::new(), runs: Vec::new(), added: 0 }
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: [u8; N]) -> io::Result<()> {
        if self.kept.len() >= self.most {
            self.spill()?;
        }
        self.kept.push(record);
        self.added += 1;
        Ok(())
    }

    /// How many records were added.
    pub(super) fn added(&self) -> u64 {
        self.added
    }

    /// Writes what is in memory to a file of its own.
    fn spill(&mut self) -> io::Result<()> {
        self.kept.sort_unstable();
        self.kept.dedup();
        let mut file = BufWriter::with_capacity(WRITE, tempfile::tempfile_in(&self.dir)?);
        for record in self.kept.drain(..) {
            file.write_all(&record)?;
        }
        self.runs.push(file.into_inner().map_err(io::IntoInnerError::into_error)?);
        Ok(())
    }

    /// All records, each once, in order.
    pub(super) fn sorted(mut self) -> io::Result<Sorted<N>> {
        if !self.runs.is_empty() {
            self.spill()?;
        }
        self.kept.sort_unstable();
        self.kept.dedup();
        let mut sorted = Sorted {
            kept: self.kept.into_iter(),
            runs: Vec::with_capacity(self.runs.len()),
            heads: BinaryHeap::new(),
            last: None,
        };
        for mut file in self.runs {
            file.rewind()?;
            sorted.runs.push(BufReader::with_capacity(READ, file));
            sorted.advance(sorted.runs.len() - 1)?;
        }
        Ok(sorted)
    }
}

/// Records in order.
pub(super) struct Sorted<const N: usize> {
    /// All of them, if there are no runs.
    kept: std::vec::IntoIter<[u8; N]>,
    runs: Vec<BufReader<File>>,
    /// The next record of each run that has one.
    heads: BinaryHeap<Reverse<([u8; N], usize)>>,
    last: Option<[u8; N]>,
}

impl<const N: usize> Sorted<N> {
    fn advance(&mut self, run: usize) -> io::Result<()> {
        let mut record = [0; N];
        match self.runs[run].read_exact(&mut record) {
            Ok(()) => self.heads.push(Reverse((record, run))),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The next record; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<[u8; N]>> {
        if self.runs.is_empty() {
            return Ok(self.kept.next());
        }
        while let Some(Reverse((record, run))) = self.heads.pop() {
            self.advance(run)?;
            if self.last != Some(record) {
                self.last = Some(record);
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use sluice_types::Rng;

    use super::*;

    #[test]
    fn records_come_back_in_order_and_once_however_little_memory_there_is() {
        for (count, bytes) in [(0, 64), (5, 64), (8, 64), (9, 64), (5000, 64), (5000, 1 << 20)] {
            let mut rng = Rng::seeded(7);
            let mut sorter = Sorter::<8>::new(&std::env::temp_dir(), bytes);
            let mut expected = std::collections::BTreeSet::new();
            for _ in 0..count {
                let record = rng.below(3000).to_be_bytes();
                expected.insert(record);
                sorter.add(record).expect("added");
            }
            assert_eq!(sorter.runs.is_empty(), count * 8 <= bytes.max(64), "{count} in {bytes} bytes");
            let mut sorted = sorter.sorted().expect("sorted");
            let mut found = Vec::new();
            while let Some(record) = sorted.next().expect("read") {
                found.push(record);
            }
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{count} in {bytes} bytes");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told() {
        let mut sorter = Sorter::<8>::new(Path::new("/nowhere/at/all"), 8);
        sorter.add([0; 8]).expect("in memory");
        assert!(sorter.add([1; 8]).is_err());
    }
}
