//! A survey: one pass over all records, sorted by inode or slice.
//!
//! What must stay true: a record that is made or removed during a survey may look wrong in it, but
//! the second survey does not find it again.

use sluice_types::{Attr, FileType, FsResult, Ino, Slice};

use super::{finding::Finding, report::Candidates};
use crate::{
    batch::Interrupt,
    engine::Scan,
    meta::Meta,
    schema::{Entry, Row},
    sort::{Fields, SortError, SortSpace, Sorter},
    tree::Progress,
};

/// What a record says of an inode.
#[derive(Clone, Copy)]
pub(super) enum Fact<'a> {
    /// It exists.
    Node(Node),
    /// An entry names it.
    Entry { dir: Ino, kind: u8, name: &'a [u8] },
    /// It needs no name.
    Nameless,
    /// It is deleted, and its chunks are kept.
    Deleted,
    /// It has a chunk.
    Chunk(u32),
}

/// The compared fields of a node.
#[derive(Clone, Copy)]
pub(super) struct Node {
    pub(super) kind: FileType,
    pub(super) nlink: u32,
    pub(super) parent: Ino,
    pub(super) length: u64,
}

/// All records about inodes and slices.
pub(super) struct Survey {
    /// Facts by inode, in the order in which [`Fact`] has them.
    pub(super) inodes: Sorter,
    /// Uses of slices: id, size, 0.
    pub(super) slices: Sorter,
}

impl Survey {
    /// Takes a survey.
    pub(super) fn take(
        meta: &Meta,
        space: &SortSpace,
        candidates: &mut Candidates,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<Self> {
        let mut survey = Self { inodes: Sorter::new(space), slices: Sorter::new(space) };
        for scan in [
            Scan::Nodes,
            Scan::AllEntries,
            Scan::Sustained,
            Scan::Detached,
            Scan::DelFiles,
            Scan::Chunks,
            Scan::DelSlices,
        ] {
            meta.each_readable_page(scan, interrupt, |page| {
                progress((page.rows.len() + page.damaged.len()) as u64);
                for damage in page.damaged {
                    candidates.add(&Finding::unreadable(damage))?;
                }
                page.rows.into_iter().try_for_each(|row| survey.see(row)).map_err(Into::into)
            })?;
        }
        Ok(survey)
    }

    fn see(&mut self, row: Row) -> Result<(), SortError> {
        let ino = |ino: Ino| ino.0.to_be_bytes();
        match row {
            Row::Node(of, Attr { kind, nlink, parent, length, .. }) => {
                let node = [&[kind as u8][..], &nlink.to_be_bytes(), &ino(parent), &length.to_be_bytes()];
                self.inodes.add(&[&ino(of), &[0][..], &node.concat()].concat())
            }
            Row::Entry(dir, name, Entry { kind, ino: of }) => {
                self.inodes.add(&[&ino(of), &[1][..], &ino(dir), &[kind as u8], &name].concat())
            }
            Row::Sustained(_, of) | Row::Detached(of, _) => self.inodes.add(&[&ino(of), &[2][..]].concat()),
            Row::DelFile(of, ..) => self.inodes.add(&[&ino(of), &[3][..]].concat()),
            Row::Chunk(of, index, records) => {
                self.inodes.add(&[&ino(of), &[4][..], &index.to_be_bytes()].concat())?;
                let mut slices = records.iter().filter(|record| !record.is_hole());
                slices.try_for_each(|Slice { id, size, .. }| self.slices.add(&slice_use(*id, *size)))
            }
            Row::DelSlices(_, _, slices) => {
                slices.into_iter().try_for_each(|(id, size)| self.slices.add(&slice_use(id, size)))
            }
            _ => Ok(()),
        }
    }
}

fn slice_use(id: u64, size: u32) -> [u8; 13] {
    let mut record = [0; 13];
    record[..8].copy_from_slice(&id.to_be_bytes());
    record[8..12].copy_from_slice(&size.to_be_bytes());
    record
}

/// What a record of [`Survey::inodes`] says, and of which inode; `None` if it is none.
pub(super) fn fact_of(record: &[u8]) -> Option<(Ino, Fact<'_>)> {
    let mut fields = Fields(record);
    let ino = Ino(fields.u64());
    let fact = match fields.u8() {
        0 => Fact::Node(Node {
            kind: FileType::from_code(fields.u8())?,
            nlink: fields.u32(),
            parent: Ino(fields.u64()),
            length: fields.u64(),
        }),
        1 => Fact::Entry { dir: Ino(fields.u64()), kind: fields.u8(), name: fields.0 },
        2 => Fact::Nameless,
        3 => Fact::Deleted,
        4 => Fact::Chunk(fields.u32()),
        _ => return None,
    };
    Some((ino, fact))
}
