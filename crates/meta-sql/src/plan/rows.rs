//! The work on the rows of one table.

use std::collections::BTreeMap;

use sluice_meta::schema::Key;
use smallvec::SmallVec;

use crate::values::{Value, is_guarded};

/// How much of a row must be unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Compare {
    /// It must exist.
    Exists,
    /// What a guard of a node names, see [`is_guarded`].
    Guard,
    /// Every column.
    Exact,
}

impl Compare {
    /// Whether the column at this place is looked at: one of the first, which lead a unique key, or
    /// one that is compared.
    pub(crate) const fn takes(self, at: usize, unique: usize) -> bool {
        at < unique
            || match self {
                Self::Exists => false,
                Self::Guard => is_guarded(at),
                Self::Exact => true,
            }
    }
}

/// How a row is locked. A node that is only guarded is locked by its key alone, so that others may
/// add to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lock {
    Key,
    Share,
    Add,
    Update,
}

/// How a row changes, in the order in which the changes of one row are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Action {
    /// Takes the record of a lane from one number to the next.
    Step,
    /// Removes a row that must be there.
    Delete,
    /// Removes what there is of a row.
    Discard,
    Put,
    Insert,
    /// Adds to what is there.
    Add,
}

/// A row that must exist.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held<'c> {
    /// How much of it must be as expected.
    pub(crate) compare: Compare,
    /// How strongly it is locked.
    pub(crate) lock: Lock,
    /// Its columns; those that name it, if no more is compared.
    pub(crate) row: Vec<Value<'c>>,
    pub(crate) key: Key,
}

/// A change of a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change<'c> {
    pub(crate) action: Action,
    /// The record to name if it fails.
    pub(crate) key: Option<Key>,
    pub(crate) values: Vec<Value<'c>>,
}

/// What is done with a row.
#[derive(Default)]
pub(crate) struct RowPlan<'c> {
    /// What must be there, if anything must.
    pub(crate) expected: Option<Held<'c>>,
    pub(crate) changes: SmallVec<[Change<'c>; 1]>,
}

/// Rows, by their unique key.
pub(crate) type Rows<'c> = BTreeMap<Vec<Value<'c>>, RowPlan<'c>>;

/// The rows whose unique key begins with `id`, between two others. A bound is what follows `id` in
/// a unique key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span<'c> {
    pub(crate) id: i64,
    /// The rows come after this one.
    pub(crate) after: Option<Vec<Value<'c>>>,
    /// The rows come before this one.
    pub(crate) before: Option<Vec<Value<'c>>>,
}

/// The work in one table.
#[derive(Default)]
pub(crate) struct TablePlan<'c> {
    pub(crate) rows: Rows<'c>,
    pub(crate) clears: Vec<Span<'c>>,
    /// Rows that must be absent and are not inserted, with their key columns.
    pub(crate) absent: Vec<(Key, Vec<Value<'c>>)>,
    /// Quotas that have been charged, which must admit so many more bytes and inodes, or nothing if
    /// that is not asked: key columns, bytes, inodes.
    pub(crate) rooms: Vec<(Key, Vec<Value<'c>>)>,
}
