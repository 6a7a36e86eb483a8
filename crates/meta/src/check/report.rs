//! The findings of a check, of any number.
//!
//! What must stay true: it takes no more memory than its sorts, also while it is read.

use sluice_types::{FsError, FsResult};

use super::{
    finding::Finding,
    record::{decode, encode, is_unreadable},
};
use crate::sort::{Fields, Records, SortError, SortSpace, Sorted, Sorter};

/// Takes findings.
pub(super) struct Candidates {
    sorter: Sorter,
    unreadable: bool,
}

impl Candidates {
    pub(super) fn new(space: &SortSpace) -> Self {
        Self { sorter: Sorter::new(space), unreadable: false }
    }

    pub(super) fn add(&mut self, finding: &Finding) -> FsResult<()> {
        self.unreadable |= matches!(finding, Finding::Unreadable { .. });
        Ok(self.sorter.add(&encode(finding))?)
    }

    /// Whether there are records that cannot be read. What those hold was not counted: whatever
    /// else seems wrong, or unused, may be right, and is not answered.
    pub(super) fn are_unreadable(&self) -> bool {
        self.unreadable
    }

    pub(super) fn findings(self, space: &SortSpace) -> FsResult<Findings> {
        let unreadable = self.unreadable;
        let sorted = self.sorter.sorted()?;
        let (mut kept, mut count) = (Sorter::new(space), 0);
        let mut records = sorted.records()?;
        while let Some((record, _)) = records.next()? {
            if !unreadable || is_unreadable(record) {
                count += 1;
                kept.add(record)?;
            }
        }
        Ok(Findings { sorted: kept.sorted()?, count, unreadable })
    }
}

/// What does not agree: the weightiest first.
pub struct Findings {
    sorted: Sorted,
    count: u64,
    unreadable: bool,
}

impl Findings {
    /// Each finding, as often as this is called.
    pub fn all(&self) -> FsResult<impl Iterator<Item = FsResult<Finding>>> {
        let mut records = self.sorted.records()?;
        Ok(std::iter::from_fn(move || read(&mut records).transpose()))
    }

    /// Whether all agrees.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether there are records that cannot be read; then nothing else is told.
    pub fn are_unreadable(&self) -> bool {
        self.unreadable && !self.is_empty()
    }

    /// Those that `other` has, too.
    pub(super) fn common(&self, other: &Self, space: &SortSpace) -> FsResult<Self> {
        let (mut both, mut count) = (Sorter::new(space), 0);
        let (mut records, mut others) = (self.sorted.records()?, other.sorted.records()?);
        let owned = |records: &mut Records<'_>| -> Result<Option<Vec<u8>>, SortError> {
            Ok(records.next()?.map(|(record, _)| record.to_vec()))
        };
        let mut next = owned(&mut others)?;
        while let Some((record, _)) = records.next()? {
            while next.as_ref().is_some_and(|other| other[..] < *record) {
                next = owned(&mut others)?;
            }
            if next.as_deref() == Some(record) {
                count += 1;
                both.add(record)?;
            }
        }
        Ok(Self { sorted: both.sorted()?, count, unreadable: self.unreadable })
    }
}

fn read(records: &mut Records<'_>) -> FsResult<Option<Finding>> {
    let Some((record, _)) = records.next()? else { return Ok(None) };
    decode(record).map(Some).ok_or_else(|| FsError::io("a finding cannot be read back from the disk"))
}

/// Slices by id.
pub struct Slices {
    /// Records that begin with id, size and 0 where the slice is used.
    pub(super) sorted: Option<Sorted>,
    pub(super) count: u64,
}

impl Slices {
    pub(super) fn none() -> Self {
        Self { sorted: None, count: 0 }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Id and size of each, as often as this is called.
    pub fn all(&self) -> FsResult<impl Iterator<Item = FsResult<(u64, u32)>>> {
        let mut records = self.sorted.as_ref().map(Sorted::records).transpose()?;
        Ok(std::iter::from_fn(move || next_used(records.as_mut()?).transpose()))
    }
}

fn next_used(records: &mut Records<'_>) -> FsResult<Option<(u64, u32)>> {
    while let Some((record, _)) = records.next()? {
        let mut fields = Fields(record);
        let slice = (fields.u64(), fields.u32());
        if fields.u8() == 0 {
            return Ok(Some(slice));
        }
    }
    Ok(None)
}

/// What a check found.
pub struct Report {
    /// What does not agree.
    pub findings: Findings,
    /// Every slice that a chunk refers to or that is kept: its blocks have to exist.
    pub slices: Slices,
    /// How many inodes were looked at.
    pub inodes: u64,
}
