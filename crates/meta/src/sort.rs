//! Sorts more records than fit into memory (external merge sort): writes sorted runs to a file, and
//! merges them when they are read.
//!
//! What must stay true: the memory use is one buffer while records are added, and one page for each
//! run while they are read. The file has no name, so it disappears with the process.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write},
    ops::Range,
    path::PathBuf,
};

use sluice_types::FsError;

/// Bytes read of a run at once.
const READ: usize = 64 << 10;
/// Bytes written to a run at once.
const WRITE: usize = 256 << 10;

/// Where records are sorted, and how much memory a sort takes.
#[derive(Clone, Debug)]
pub struct SortSpace {
    /// Folder for what does not fit into memory.
    pub dir: PathBuf,
    /// Bytes of records that one sort keeps in memory.
    pub bytes: usize,
}

impl SortSpace {
    /// Bytes in memory where nothing else is known: a check has up to eight sorts at once.
    pub const BYTES: usize = 16 << 20;

    /// Checks that files can be made in the folder.
    ///
    /// # Errors
    /// The folder, and why not.
    pub fn check(&self) -> Result<(), SortError> {
        tempfile::tempfile_in(&self.dir).map(drop).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> SortError {
        SortError { dir: self.dir.clone(), source }
    }
}

impl Default for SortSpace {
    /// In the folder for temporary files.
    fn default() -> Self {
        Self { dir: std::env::temp_dir(), bytes: Self::BYTES }
    }
}

/// Records could not be written to the folder where they are sorted, or not be read from there.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot sort in {}; make room there, or name another folder with --external-sort-dir: {source}",
    dir.display()
)]
pub struct SortError {
    dir: PathBuf,
    source: io::Error,
}

impl From<SortError> for FsError {
    fn from(error: SortError) -> Self {
        Self::io(error)
    }
}

impl From<SortError> for io::Error {
    /// Without the folder, for callers that name it themselves.
    fn from(error: SortError) -> Self {
        error.source
    }
}

/// Takes records, which are sorted as bytes.
pub struct Sorter(Sorted);

/// A record in memory. What it begins with, as a number, decides most comparisons.
#[derive(Clone, Copy)]
struct Kept {
    begins: u64,
    from: u32,
    to: u32,
}

impl Sorter {
    /// One without records.
    pub fn new(space: &SortSpace) -> Self {
        let space = space.clone();
        Self(Sorted { space, kept: Vec::new(), index: Vec::new(), file: None, runs: Vec::new(), count: 0 })
    }

    /// Adds a record.
    pub fn add(&mut self, record: &[u8]) -> Result<(), SortError> {
        let all = &mut self.0;
        let taken = all.kept.len() + record.len() + (all.index.len() + 1) * size_of::<Kept>();
        // The places of records in memory are 32-bit numbers.
        if taken > all.space.bytes.min(u32::MAX as usize) && !all.index.is_empty() {
            all.spill().map_err(|error| all.space.failed(error))?;
        }
        let from = all.kept.len() as u32;
        all.kept.extend_from_slice(record);
        let mut begins = [0; 8];
        let common = record.len().min(8);
        begins[..common].copy_from_slice(&record[..common]);
        let to = all.kept.len() as u32;
        all.index.push(Kept { begins: u64::from_be_bytes(begins), from, to });
        all.count += 1;
        Ok(())
    }

    /// All records, to be read.
    pub fn sorted(self) -> Result<Sorted, SortError> {
        let Self(mut all) = self;
        if all.file.is_none() {
            all.sort();
        } else {
            all.spill().map_err(|error| all.space.failed(error))?;
            (all.kept, all.index) = (Vec::new(), Vec::new());
        }
        Ok(all)
    }
}

fn bytes_of(kept: &[u8], record: Kept) -> &[u8] {
    &kept[record.from as usize..record.to as usize]
}

/// Records that can be read in order, as often as need be.
pub struct Sorted {
    space: SortSpace,
    /// Records that are in no run, one after the other; all of them if there are no runs.
    kept: Vec<u8>,
    index: Vec<Kept>,
    file: Option<File>,
    runs: Vec<Range<u64>>,
    count: u64,
}

impl Sorted {
    /// Records that were added, equal ones included.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The records from the first on.
    pub fn records(&self) -> Result<Records<'_>, SortError> {
        let mut records =
            Records { sorted: self, at: 0, runs: Vec::new(), heads: BinaryHeap::new(), last: Vec::new() };
        let Some(file) = &self.file else { return Ok(records) };
        for (run, range) in self.runs.iter().enumerate() {
            let section = Section::new(file, range.clone());
            let mut reader = BufReader::with_capacity(READ, section);
            let mut head = Head { record: Vec::new(), run, count: 0 };
            if read_record(&mut reader, &mut head).map_err(|error| self.space.failed(error))? {
                records.heads.push(Reverse(head));
            }
            records.runs.push(reader);
        }
        Ok(records)
    }

    fn sort(&mut self) {
        let Self { kept, index, .. } = self;
        index.sort_unstable_by(|a, b| {
            a.begins.cmp(&b.begins).then_with(|| bytes_of(kept, *a).cmp(bytes_of(kept, *b)))
        });
    }

    /// Writes what is in memory as a run.
    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(&self.space.dir)?),
        };
        let start = self.runs.last().map_or(0, |run| run.end);
        let mut written = 0;
        let mut out = BufWriter::with_capacity(WRITE, file);
        for same in self.index.chunk_by(|a, b| bytes_of(&self.kept, *a) == bytes_of(&self.kept, *b)) {
            let record = bytes_of(&self.kept, same[0]);
            let many = same.len() > 1;
            written += put_number(&mut out, (record.len() as u64) << 1 | u64::from(many))?;
            if many {
                written += put_number(&mut out, same.len() as u64)?;
            }
            out.write_all(record)?;
            written += record.len() as u64;
        }
        out.flush()?;
        drop(out);
        self.runs.push(start..start + written);
        self.kept.clear();
        self.index.clear();
        Ok(())
    }
}

/// Reads records in order.
pub struct Records<'a> {
    sorted: &'a Sorted,
    /// The next record in memory.
    at: usize,
    runs: Vec<BufReader<Section<'a>>>,
    /// The next record of each run that has one.
    heads: BinaryHeap<Reverse<Head>>,
    last: Vec<u8>,
}

/// The next record of a run.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    record: Vec<u8>,
    run: usize,
    /// How often it was added to this run.
    count: u64,
}

impl Records<'_> {
    /// The next record and how often it was added; `None` at the end.
    #[expect(clippy::should_implement_trait, reason = "a record is lent until the next one is asked for")]
    pub fn next(&mut self) -> Result<Option<(&[u8], u64)>, SortError> {
        let sorted = self.sorted;
        if sorted.file.is_none() {
            let rest = &sorted.index[self.at..];
            let Some(first) = rest.first().map(|record| bytes_of(&sorted.kept, *record)) else {
                return Ok(None);
            };
            let count = rest.iter().take_while(|record| bytes_of(&sorted.kept, **record) == first).count();
            self.at += count;
            return Ok(Some((first, count as u64)));
        }
        let mut count = 0;
        while let Some(mut next) = self.heads.peek_mut() {
            let head = &mut next.0;
            if count == 0 {
                std::mem::swap(&mut self.last, &mut head.record);
            } else if head.record != self.last {
                break;
            }
            count += head.count;
            let read = read_record(&mut self.runs[head.run], head);
            if !read.map_err(|error| sorted.space.failed(error))? {
                PeekMut::pop(next);
            }
        }
        Ok((count > 0).then_some((&self.last, count)))
    }
}

/// Reads the next record of a run; whether there is one.
fn read_record(run: &mut BufReader<Section<'_>>, head: &mut Head) -> io::Result<bool> {
    if run.fill_buf()?.is_empty() {
        return Ok(false);
    }
    let length = get_number(run)?;
    head.count = if length & 1 == 1 { get_number(run)? } else { 1 };
    head.record.resize((length >> 1) as usize, 0);
    run.read_exact(&mut head.record)?;
    Ok(true)
}

/// Writes a number, seven bits a byte; how many bytes that took.
fn put_number(out: &mut impl Write, mut number: u64) -> io::Result<u64> {
    let mut taken = 1;
    while number > 0x7F {
        out.write_all(&[number as u8 | 0x80])?;
        number >>= 7;
        taken += 1;
    }
    out.write_all(&[number as u8])?;
    Ok(taken)
}

fn get_number(run: &mut impl Read) -> io::Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        run.read_exact(&mut byte)?;
        number |= u64::from(byte[0] & 0x7F) << shift;
        if byte[0] < 0x80 {
            return Ok(number);
        }
    }
    Err(ErrorKind::InvalidData.into())
}

/// A part of a file, to be read.
pub struct Section<'a> {
    file: &'a File,
    left: Range<u64>,
}

impl<'a> Section<'a> {
    /// These bytes of `file`. If the file ends before them, a read fails.
    pub const fn new(file: &'a File, bytes: Range<u64>) -> Self {
        Self { file, left: bytes }
    }
}

impl Read for Section<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min((self.left.end - self.left.start) as usize);
        let read = read_at(self.file, &mut into[..most], self.left.start)?;
        if read == 0 && most > 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.left.start += read as u64;
        Ok(read)
    }
}

/// Reads from an offset of a file.
#[cfg(unix)]
fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, into, at)
}

/// Reads from an offset of a file.
#[cfg(windows)]
fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, into, at)
}

/// Reads the numbers of a record, big-endian: so that records are in the order of their numbers.
/// What a record lacks is 0.
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((first, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *first
    }

    /// A number of one byte.
    pub fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    /// A number of eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}

#[cfg(test)]
mod tests {
    use sluice_types::Rng;

    use super::*;

    fn space(bytes: usize) -> SortSpace {
        SortSpace { bytes, ..SortSpace::default() }
    }

    #[test]
    fn records_come_back_in_order_and_are_counted_however_little_memory_there_is() {
        let sorts = [(0, 0), (1, 0), (2, 0), (9, 1 << 20), (5000, 0), (5000, 1 << 10), (5000, 1 << 20)];
        for (count, bytes) in sorts {
            let mut rng = Rng::seeded(7);
            let mut sorter = Sorter::new(&space(bytes));
            let mut expected = std::collections::BTreeMap::new();
            for _ in 0..count {
                let number = rng.below(3000).to_be_bytes();
                // Of all lengths; some need a longer header.
                let record = [&number[..], &vec![b'x'; rng.below(2) as usize * 100]].concat()
                    [rng.below(7) as usize..]
                    .to_vec();
                *expected.entry(record.clone()).or_insert(0) += 1;
                sorter.add(&record).expect("added");
            }
            let sorted = sorter.sorted().expect("sorted");
            let spills = count > 1 && bytes < 1 << 20;
            assert_eq!(sorted.runs.len() > 1, spills, "{count} in {bytes} bytes");
            for _ in 0..2 {
                let (mut found, mut records) = (Vec::new(), sorted.records().expect("read"));
                while let Some((record, count)) = records.next().expect("read") {
                    found.push((record.to_vec(), count));
                }
                assert!(found.iter().is_sorted());
                assert!(found.into_iter().eq(expected.clone()), "{count} in {bytes} bytes");
            }
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told() {
        let mut sorter = Sorter::new(&SortSpace { dir: "/nowhere/at/all".into(), bytes: 8 });
        sorter.add(&[0; 8]).expect("in memory");
        let message = sorter.add(&[1; 8]).expect_err("nowhere").to_string();
        assert!(
            message.contains("cannot sort in /nowhere/at/all") && message.contains("No such file"),
            "{message}"
        );
    }

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let record = [&7u64.to_be_bytes()[..], &8u32.to_be_bytes(), &[9]].concat();
        let mut fields = Fields(&record);
        assert_eq!((fields.u64(), fields.u32(), fields.u8(), fields.u8()), (7, 8, 9, 0));
    }
}
