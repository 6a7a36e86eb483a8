//! Encodes a commit as one transaction, which compares the revisions of the keys that were read.
//!
//! What must stay true: every key of the commit that was read is compared, alone or as part of a
//! range.

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::schema::Key;
use tokio::sync::OnceCell;

use super::wire::{Compare, DeleteRequest, KeyValue, PutRequest, RequestOp, TxnRequest};
use crate::{
    keys::{Keys, Place, after},
    kv::{Change, Changes, Volume},
    stored::{Pair, Raw, Result, Span},
};

/// Operators of comparisons, and the number for "revision of the last change" as their subject.
const EQUAL: i32 = 0;
const LESS: i32 = 2;
const MOD: i32 = 2;
/// Levels of nested transactions. Two levels hold more than one request may have.
const DEPTH: u32 = 2;

/// The revision of the first read, and the revisions at which the keys that were read had last
/// changed. A commit compares these.
#[derive(Debug, Default)]
pub struct Moment {
    pub(super) revision: OnceCell<i64>,
    /// 0 for those that are absent.
    keys: Mutex<FxHashMap<Raw, i64>>,
    /// Whether no commit follows, so that nothing must be kept to compare.
    pub(super) reads_only: bool,
}

impl Moment {
    /// A snapshot for any number of reads, without a commit.
    pub(super) fn reading() -> Self {
        Self { reads_only: true, ..Self::default() }
    }

    /// Records what was found under a key.
    pub(super) fn note(&self, key: Raw, found: Option<KeyValue>) -> Option<Pair> {
        if !self.reads_only {
            let last = found.as_ref().map_or(0, |kv| kv.mod_revision);
            self.keys.lock().entry(key).or_insert(last);
        }
        found.map(|kv| (kv.key, kv.value))
    }

    /// The transaction for some changes, with at most `most` operations on the path to each. `None`
    /// if it is too large, but would fit if the new keys had been read as absent.
    pub(super) fn transaction(
        self,
        volume: &Volume,
        changes: Changes,
        most: usize,
    ) -> Result<Option<TxnRequest>> {
        let (now, last) = (self.revision.into_inner().unwrap_or(0), self.keys.into_inner());
        let Changes { keys, cleared, spans, notice, .. } = changes;
        let mut success: Vec<RequestOp> = cleared.iter().flat_map(|span| clear(span, &keys)).collect();
        // Keys, the revision of their last change, and whether the commit keeps or writes them.
        let mut read: Vec<(Raw, i64, bool)> = Vec::new();
        let mut unread = Vec::new();
        for (key, change) in keys {
            match last.get(&key) {
                Some(last) => read.push((key.clone(), *last, change != Change::Delete)),
                None if matches!(change, Change::Insert(_)) => unread.push(unchanged(key.clone(), 0)),
                None => {}
            }
            success.extend(match change {
                Change::Put(value) | Change::Insert(value) => Some(put(key, value)),
                Change::Delete => Some(delete(key, Vec::new())),
                Change::Hold(_) => None,
            });
        }
        let message =
            notice.map(|notice| put(volume.keys.message(notice.writer, notice.lane), notice.encode()));
        success.extend(message);
        let may_be_absent = !unread.is_empty();
        let mut compare = unread;
        compare.extend(spans.into_iter().map(|span| compare_range(span, now)));
        if compare.len() + read.len() > most {
            compare.extend(join(&volume.keys, &mut read, now));
        }
        compare.extend(read.into_iter().map(|(key, last, _)| unchanged(key, last)));
        let (operations, compares) = (success.len(), compare.len());
        let txn = nested(compare, success, most);
        if txn.is_some() || may_be_absent {
            return Ok(txn);
        }
        Err(volume.refused(format!(
            "a change of {operations} records that compares {compares} does not fit into one transaction, which has at \
             most {most} operations; raise --max-txn-ops of all etcd servers and say so in the URL (max-txn-ops=N)"
        )))
    }
}

/// Deletes a range except the keys that change, because no key may occur twice in one transaction.
fn clear(span: &Span, changed: &[(Raw, Change)]) -> Vec<RequestOp> {
    let mut kept: Vec<&Raw> = changed.iter().map(|(key, _)| key).filter(|key| span.contains(key)).collect();
    kept.sort_unstable();
    let from = std::iter::once(span.from.clone()).chain(kept.iter().map(|key| after(key)));
    let to = kept.iter().copied().chain([&span.to]);
    // The server does not accept an empty range.
    from.zip(to).filter(|(from, to)| from < *to).map(|(from, to)| delete(from, to.clone())).collect()
}

/// Removes the keys from `read` that a comparison of a few ranges covers. If nothing between the
/// first and the last of some keys is newer, then absent keys are still absent, and existing ones
/// are unchanged or deleted. Other comparisons detect a deletion:
///
/// - A chunk is deleted only if its node is changed or deleted, too, and the node is compared.
/// - The number of a slice's references is not deleted as long as there is one, and a commit that
///   changes the number compares the record of one reference.
fn join(keys: &Keys, read: &mut Vec<(Raw, i64, bool)>, now: i64) -> Vec<Compare> {
    let compared: FxHashSet<Raw> = read.iter().map(|(key, ..)| key.clone()).collect();
    let is_covered = |(key, last, stays): &mut (Raw, i64, bool)| match keys.place(key) {
        _ if *last == 0 => true,
        Some(Place::Record(Key::Chunk(ino, _))) => compared.contains(&keys.raw(&Key::Node(ino))),
        Some(Place::Record(Key::SliceRef(..))) => *stays,
        _ => false,
    };
    let mut joined: Vec<Raw> = read.extract_if(.., is_covered).map(|(key, ..)| key).collect();
    joined.sort_unstable();
    let runs = joined.chunk_by(|one, other| keys.kind(one) == keys.kind(other));
    // If other keys of the same kind are newer, the commit reads again.
    let spans = runs.filter_map(|run| Some(Span { from: run.first()?.clone(), to: after(run.last()?) }));
    spans.map(|span| compare_range(span, now)).collect()
}

/// Puts the operations into nested transactions if there are too many. The server counts the
/// operations and comparisons on the path to each operation.
fn nested(compare: Vec<Compare>, mut success: Vec<RequestOp>, most: usize) -> Option<TxnRequest> {
    let sizes = (0..=DEPTH).map(|depth| {
        let outer = compare.len().max(most / (depth as usize + 1));
        (depth, outer, most.saturating_sub(outer) / depth.max(1) as usize)
    });
    let fits = |(depth, outer, inner): &(u32, usize, usize)| {
        *outer <= most && success.len() <= outer * inner.pow(*depth)
    };
    let (depth, _, inner) = sizes.into_iter().find(fits)?;
    for _ in 0..depth {
        let mut rest = success.into_iter().peekable();
        let groups = std::iter::from_fn(|| {
            rest.peek()?;
            let txn = TxnRequest { compare: Vec::new(), success: rest.by_ref().take(inner).collect() };
            Some(RequestOp { txn: Some(txn), ..RequestOp::default() })
        });
        success = groups.collect();
    }
    Some(TxnRequest { compare, success })
}

/// Operations that fit into a transaction of transactions that compares nothing.
pub(super) fn nested_once(most: usize) -> usize {
    most / 2 * (most - most / 2)
}

fn put(key: Raw, value: Vec<u8>) -> RequestOp {
    RequestOp { put: Some(PutRequest { key, value }), ..RequestOp::default() }
}

fn delete(key: Raw, range_end: Raw) -> RequestOp {
    RequestOp { delete: Some(DeleteRequest { key, range_end }), ..RequestOp::default() }
}

fn unchanged(key: Raw, last: i64) -> Compare {
    Compare { result: EQUAL, target: MOD, key, mod_revision: Some(last), range_end: Vec::new() }
}

/// A comparison: nothing in a range is newer than `now`.
fn compare_range(Span { from: key, to: range_end }: Span, now: i64) -> Compare {
    Compare { result: LESS, target: MOD, key, mod_revision: Some(now + 1), range_end }
}
