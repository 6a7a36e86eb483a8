//! What an operation takes from memory instead of asking for it: the commit compares it.

use sluice_types::Ino;

use super::{Stop, View};
use crate::{
    engine::Hold,
    fact::Fact,
    schema::{Counter, Key, QuotaKey, Row},
};

impl View<'_> {
    /// Relies on a record as this client remembers it, without asking for it: the commit compares
    /// it. If the batch has read the record, that counts.
    pub(crate) fn remember(&mut self, row: Row) {
        self.outcome.remembered.push(row);
    }

    /// Relies on it that a quota admits so many bytes and inodes, those that earlier operations of
    /// the batch charge included: the commit compares.
    pub(crate) fn needs_room(&mut self, key: QuotaKey, space: i64, inodes: i64) {
        self.outcome.rooms.push((key, (space, inodes)));
    }

    /// Whether the batch has read a record, or decided what becomes of it.
    pub(crate) fn has_read(&self, key: &Key) -> bool {
        self.batch.rows.contains_key(key) || self.is_pending(key)
    }

    /// Whether what is remembered of where directories lie is from the count of moves that the
    /// batch relies on.
    fn trusts_places(&self) -> bool {
        let remembered = self.batch.known.moves();
        match self.batch.rows.get(&Key::Counter(Counter::DirMoves)) {
            Some((_, Some(Row::Counter(_, moves)))) => remembered == Some(*moves),
            Some(_) => false,
            None => remembered.is_some(),
        }
    }

    /// The directory in which a directory lies at the commit, if [`Counter::DirMoves`] is held.
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
            self.learns(Fact::Above(dir, attr.parent));
        }
        Ok(Some(attr.parent))
    }
}
