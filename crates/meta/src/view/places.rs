//! Records that an operation takes from the caches of this client instead of reading them. The
//! commit compares them.

use sluice_types::Ino;

use super::{Stop, View};
use crate::{
    engine::Hold,
    fact::Fact,
    schema::{Counter, Key, QuotaKey, Row},
};

impl View<'_> {
    /// Uses a record from the memory of this client, without a read. The commit compares it. If the
    /// batch has read the record, that one is used.
    pub(crate) fn remember(&mut self, row: Row) {
        self.outcome.remembered.push(row);
    }

    /// Requires that a quota allows so many bytes and inodes, including what earlier operations of
    /// the batch charge. The commit checks that.
    pub(crate) fn expect_quota(&mut self, key: QuotaKey, space: i64, inodes: i64) {
        self.outcome.rooms.push((key, (space, inodes)));
    }

    /// Whether the batch has read a record, or decided about it.
    pub(crate) fn has_read(&self, key: &Key) -> bool {
        self.batch.rows.contains_key(key) || self.is_pending(key)
    }

    /// Whether the cached parents of directories are from the value of the move counter that the
    /// batch uses.
    fn trusts_places(&self) -> bool {
        let remembered = self.batch.known.moves();
        match self.batch.rows.get(&Key::Counter(Counter::DirMoves)) {
            Some((_, Some(Row::Counter(_, moves)))) => remembered == Some(*moves),
            Some(_) => false,
            None => remembered.is_some(),
        }
    }

    /// The parent of a directory at the commit, if [`Counter::DirMoves`] is held.
    pub(crate) fn above(&mut self, dir: Ino) -> Result<Option<Ino>, Stop> {
        let (key, batch) = (Key::Node(dir), self.batch);
        let moved = batch.overlay.get(&key).is_some();
        let guarded = batch.rows.get(&key).is_some_and(|(known, _)| *known >= Hold::Guard);
        if !moved
            && !guarded
            && self.trusts_places()
            && let Some(parent) = batch.known.above(dir)
        {
            return Ok(Some(parent));
        }
        let Some(attr) = self.node(dir, Hold::Guard)? else { return Ok(None) };
        if !moved {
            self.learns(Fact::Parent(dir, attr.parent));
        }
        Ok(Some(attr.parent))
    }
}
