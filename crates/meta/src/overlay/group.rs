//! The collection to which a record belongs. It is used to find the records of one collection among
//! all changes of a batch.

use sluice_types::Ino;

use crate::{
    engine::List,
    schema::{Extra, Key, WriterId},
};

/// A collection that a record lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    Entries(Ino),
    Xattrs(Ino),
    Parents(Ino),
    Chunks(Ino),
    Flocks(Ino),
    Plocks(Ino),
    Sustained(u64),
    Lanes(WriterId),
    Changes(WriterId),
    Extras(Extra),
}

impl Group {
    pub(super) fn of(key: &Key) -> Option<Self> {
        Some(match *key {
            Key::Entry(dir, _) => Self::Entries(dir),
            Key::Xattr(ino, _) => Self::Xattrs(ino),
            Key::Parents(ino, _) => Self::Parents(ino),
            Key::Chunk(ino, _) => Self::Chunks(ino),
            Key::Flock(ino, _) => Self::Flocks(ino),
            Key::Plock(ino, _) => Self::Plocks(ino),
            Key::Sustained(sid, _) => Self::Sustained(sid),
            Key::Writer(writer, _) => Self::Lanes(writer),
            Key::Changes(writer, ..) => Self::Changes(writer),
            Key::Extra(kind, _) => Self::Extras(kind),
            _ => return None,
        })
    }

    /// That of a list; `None` for one that spans kinds of records.
    pub(super) fn of_list(list: &List) -> Option<Self> {
        Some(match *list {
            List::Xattrs(ino) => Self::Xattrs(ino),
            List::Parents(ino) => Self::Parents(ino),
            List::Chunks(ino, ..) => Self::Chunks(ino),
            List::Flocks(ino) => Self::Flocks(ino),
            List::Plocks(ino) => Self::Plocks(ino),
            List::Sustained(sid) => Self::Sustained(sid),
            List::Lanes(writer) => Self::Lanes(writer),
            List::Changes(writer) => Self::Changes(writer),
            List::Extras(kind) => Self::Extras(kind),
            List::LocksOf(_) => return None,
        })
    }
}
