//! Findings as records, sorted by severity and then by their numbers.
//!
//! What must stay true: decoding returns what was encoded.

use sluice_types::{FileType, Ino, Name};

use super::finding::{Counted, Finding};
use crate::{
    schema::{Counter, DirStat},
    sort::Fields,
};

/// The kind of finding that hides all others.
const UNREADABLE: u8 = 0;

/// Whether a record is of [`Finding::Unreadable`].
pub(super) fn is_unreadable(record: &[u8]) -> bool {
    record.get(1) == Some(&UNREADABLE)
}

/// A finding as a record.
pub(super) fn encode(finding: &Finding) -> Vec<u8> {
    let none: &[u8] = &[];
    let both = |counted: &Counted| [counted.stored as u64, counted.counted as u64];
    // The kind, the numbers and the text. Kinds are in the order of reports and repairs.
    let (kind, numbers, text): (u8, Vec<u64>, &[u8]) = match finding {
        Finding::Unreadable { reason } => (UNREADABLE, vec![], reason.as_bytes()),
        Finding::NoRoot => (1, vec![], none),
        Finding::EntryWithoutNode { dir, name, ino, kind } => (2, vec![dir.0, ino.0, *kind as u64], name),
        Finding::EntryWithoutDir { dir, name, ino } => (3, vec![dir.0, ino.0], name),
        Finding::Kind { dir, name, ino, kind } => (4, vec![dir.0, ino.0, *kind as u64], name),
        Finding::UnusableName { dir, name, ino } => (5, vec![dir.0, ino.0], name),
        Finding::NodeWithoutEntry { ino, kind } => (6, vec![ino.0, *kind as u64], none),
        Finding::SeveralNames { ino, names } => (7, vec![ino.0, u64::from(*names)], none),
        Finding::Links { ino, links } => (8, [&[ino.0], &both(links)[..]].concat(), none),
        Finding::Parent { ino, stored, found } => (9, vec![ino.0, stored.0, found.0], none),
        Finding::Unreachable { ino } => (10, vec![ino.0], none),
        Finding::Parents { ino, dir, names } => (11, [&[ino.0, dir.0], &both(names)[..]].concat(), none),
        Finding::SymlinkWithoutTarget { ino } => (12, vec![ino.0], none),
        Finding::ChunkWithoutFile { ino, index } => (13, vec![ino.0, u64::from(*index)], none),
        Finding::References { id, size, references } => {
            (14, [&[*id, u64::from(*size)], &both(references)[..]].concat(), none)
        }
        Finding::NextNumber { counter, next } => (15, both(next).to_vec(), counter.name().as_bytes()),
        Finding::Total { counter, total } => (16, both(total).to_vec(), counter.name().as_bytes()),
        Finding::Usage { dir, stored, counted } => {
            let held = |stat: &DirStat| [stat.length, stat.space, stat.inodes].map(|number| number as u64);
            let stored = stored.as_ref().map_or(Vec::new(), |stored| held(stored).to_vec());
            (17, [&[dir.0], &held(counted)[..], &stored].concat(), none)
        }
    };
    let mut record = vec![finding.severity() as u8, kind, numbers.len() as u8];
    record.extend(numbers.into_iter().flat_map(u64::to_be_bytes));
    record.extend(text);
    record
}

/// The finding of a record; `None` if it is none.
pub(super) fn decode(record: &[u8]) -> Option<Finding> {
    let mut fields = Fields(record);
    let (_, kind, count) = (fields.u8(), fields.u8(), fields.u8());
    let numbers: Vec<u64> = (0..count).map(|_| fields.u64()).collect();
    let text = fields.0;
    let n = |at: usize| numbers.get(at).copied().unwrap_or(0);
    let ino = |at| Ino(n(at));
    let file_type = |at| FileType::from_code(n(at) as u8);
    let both = |at| Counted { stored: n(at) as i64, counted: n(at + 1) as i64 };
    let held = |at| DirStat { length: n(at) as i64, space: n(at + 1) as i64, inodes: n(at + 2) as i64 };
    let counter = || Counter::ALL.into_iter().find(|counter| counter.name().as_bytes() == text);
    let name = || Name::stored(text);
    Some(match kind {
        UNREADABLE => Finding::Unreadable { reason: String::from_utf8_lossy(text).into_owned() },
        1 => Finding::NoRoot,
        2 => Finding::EntryWithoutNode { dir: ino(0), name: name(), ino: ino(1), kind: file_type(2)? },
        3 => Finding::EntryWithoutDir { dir: ino(0), name: name(), ino: ino(1) },
        4 => Finding::Kind { dir: ino(0), name: name(), ino: ino(1), kind: file_type(2)? },
        5 => Finding::UnusableName { dir: ino(0), name: name(), ino: ino(1) },
        6 => Finding::NodeWithoutEntry { ino: ino(0), kind: file_type(1)? },
        7 => Finding::SeveralNames { ino: ino(0), names: n(1) as u32 },
        8 => Finding::Links { ino: ino(0), links: both(1) },
        9 => Finding::Parent { ino: ino(0), stored: ino(1), found: ino(2) },
        10 => Finding::Unreachable { ino: ino(0) },
        11 => Finding::Parents { ino: ino(0), dir: ino(1), names: both(2) },
        12 => Finding::SymlinkWithoutTarget { ino: ino(0) },
        13 => Finding::ChunkWithoutFile { ino: ino(0), index: n(1) as u32 },
        14 => Finding::References { id: n(0), size: n(1) as u32, references: both(2) },
        15 => Finding::NextNumber { counter: counter()?, next: both(0) },
        16 => Finding::Total { counter: counter()?, total: both(0) },
        17 => Finding::Usage { dir: ino(0), stored: (count > 4).then(|| held(4)), counted: held(1) },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_comes_back() {
        let (dir, ino, kind) = (Ino(7), Ino(u64::MAX), FileType::Symlink);
        let name = || Name::stored(b"a\xFF\0b");
        let links = Counted { stored: -1, counted: 3 };
        let held = DirStat { length: -5, space: 4096, inodes: 2 };
        let findings = [
            Finding::Unreadable { reason: "why".into() },
            Finding::NoRoot,
            Finding::EntryWithoutNode { dir, name: name(), ino, kind },
            Finding::EntryWithoutDir { dir, name: name(), ino },
            Finding::Kind { dir, name: name(), ino, kind },
            Finding::UnusableName { dir, name: name(), ino },
            Finding::NodeWithoutEntry { ino, kind },
            Finding::SeveralNames { ino, names: 2 },
            Finding::Links { ino, links },
            Finding::Parent { ino, stored: Ino::NONE, found: dir },
            Finding::Unreachable { ino },
            Finding::Parents { ino, dir, names: links },
            Finding::SymlinkWithoutTarget { ino },
            Finding::ChunkWithoutFile { ino, index: 9 },
            Finding::References { id: 4, size: 5, references: links },
            Finding::NextNumber { counter: Counter::NextChunk, next: links },
            Finding::Total { counter: Counter::UsedSpace, total: links },
            Finding::Usage { dir, stored: None, counted: held },
            Finding::Usage { dir, stored: Some(DirStat::default()), counted: held },
        ];
        for finding in &findings {
            assert_eq!(decode(&encode(finding)).as_ref(), Some(finding));
        }
        let mut weights: Vec<u8> = findings.iter().map(|finding| encode(finding)[0]).collect();
        weights.sort_unstable();
        weights.dedup();
        assert_eq!(weights, [0, 1, 2], "errors, leaks, advisory numbers");
        assert_eq!(decode(&[0, 99, 0]), None);
    }
}
