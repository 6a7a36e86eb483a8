//! Parts of a table that a commit clears.
//!
//! What must stay true: parts do not overlap, and no part contains a row that the commit also
//! changes separately. So parts and rows have one common order.

use sluice_meta::engine::List;

use super::rows::{Action, Change, Rows, Span};
use crate::{codec::Record, values::Value};

/// From which index up to, not including, which other.
type Range = Option<(u32, u32)>;

/// The record of a collection that can be cleared, whose it is, and from which index up to, not
/// including, which other. Parents are counted from the entries; the others are never cleared.
pub(crate) const fn cleared(list: List) -> Option<(Record, u64, Range)> {
    Some(match list {
        List::Xattrs(ino) => (Record::Xattr, ino.0, None),
        List::Flocks(ino) => (Record::Flock, ino.0, None),
        List::Plocks(ino) => (Record::Plock, ino.0, None),
        List::Chunks(ino, from, to) => (Record::Chunk, ino.0, Some((from, to))),
        List::Lanes(writer) => (Record::Writer, writer, None),
        List::Changes(writer) => (Record::Changes, writer, None),
        List::Parents(_) | List::Sustained(_) | List::LocksOf(_) | List::Extras(_) => return None,
    })
}

impl<'c> Span<'c> {
    pub(super) fn new(id: u64, range: Range) -> Self {
        let bound = |at: i64| vec![Value::Int(at)];
        let after = range.map(|(from, _)| bound(i64::from(from) - 1));
        Self { id: id as i64, after, before: range.map(|(_, to)| bound(to.into())) }
    }

    /// Whether it is the same part of what another begins with.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.after, &self.before) == (&other.after, &other.before)
    }

    /// Whether its rows come before the one of that unique key, which is none of them.
    pub(super) fn is_before(&self, unique: &[Value<'c>]) -> bool {
        self.begin().as_slice() < unique
    }

    fn begin(&self) -> Vec<Value<'c>> {
        std::iter::once(Value::Int(self.id)).chain(self.after.iter().flatten().cloned()).collect()
    }

    fn contains(&self, unique: &[Value<'c>]) -> bool {
        unique.first() == Some(&Value::Int(self.id))
            && self.is_before(unique)
            && self.before.as_ref().is_none_or(|before| &unique[1..] < before.as_slice())
    }

    /// Takes up what begins before its end.
    fn absorb(&mut self, next: &Self) -> bool {
        let meets = self.id == next.id
            && self.before.as_ref().is_none_or(|end| next.after.as_ref().is_none_or(|start| start < end));
        if meets {
            self.before = self.before.take().zip(next.before.clone()).map(|(a, b)| a.max(b));
        }
        meets
    }
}

/// The parts to be cleared around the rows that are touched on their own, in ascending order. Of
/// those rows, the ones that were to be cleared are discarded first.
pub(super) fn around<'c>(mut clears: Vec<Span<'c>>, rows: &mut Rows<'c>) -> Vec<Span<'c>> {
    clears.sort_by_key(Span::begin);
    clears.dedup_by(|next, last| last.absorb(next));
    let mut spans = Vec::with_capacity(clears.len());
    for mut rest in clears {
        for (unique, row) in rows.range_mut(rest.begin()..) {
            if unique.first() != Some(&Value::Int(rest.id)) {
                break;
            }
            if !rest.contains(unique) {
                continue;
            }
            let bound = Some(unique[1..].to_vec());
            spans.push(Span { id: rest.id, after: rest.after.take(), before: bound.clone() });
            rest.after = bound;
            if row.changes.iter().all(|change| change.action != Action::Discard) {
                row.changes.push(Change { action: Action::Discard, key: None, values: unique.clone() });
            }
        }
        spans.push(rest);
    }
    spans
}
