//! Parts of a table that a commit clears.
//!
//! What must stay true: no two overlap, and none holds a row that the commit touches on its own, so
//! that parts and rows have one order among each other.

use std::collections::BTreeMap;

use super::{
    super::statement::Do,
    work::{Change, Touch},
};
use crate::values::Value;

/// The rows whose unique key begins with `id`, between two others. A bound is what follows `id` in
/// a unique key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span<'c> {
    pub(super) id: i64,
    /// They lie behind this one.
    pub(super) after: Option<Vec<Value<'c>>>,
    /// They lie before this one.
    pub(super) before: Option<Vec<Value<'c>>>,
}

impl<'c> Span<'c> {
    pub(super) const fn all(id: u64) -> Self {
        Self { id: id as i64, after: None, before: None }
    }

    /// From one index up to, not including, another.
    pub(super) fn between(id: u64, from: u32, to: u32) -> Self {
        let bound = |at| Some(vec![Value::Int(at)]);
        Self { id: id as i64, after: bound(i64::from(from) - 1), before: bound(to.into()) }
    }

    pub(super) const fn is_all(&self) -> bool {
        self.after.is_none() && self.before.is_none()
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
pub(super) fn around<'c>(
    mut clears: Vec<Span<'c>>,
    rows: &mut BTreeMap<Vec<Value<'c>>, Touch<'c>>,
) -> Vec<Span<'c>> {
    clears.sort_by_key(Span::begin);
    clears.dedup_by(|next, last| last.absorb(next));
    let mut spans = Vec::with_capacity(clears.len());
    for mut rest in clears {
        for (unique, touch) in rows.range_mut(rest.begin()..) {
            if unique.first() != Some(&Value::Int(rest.id)) {
                break;
            }
            if !rest.contains(unique) {
                continue;
            }
            let bound = Some(unique[1..].to_vec());
            spans.push(Span { id: rest.id, after: rest.after.take(), before: bound.clone() });
            rest.after = bound;
            if touch.changes.iter().all(|change| change.what != Do::Discard) {
                touch.changes.push(Change { what: Do::Discard, key: None, values: unique.clone() });
            }
        }
        spans.push(rest);
    }
    spans
}
