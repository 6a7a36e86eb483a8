//! What a commit is to the server: one transaction, which compares the revisions of what was read.
//!
//! What must stay true: every key that the commit names and that was read is compared, by itself or
//! in a range that tells the same.

use rustc_hash::{FxHashMap, FxHashSet};

use super::wire::{Compare, DeleteRequest, PutRequest, RequestKind, RequestOp, TxnRequest};
use crate::{
    keys::{Keys, after},
    kv::{Change, Changes},
    stored::{Raw, Span},
};

/// Ways to compare, and the revision of a key's last change as what is compared.
const EQUAL: i32 = 0;
const LESS: i32 = 2;
const MOD: i32 = 2;

/// What was read before a commit.
pub(super) struct Seen<'s> {
    /// When.
    pub(super) revision: i64,
    /// When each key had last changed; 0 for those that were absent.
    pub(super) keys: &'s FxHashMap<Raw, i64>,
}

/// The transaction of at most `most` operations that does this; `Err` tells how many there would
/// be, and how many comparisons.
pub(super) fn transaction(
    keys: &Keys,
    seen: &Seen<'_>,
    changes: Changes,
    most: usize,
) -> Result<TxnRequest, (usize, usize)> {
    let Changes { keys: changed, cleared, spans, notice } = changes;
    let mut txn = TxnRequest::default();
    for span in cleared {
        clear(&mut txn, &span, &changed);
    }
    let mut all = Vec::new();
    for (key, change) in changed {
        match seen.keys.get(&key) {
            Some(revision) => all.push((key.clone(), *revision)),
            None if matches!(change, Change::Insert(_)) => txn.compare.push(unchanged(key.clone(), 0)),
            None => {}
        }
        txn.success.extend(match change {
            Change::Put(value) | Change::Insert(value) => Some(put(key, value)),
            Change::Delete => Some(delete(key, Vec::new())),
            Change::Hold(_) => None,
        });
    }
    txn.compare.extend(spans.into_iter().map(|span| seen.compare_range(span)));
    if txn.compare.len() + all.len() > most {
        seen.join(keys, &mut all, &mut txn.compare);
    }
    txn.compare.extend(all.into_iter().map(|(key, revision)| unchanged(key, revision)));
    txn.success.extend(notice.map(|notice| put(keys.message(notice.writer, notice.lane), notice.encode())));
    nested(txn, most)
}

/// Empties a range but for the keys that change: none may come up twice in one transaction.
fn clear(txn: &mut TxnRequest, span: &Span, changed: &[(Raw, Change)]) {
    let kept = changed.iter().map(|(key, _)| key).filter(|key| span.contains(key));
    let mut kept: Vec<Raw> = kept.cloned().collect();
    kept.sort_unstable();
    let from = std::iter::once(span.from.clone()).chain(kept.iter().map(|key| after(key)));
    let to = kept.iter().cloned().chain([span.to.clone()]);
    // A range from a key to itself is no range to the server.
    let parts = from.zip(to).filter(|(from, to)| from < to);
    txn.success.extend(parts.map(|(from, to)| delete(from, to)));
}

impl Seen<'_> {
    /// Nothing in a range is newer than what was read.
    fn compare_range(&self, span: Span) -> Compare {
        compare(span.from, span.to, LESS, self.revision + 1)
    }

    /// Takes the keys that one range after another tells of, and adds these. If nothing between the
    /// first and the last of some keys is newer, those that were absent are, and those that were
    /// there are unchanged or gone. Chunks do not go unless their node changes or goes, too; so
    /// where that is compared, it tells the rest.
    fn join(&self, keys: &Keys, all: &mut Vec<(Raw, i64)>, ranges: &mut Vec<Compare>) {
        let compared: FxHashSet<Raw> = all.iter().map(|(key, _)| key.clone()).collect();
        let held = |key: &Raw| keys.node_of_chunk(key).is_some_and(|node| compared.contains(&node));
        let joined: Vec<_> = all.extract_if(.., |(key, revision)| *revision == 0 || held(key)).collect();
        let mut joined: Vec<Raw> = joined.into_iter().map(|(key, _)| key).collect();
        joined.sort_unstable();
        // Others of the same kind that are newer send the commit back to look again.
        ranges.extend(joined.chunk_by(|one, other| keys.kind(one) == keys.kind(other)).filter_map(|run| {
            let (from, to) = (run.first()?.clone(), after(run.last()?));
            Some(self.compare_range(Span { from, to }))
        }));
    }
}

/// Puts the operations into transactions within the transaction if there are too many: the server
/// counts those on the way to each, and the comparisons with them.
fn nested(mut txn: TxnRequest, most: usize) -> Result<TxnRequest, (usize, usize)> {
    let (compares, count) = (txn.compare.len(), txn.success.len());
    if compares.max(count) <= most {
        return Ok(txn);
    }
    let outer = compares.max(most / 2);
    let inner = most.saturating_sub(outer);
    if count > inner * outer {
        return Err((count, compares));
    }
    let groups = txn.success.chunks(inner).map(|group| {
        let group = TxnRequest { compare: Vec::new(), success: group.to_vec() };
        RequestKind::Txn(group).into()
    });
    txn.success = groups.collect();
    Ok(txn)
}

fn put(key: Raw, value: Vec<u8>) -> RequestOp {
    RequestKind::Put(PutRequest { key, value }).into()
}

fn delete(key: Raw, range_end: Raw) -> RequestOp {
    RequestKind::Delete(DeleteRequest { key, range_end }).into()
}

fn unchanged(key: Raw, revision: i64) -> Compare {
    compare(key, Vec::new(), EQUAL, revision)
}

fn compare(key: Raw, range_end: Raw, result: i32, revision: i64) -> Compare {
    Compare { result, target: MOD, key, mod_revision: Some(revision), range_end }
}
