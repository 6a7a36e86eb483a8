//! Writes that add to the current value of a record, without an expectation.

use crate::{
    engine::Write,
    overlay::Bump,
    schema::{Key, Row},
};

impl Write {
    /// The record that it adds to, if it is one that adds.
    pub fn base(&self) -> Option<Key> {
        match self {
            Self::Bump { ino, .. } => Some(Key::Node(*ino)),
            Self::Use(ino, _) => Some(Key::DirStat(*ino)),
            Self::Charge(key, ..) => Some(Key::Quota(*key)),
            _ => self.start().map(|row| row.key()),
        }
    }

    /// What it makes of the record that it adds to; `None` if it finds none and makes none.
    pub fn add_to(&self, stored: Option<Row>) -> Option<Row> {
        let mut row = stored.or_else(|| self.start())?;
        match (self, &mut row) {
            (&Self::Bump { nlink, time, .. }, Row::Node(_, attr)) => Bump { nlink, time }.apply(attr),
            (Self::Count(_, by), Row::Counter(_, value))
            | (Self::Refer(.., by), Row::SliceRef(.., value))
            | (Self::Link(.., by), Row::Parents(.., value)) => *value += by,
            (Self::Use(_, by), Row::DirStat(_, stat)) => *stat = stat.plus(*by),
            (Self::Charge(_, space, inodes), Row::Quota(_, quota)) => quota.charge(*space, *inodes),
            (Self::Append(.., slices), Row::Chunk(.., records)) => records.extend_from_slice(slices),
            _ => {}
        }
        Some(row)
    }

    /// What it adds to where there is no record, if it makes one.
    fn start(&self) -> Option<Row> {
        match self {
            Self::Count(counter, _) => Some(Row::Counter(*counter, counter.start())),
            Self::Refer(id, size, _) => Some(Row::SliceRef(*id, *size, 1)),
            Self::Link(ino, parent, _) => Some(Row::Parents(*ino, *parent, 0)),
            Self::Charge(key, ..) => Some(Row::Quota(*key, key.kept()?)),
            Self::Append(ino, index, _) => Some(Row::Chunk(*ino, *index, Vec::new())),
            _ => None,
        }
    }
}
