//! The list of all statements, and the types of their parameters.

use crate::{
    plan::{Compare, Lock},
    schema::Column,
    text::Look,
};

/// What a failed check says before the places of what it speaks of: a text that is no number, and
/// is made one.
pub(crate) const MARK: &str = "sluice:";

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
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
    /// Its number, its name, and the type of its elements, if it is of many.
    const fn described(self) -> (u32, &'static str, Option<Self>) {
        match self {
            Self::I4 => (23, "int4", None),
            Self::I8 => (20, "int8", None),
            Self::Bytes => (17, "bytea", None),
            Self::Text => (25, "text", None),
            Self::I4s => (1007, "int4[]", Some(Self::I4)),
            Self::I8s => (1016, "int8[]", Some(Self::I8)),
            Self::Blobs => (1001, "bytea[]", Some(Self::Bytes)),
            Self::Texts => (1009, "text[]", Some(Self::Text)),
        }
    }

    /// That of a column.
    pub(crate) const fn of(column: &Column) -> Self {
        match column {
            _ if column.is_narrow() => Self::I4,
            _ if column.is_number() => Self::I8,
            _ if column.is_text() => Self::Text,
            _ => Self::Bytes,
        }
    }

    pub(crate) const fn oid(self) -> u32 {
        self.described().0
    }

    pub(crate) const fn name(self) -> &'static str {
        self.described().1
    }

    /// Type of the elements, if it is of many.
    pub(crate) const fn element(self) -> Option<Self> {
        self.described().2
    }

    pub(crate) const fn many(self) -> Self {
        match self {
            Self::I4 => Self::I4s,
            Self::I8 => Self::I8s,
            Self::Bytes => Self::Blobs,
            Self::Text => Self::Texts,
            many => many,
        }
    }
}

/// What a statement does with the rows of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Template {
    /// Looks, once.
    Look(Look),
    /// Many rows by their keys, each answered with its place.
    GetMany,
    /// All rows whose first column is given, for many; each answered with its place.
    List,
    /// As [`Template::List`], by the column `sid`.
    OfSession,
    /// As [`Look::Follow`], for many; each answered with its place.
    FollowMany,
    /// Locks rows and checks that they are as they were.
    Hold(Compare, Lock),
    /// Checks that there are no such rows.
    Absent,
    /// Checks that quotas admit so much more.
    QuotaAllows,
    /// Checks that directories are empty.
    Empty,
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
    /// Removes all rows whose first column is given, between two bounds, each of which may be
    /// missing.
    Clear,
    /// Takes the record of a lane from one number to the next.
    Step,
    /// The writes that add to what is there.
    Add,
    /// The commit of this transaction does not wait for the disk.
    Softly,
    /// Locks a row that everybody may lock so, which makes of a read a commit that waits for the
    /// disk, as the session has it.
    Harden,
    /// Numbers given out go on after those that were given explicitly.
    Renumber,
    /// Appends lines to the change log.
    LogAppend,
    /// Removes its lines up to a number.
    LogTrim,
}

/// A statement with the types of its parameters.
pub(crate) struct Statement {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) types: Vec<Type>,
}
