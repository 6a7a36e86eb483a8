//! The directories of a copy: one file of all entries, each with all that belongs to its inode, in
//! the order of directories and names.
//!
//! What must stay true: the temporary files have no names, so nothing remains of them when the
//! process ends. Memory does not grow with the volume.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::Path,
};

use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::Cursor,
    schema::{AclRule, Row},
    sort::{Section, SortSpace, Sorted, Sorter},
};
use sluice_types::{Ino, Name};

use super::pieces::{Piece, damaged, get, put, row, split};
use crate::{
    DumpError,
    fetch::{Coming, Next, PAGE, Part, Parts, chunks, complete, hold},
    json::Node,
    throttle::WorkThrottle,
};

/// Bytes read or written at once.
const BUFFER: usize = 256 << 10;
/// Bytes of the index for a directory: its inode, and where its entries begin.
const INDEXED: u64 = 16;

/// The directories of a copy.
pub(super) struct Dirs {
    entries: File,
    /// Where each directory begins, in the order of their inodes.
    index: File,
    count: u64,
    end: u64,
    acls: FxHashMap<u32, AclRule>,
}

impl Dirs {
    /// Brings pieces into the order of directories. Returns also the nodes of `roots` that exist;
    /// these have no names.
    pub(super) fn new(
        pieces: &Sorted,
        dir: &Path,
        acls: FxHashMap<u32, AclRule>,
        roots: &[Ino],
        throttle: &mut WorkThrottle,
    ) -> Result<(Self, Vec<Node>), DumpError> {
        let mut named = Sorter::new(&SortSpace { dir: dir.to_owned(), ..SortSpace::default() });
        let mut found = Vec::new();
        let (mut of, mut contents, mut bytes) = (Ino::NONE, Vec::new(), Vec::new());
        let mut records = pieces.records()?;
        while let Some((record, _)) = records.next()? {
            let (ino, piece) = split(record)?;
            if ino != of {
                found.extend(root(of, &contents, roots, &acls)?);
                of = ino;
                contents.clear();
            }
            match piece {
                Piece::Content(content) => drop(put(&mut contents, content)?),
                // A name of nothing leads nowhere.
                Piece::Name(dir, name) if !contents.is_empty() => {
                    bytes.clear();
                    bytes.extend_from_slice(dir);
                    bytes.extend_from_slice(name);
                    // Ends the name in the order; no name holds it.
                    bytes.push(0);
                    bytes.extend_from_slice(&contents);
                    bytes.extend((name.len() as u16).to_be_bytes());
                    named.add(&bytes)?;
                }
                Piece::Name(..) => {}
            }
            throttle.step();
        }
        found.extend(root(of, &contents, roots, &acls)?);
        Ok((Self::written(&named.sorted()?, dir, acls, throttle)?, found))
    }

    /// Writes the entries, in their order, and the index.
    fn written(
        named: &Sorted,
        dir: &Path,
        acls: FxHashMap<u32, AclRule>,
        throttle: &mut WorkThrottle,
    ) -> Result<Self, DumpError> {
        let create = || Ok::<_, io::Error>(BufWriter::with_capacity(BUFFER, tempfile::tempfile_in(dir)?));
        let (mut entries, mut index) = (create()?, create()?);
        let (mut last, mut count, mut end) = (None, 0, 0);
        let mut records = named.records()?;
        while let Some((record, _)) = records.next()? {
            let (dir, entry) = record.split_first_chunk::<8>().ok_or_else(damaged)?;
            if last.replace(*dir) != Some(*dir) {
                index.write_all(dir)?;
                index.write_all(&u64::to_be_bytes(end))?;
                count += 1;
            }
            end += put(&mut entries, entry)?;
            throttle.step();
        }
        let written = |file: BufWriter<File>| file.into_inner().map_err(io::IntoInnerError::into_error);
        Ok(Self { entries: written(entries)?, index: written(index)?, count, end, acls })
    }

    /// Where the entries of a directory are.
    fn place(&self, dir: Ino) -> io::Result<Range<u64>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.indexed(middle)?.0 < dir.0 {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low == self.count {
            return Ok(0..0);
        }
        let (found, begin) = self.indexed(low)?;
        if found != dir.0 {
            return Ok(0..0);
        }
        let end = if low + 1 < self.count { self.indexed(low + 1)?.1 } else { self.end };
        Ok(begin..end)
    }

    fn indexed(&self, at: u64) -> io::Result<(u64, u64)> {
        let mut numbers = [0; INDEXED as usize];
        self.index.read_exact_at(&mut numbers, at * INDEXED)?;
        Ok(pair(&numbers))
    }
}

fn pair(numbers: &[u8; INDEXED as usize]) -> (u64, u64) {
    let numbers = u128::from_be_bytes(*numbers);
    ((numbers >> 64) as u64, numbers as u64)
}

impl Parts for Dirs {
    fn read(&self, dir: Ino, from: Option<&Cursor>) -> Result<Part, DumpError> {
        let place = match from {
            None => self.place(dir)?,
            Some(cursor) => {
                let (begin, end) = pair(&cursor.0[..].try_into().map_err(|_| damaged())?);
                begin..end
            }
        };
        let Range { start: mut at, end } = place;
        let mut input = BufReader::with_capacity(BUFFER, Section::new(&self.entries, at..end));
        let (mut entries, mut entry) = (Vec::new(), Vec::new());
        while entries.len() < PAGE && get(&mut input, &mut entry)? {
            at += 4 + entry.len() as u64;
            let (rest, length) = entry.split_last_chunk().ok_or_else(damaged)?;
            let length = usize::from(u16::from_be_bytes(*length));
            let (name, rest) = rest.split_at_checked(length).ok_or_else(damaged)?;
            let node = node(rest.get(1..).ok_or_else(damaged)?, &self.acls)?;
            entries.extend(node.map(|node| (Name::stored(name), node)));
        }
        let next = if at < end {
            Next::At(Cursor([at.to_be_bytes(), end.to_be_bytes()].concat()))
        } else {
            Next::End
        };
        Ok(Part { entries, next })
    }

    fn ahead(&self, _: Ino) -> Option<Coming> {
        None
    }

    fn take(&self, _: &Coming) -> Result<Part, DumpError> {
        Err(damaged().into())
    }
}

fn root(
    ino: Ino,
    contents: &[u8],
    roots: &[Ino],
    acls: &FxHashMap<u32, AclRule>,
) -> io::Result<Option<Node>> {
    if roots.contains(&ino) { node(contents, acls) } else { Ok(None) }
}

/// The node that has those contents, if its attributes are there.
fn node(mut contents: &[u8], acls: &FxHashMap<u32, AclRule>) -> io::Result<Option<Node>> {
    let (mut node, mut piece) = (None::<Node>, Vec::new());
    while get(&mut contents, &mut piece)? {
        match (row(&piece)?, &mut node) {
            (Row::Node(ino, attr), none) => *none = Some(Node::new(ino, attr)),
            // What is behind the end of a file is no content of it.
            (Row::Chunk(_, index, _), Some(node)) if index >= chunks(&node.attr) => {}
            (row, Some(node)) => hold(node, row),
            // The attributes come first.
            (_, None) => return Ok(None),
        }
    }
    if let Some(node) = &mut node {
        complete(node, acls);
    }
    Ok(node)
}
