//! The outcome of one operation: its writes, its expectations, and the facts that it found out.
//!
//! What must stay true: an operation changes nothing except through this.

use sluice_types::Ino;

use crate::{
    change_log::Line,
    engine::{Hold, List, Write},
    fact::Fact,
    schema::{Key, QuotaKey, Row},
};

/// What one operation decided.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) writes: Vec<Write>,
    pub(crate) held: Vec<(Key, Hold)>,
    /// Records that this client remembers and the operation relies on: held as if they were read
    /// with [`Hold::Lock`].
    pub(crate) remembered: Vec<Row>,
    pub(crate) empty_dirs: Vec<Ino>,
    pub(crate) same: Vec<List>,
    /// Bytes and inodes that quotas must admit at the commit, beside what is charged to others.
    pub(crate) rooms: Vec<(QuotaKey, (i64, i64))>,
    /// What it found out.
    pub(crate) learned: Vec<Fact>,
    /// What the change log says of it.
    pub(crate) lines: Vec<Line>,
}
