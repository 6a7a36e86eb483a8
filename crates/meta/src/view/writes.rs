//! The writes of an operation, and the usage that earlier operations of the batch add.

use super::View;
use crate::{
    engine::Write,
    schema::{Counter, Key, QuotaKey, Row},
};

impl View<'_> {
    /// Bytes and inodes that earlier operations of the batch add to the usage of a quota.
    pub(crate) fn charged(&self, key: QuotaKey) -> (i64, i64) {
        self.batch.overlay.charged(key)
    }

    /// What earlier operations of the batch add to a counter.
    pub(crate) fn counted(&self, counter: Counter) -> i64 {
        self.batch.overlay.counted(counter)
    }

    /// States a change. The operation itself does not see it; those after it do.
    pub fn write(&mut self, write: Write) {
        self.outcome.writes.push(write);
    }

    /// A new record.
    pub fn insert(&mut self, row: Row) {
        self.write(Write::Insert(row));
    }

    /// A record replaced or made. It must be read with
    /// [`Hold::Lock`](crate::engine::Hold::Lock) before.
    pub fn put(&mut self, row: Row) {
        self.write(Write::Put(row));
    }

    /// A record removed. It must be read with [`Hold::Lock`](crate::engine::Hold::Lock) before.
    pub fn delete(&mut self, key: Key) {
        self.write(Write::Delete(key));
    }
}
