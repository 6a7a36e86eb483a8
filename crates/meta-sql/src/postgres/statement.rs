//! The text of every statement, made from the shapes of the records.
//!
//! What must stay true: each finds its rows by an index, whatever the size of the tables; each that
//! takes many keys takes them in the order in which they come (see `commit`: that is how clients
//! never wait for each other in a circle); and each that checks fails with [`MARK`] in its message,
//! so that nothing of its flight is committed.

mod change;
mod check;
mod columns;
mod look;

pub(super) use columns::placeholder;

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::{codec::Record, naming::Naming};

/// What a failed check says before the places of what it speaks of: a text that is no number, and
/// is made one.
pub(super) const MARK: &str = "sluice:";

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    I4,
    I8,
    Bytes,
    Text,
    I4s,
    I8s,
    Blobs,
    Texts,
}

impl Type {
    pub(super) const fn oid(self) -> u32 {
        match self {
            Self::I4 => 23,
            Self::I8 => 20,
            Self::Bytes => 17,
            Self::Text => 25,
            Self::I4s => 1007,
            Self::I8s => 1016,
            Self::Blobs => 1001,
            Self::Texts => 1009,
        }
    }

    /// Type of the elements, if it is of many.
    pub(super) const fn element(self) -> Option<Self> {
        match self {
            Self::I4s => Some(Self::I4),
            Self::I8s => Some(Self::I8),
            Self::Blobs => Some(Self::Bytes),
            Self::Texts => Some(Self::Text),
            _ => None,
        }
    }

    pub(super) const fn many(self) -> Self {
        match self {
            Self::I4 => Self::I4s,
            Self::I8 => Self::I8s,
            Self::Bytes => Self::Blobs,
            Self::Text => Self::Texts,
            many => many,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::I4 => "int4",
            Self::I8 => "int8",
            Self::Bytes => "bytea",
            Self::Text => "text",
            Self::I4s => "int4[]",
            Self::I8s => "int8[]",
            Self::Blobs => "bytea[]",
            Self::Texts => "text[]",
        }
    }

    /// What stands for nothing.
    const fn zero(self) -> &'static str {
        match self {
            Self::I4 | Self::I8 => "0",
            _ => "''",
        }
    }
}

/// How much of a row must be as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Same {
    /// It must exist.
    There,
    /// What a guard of a node names.
    Guarded,
    /// Every column.
    All,
}

/// How a row is locked. Of a node that is only guarded the key alone, which what adds to it does
/// not touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lock {
    Key,
    Share,
    Add,
    Update,
}

/// What a statement does with the rows of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Do {
    /// One row by its key.
    Get,
    /// Many rows by their keys, each answered with its place.
    GetMany,
    /// All rows whose first column is given, for many; each answered with its place.
    List,
    /// As [`Do::List`], by the column `sid`.
    OfSession,
    /// Chunks of one file from one index to another.
    Range,
    /// An entry and its node.
    Follow,
    /// As [`Do::Follow`], for many; each answered with its place.
    FollowMany,
    /// Names in a directory.
    Names,
    /// The highest number given out.
    Last,
    /// Locks rows and checks that they are as they were.
    Hold(Same, Lock),
    /// Checks that there are no such rows.
    Absent,
    /// Checks that directories are empty.
    Vacant,
    /// Checks that what is counted from other rows is as it was.
    Counted,
    /// Checks that the locks on a file are as they were.
    SameLocks,
    /// Replaces one row that is as expected, or fails.
    Swap,
    /// Removes one row that is as expected, or fails.
    Take,
    Insert,
    InsertMany,
    Put,
    /// Removes rows that are locked, and fails with the places of those removed if any was missing.
    Delete,
    /// Removes what there is of rows.
    Discard,
    /// Removes all rows whose first column is given.
    Clear,
    /// Of those, the ones between two bounds, each of which may be missing.
    ClearPart,
    /// Takes the record of a lane from one number to the next.
    Step,
    /// The writes that add to what is there.
    Add,
    /// The commit of this transaction does not wait for the disk.
    Softly,
    /// Locks a row that everybody may lock so, which makes of a look a commit that waits for the
    /// disk, as the session has it.
    Harden,
    /// Numbers given out go on behind those that were given explicitly.
    Renumber,
    /// A page of rows, behind a number.
    Page,
    /// A page of entries, behind a name.
    Entries,
    EntriesNodes,
}

/// A statement with the types of its parameters.
pub(super) struct Statement {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) text: String,
    pub(super) types: Vec<Type>,
}

/// All statements in use.
pub(super) struct Catalog {
    naming: Naming,
    known: Mutex<FxHashMap<(Do, Record), Arc<Statement>>>,
}

impl Catalog {
    pub(super) fn new(naming: Naming) -> Self {
        Self { naming, known: Mutex::default() }
    }

    pub(super) fn get(&self, what: Do, record: Record) -> Arc<Statement> {
        let mut known = self.known.lock();
        let id = known.len() as u32;
        let statement = known.entry((what, record)).or_insert_with(|| {
            let (text, types) = text(what, record);
            let text = self.naming.sql(&text).replace('`', "\"");
            Arc::new(Statement { id, name: format!("sluice{id}"), text, types })
        });
        statement.clone()
    }
}

/// The statement, as written for the usual names, and the types of its parameters.
fn text(what: Do, record: Record) -> (String, Vec<Type>) {
    match what {
        Do::Hold(..) | Do::Absent | Do::Vacant | Do::Counted | Do::SameLocks => check::text(what, record),
        Do::Swap
        | Do::Take
        | Do::Insert
        | Do::InsertMany
        | Do::Put
        | Do::Delete
        | Do::Discard
        | Do::Clear
        | Do::ClearPart
        | Do::Step
        | Do::Add
        | Do::Softly
        | Do::Harden
        | Do::Renumber => change::text(what, record),
        _ => look::text(what, record),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_what_they_take() {
        let catalog = Catalog::new(Naming::new("x").expect("a prefix"));
        let one = catalog.get(Do::Get, Record::Acl);
        assert_eq!(
            one.text,
            "SELECT id,owner,\"group\",mask,other,named_users,named_groups FROM \"jfs_x_acl\" WHERE id=$1"
        );
        assert_eq!(one.types, [Type::I4]);
        let put = catalog.get(Do::Put, Record::SliceRef);
        assert!(
            put.text.ends_with("ON CONFLICT(chunkid) DO UPDATE SET size=excluded.size,refs=excluded.refs")
        );
        assert_eq!(put.types, [Type::I8s, Type::I4s, Type::I4s]);
        assert_eq!((one.id, put.id), (0, 1));
    }
}
