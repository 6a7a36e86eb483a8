//! etcd: reads at one revision, commits that compare the revisions of what was read.
//!
//! What must stay true: a commit is one transaction of the server or nothing. What does not fit
//! into one is refused before it is sent.

mod config;
mod members;
mod watch;
mod wire;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_meta::engine::{EngineError, Limits, News, Watch};
use tokio::time::sleep;

use self::{
    config::Config,
    members::{Members, Trouble},
    wire::{
        Ask, Compare, DeleteRequest, EQUAL, LESS, MOD, PutRequest, RangeRequest, RangeResponse, RequestOp,
        TxnRequest, TxnResponse,
    },
};
use crate::{
    engine::KvEngine,
    keys::{Keys, after},
    kv::{Change, Changes, Kv, Outcome, Pair, Raw, Span, Volume},
};

/// The call that reads and commits.
const TXN: &str = "/etcdserverpb.KV/Txn";
/// Rows of one request of a range.
const PAGE: usize = 4096;
/// Times that each member is asked before a read fails. A new leader takes a second or two.
const ROUNDS: usize = 3;

/// A cluster, and where in it the volume lies.
pub struct Etcd {
    members: Members,
    volume: Volume,
    /// Most operations of one transaction.
    most: usize,
    lanes: usize,
}

/// A volume's metadata in etcd.
pub type EtcdEngine = KvEngine<Etcd>;

impl EtcdEngine {
    /// Reads the URL; connects at the first call.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the URL is wrong, or a certificate cannot be read.
    pub fn open(url: &str) -> Result<Self, EngineError> {
        let config = Config::parse(url)?;
        let volume = Volume { keys: Keys::new(&config.address.path), label: config.label().into() };
        let members = Members::new(&config)?;
        Ok(Self::new(Arc::new(Etcd { members, volume, most: config.most, lanes: config.lanes })))
    }
}

/// One revision, that of the first look, and when the keys that were read had last changed: what a
/// commit compares.
#[derive(Debug, Default)]
pub struct Moment {
    /// 0 before the first look.
    revision: tokio::sync::Mutex<i64>,
    /// 0 for those that are absent.
    keys: Mutex<FxHashMap<Raw, i64>>,
}

impl Etcd {
    /// Ranges at a revision, 0 for the present, and what that is. May be sent twice.
    async fn look(
        &self,
        revision: i64,
        ranges: &[RangeRequest],
    ) -> Result<(i64, Vec<RangeResponse>), EngineError> {
        let range = |range: &RangeRequest| Ask::Range(RangeRequest { revision, ..range.clone() });
        let success: Vec<_> = ranges.iter().map(|of| RequestOp { ask: Some(range(of)) }).collect();
        let tries = ROUNDS * self.members.count();
        for at in 1.. {
            let ask = TxnRequest { compare: Vec::new(), success: success.clone() };
            let reason = match self.members.call::<_, TxnResponse>(TXN, ask).await {
                Ok(TxnResponse { header, responses, .. }) => {
                    let revision = if revision > 0 { revision } else { header.map_or(0, |of| of.revision) };
                    return Ok((revision, responses.into_iter().filter_map(|op| op.range).collect()));
                }
                Err(Trouble::Refused(reason)) => return Err(self.volume.refused(reason)),
                // Whoever asks begins anew, at a newer revision.
                Err(Trouble::Compacted) => {
                    return Err(self.volume.unavailable("what was to be read was compacted away"));
                }
                Err(Trouble::Nothing(reason) | Trouble::Unknown(reason)) => reason,
            };
            if at >= tries {
                return Err(self.volume.unavailable(reason));
            }
            tracing::debug!(at, reason, "a read is tried again");
            sleep(Duration::from_millis(if at % self.members.count() == 0 { 300 } else { 5 })).await;
        }
        Err(self.volume.unavailable("nobody was asked"))
    }

    /// As [`Self::look`], at the revision of the first look of a moment.
    async fn look_at(&self, at: &Moment, ranges: &[RangeRequest]) -> Result<Vec<RangeResponse>, EngineError> {
        let mut known = at.revision.lock().await;
        let (revision, answers) = if *known == 0 {
            self.look(0, ranges).await?
        } else {
            let revision = *known;
            drop(known);
            return Ok(self.look(revision, ranges).await?.1);
        };
        *known = revision;
        Ok(answers)
    }

    /// The operations of a commit, and what it compares.
    fn request(&self, at: Moment, changes: Changes) -> TxnRequest {
        let (keys, revision) = (at.keys.into_inner(), at.revision.into_inner());
        let mut txn = TxnRequest::default();
        let op = |ask| RequestOp { ask: Some(ask) };
        for mut span in changes.cleared {
            // No key may come up twice in one transaction, not even as removed and then written.
            let mut kept: Vec<&Raw> = changes.keys.iter().map(|(key, _)| key).collect();
            kept.retain(|key| span.contains(key));
            kept.sort_unstable();
            for key in kept {
                let part = std::mem::replace(&mut span.from, after(key));
                txn.success.push(op(Ask::Delete(DeleteRequest { key: part, range_end: key.clone() })));
            }
            txn.success.push(op(Ask::Delete(DeleteRequest { key: span.from, range_end: span.to })));
        }
        // A range from a key to itself is empty and no range to the server.
        txn.success.retain(|op| !matches!(&op.ask, Some(Ask::Delete(range)) if range.key >= range.range_end));
        let mut absent = Vec::new();
        for (key, change) in changes.keys {
            match keys.get(&key) {
                Some(0) => absent.push(key.clone()),
                Some(revision) => txn.compare.push(compare(key.clone(), Vec::new(), EQUAL, *revision)),
                None if matches!(change, Change::Insert(_)) => {
                    txn.compare.push(compare(key.clone(), Vec::new(), EQUAL, 0));
                }
                None => {}
            }
            txn.success.extend(match change {
                Change::Put(value) | Change::Insert(value) => Some(op(Ask::Put(PutRequest { key, value }))),
                Change::Delete => Some(op(Ask::Delete(DeleteRequest { key, range_end: Vec::new() }))),
                Change::Hold(_) => None,
            });
        }
        for span in changes.spans {
            txn.compare.push(compare(span.from, span.to, LESS, revision + 1));
        }
        let one = |key: &Raw| compare(key.clone(), Vec::new(), EQUAL, 0);
        if txn.compare.len() + absent.len() <= self.most {
            txn.compare.extend(absent.iter().map(one));
        } else {
            // Keys that were absent are so if nothing between the first and the last of them
            // changed since: others of the same kind that did send the commit back to look again.
            absent.sort_unstable();
            let kind = self.volume.keys.all().from.len();
            let kind =
                |key: &Raw| key[..key.len().min(kind + if key[kind] == b'A' { 10 } else { 1 })].to_vec();
            txn.compare.extend(absent.chunk_by(|one, other| kind(one) == kind(other)).filter_map(|run| {
                let (first, last) = (run.first()?, run.last()?);
                Some(compare(first.clone(), after(last), LESS, revision + 1))
            }));
        }
        if let Some(told) = changes.told {
            let key = self.volume.keys.message(told.writer, told.lane);
            txn.success.push(op(Ask::Put(PutRequest { key, value: told.encode() })));
        }
        txn
    }
}

fn compare(key: Raw, range_end: Raw, result: i32, revision: i64) -> Compare {
    Compare { result, target: MOD, key, mod_revision: Some(revision), range_end }
}

/// Puts the operations into transactions within the transaction if there are too many: the server
/// counts those on the way to each, and the comparisons with them. Nothing if there are too many
/// for that.
fn nested(mut txn: TxnRequest, most: usize) -> Option<TxnRequest> {
    let count = txn.success.len();
    if txn.compare.len().max(count) <= most {
        return Some(txn);
    }
    let inner =
        (1..most).rev().find(|inner| txn.compare.len().max(count.div_ceil(*inner)) + inner <= most)?;
    let groups = txn.success.chunks(inner).map(|group| {
        let group = TxnRequest { compare: Vec::new(), success: group.to_vec() };
        RequestOp { ask: Some(Ask::Txn(group)) }
    });
    txn.success = groups.collect();
    Some(txn)
}

impl Kv for Etcd {
    type Moment = Moment;
    const NAME: &'static str = "etcd";
    const CLEARS: bool = true;

    fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Most changes compare two to five keys.
    fn limits(&self) -> Limits {
        Limits { lanes: self.lanes, batch: (self.most * 3 / 16).min(256), news: News::Messages }
    }

    async fn now(&self) -> Result<Moment, EngineError> {
        Ok(Moment::default())
    }

    async fn begin(&self) -> Result<Moment, EngineError> {
        Ok(Moment::default())
    }

    async fn get(&self, at: &Moment, keys: &[Raw]) -> Result<Vec<Pair>, EngineError> {
        let range = |key: &Raw| RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let ranges: Vec<_> = keys.iter().map(range).collect();
        let flights = ranges.chunks(self.most).map(|ranges| self.look_at(at, ranges));
        let answers = futures::future::try_join_all(flights).await?;
        let mut seen = at.keys.lock();
        let mut pairs = Vec::new();
        for (key, answer) in keys.iter().zip(answers.into_iter().flatten()) {
            let found = answer.kvs.into_iter().next();
            seen.entry(key.clone()).or_insert(found.as_ref().map_or(0, |kv| kv.mod_revision));
            pairs.extend(found.map(|kv| (kv.key, kv.value)));
        }
        Ok(pairs)
    }

    async fn range(
        &self,
        at: &Moment,
        span: &Span,
        limit: usize,
        values: bool,
    ) -> Result<Vec<Pair>, EngineError> {
        if span.from >= span.to || limit == 0 {
            return Ok(Vec::new());
        }
        let mut rest = span.clone();
        let mut all = Vec::new();
        loop {
            let ask = (limit - all.len()).min(PAGE);
            let range = RangeRequest {
                key: rest.from.clone(),
                range_end: rest.to.clone(),
                limit: ask as i64,
                keys_only: !values,
                ..RangeRequest::default()
            };
            let page = self.look_at(at, &[range]).await?.into_iter().flat_map(|page| page.kvs);
            let before = all.len();
            let mut seen = at.keys.lock();
            for kv in page {
                seen.entry(kv.key.clone()).or_insert(kv.mod_revision);
                all.push((kv.key, kv.value));
            }
            drop(seen);
            match all.last() {
                Some((last, _)) if all.len() - before == ask && all.len() < limit => rest.from = after(last),
                _ => return Ok(all),
            }
        }
    }

    async fn commit(&self, at: Moment, changes: Changes) -> Result<Outcome, EngineError> {
        let blind = changes
            .keys
            .iter()
            .any(|(key, change)| matches!(change, Change::Insert(_)) && !at.keys.lock().contains_key(key));
        let txn = self.request(at, changes);
        let (compares, operations) = (txn.compare.len(), txn.success.len());
        let Some(txn) = nested(txn, self.most) else {
            if blind {
                // What is known to be absent takes fewer comparisons.
                return Ok(Outcome::Exists);
            }
            return Err(self.volume.refused(format!(
                "a change of {operations} records that compares {compares} does not fit into one transaction, which has \
                 at most {} operations; raise --max-txn-ops of all etcd servers and say so in the URL (max-txn-ops=N)",
                self.most
            )));
        };
        for _ in 0..=self.members.count() {
            let reason = match self.members.call(TXN, txn.clone()).await {
                Ok(TxnResponse { succeeded: true, .. }) => return Ok(Outcome::Done),
                Ok(_) => return Ok(Outcome::Exists),
                Err(Trouble::Refused(reason)) => return Err(self.volume.refused(reason)),
                Err(Trouble::Unknown(reason)) => return Err(self.volume.indeterminate(reason)),
                Err(Trouble::Compacted) => return Ok(Outcome::Outrun),
                Err(Trouble::Nothing(reason)) => reason,
            };
            tracing::debug!(reason, "a commit was not sent");
        }
        Err(self.volume.unavailable("no member takes a commit"))
    }

    fn watch(self: &Arc<Self>) -> Result<Box<dyn Watch>, EngineError> {
        Ok(Box::new(watch::Listener::new(self)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the server counts on the longest way.
    fn depth(txn: &TxnRequest) -> usize {
        let inner =
            txn.success.iter().map(|op| if let Some(Ask::Txn(txn)) = &op.ask { depth(txn) } else { 0 });
        txn.compare.len().max(txn.success.len()) + inner.max().unwrap_or(0)
    }

    fn leaves(txn: &TxnRequest) -> usize {
        txn.success.iter().map(|op| if let Some(Ask::Txn(txn)) = &op.ask { leaves(txn) } else { 1 }).sum()
    }

    #[test]
    fn as_many_operations_as_a_transaction_takes() {
        let txn = |compares, operations| TxnRequest {
            compare: vec![Compare::default(); compares],
            success: vec![RequestOp::default(); operations],
        };
        for (compares, operations) in
            [(0, 0), (128, 128), (0, 4096), (64, 4096), (100, 129), (100, 2800), (127, 127)]
        {
            let txn = nested(txn(compares, operations), 128).expect("fits");
            assert!(depth(&txn) <= 128, "{compares} {operations}");
            assert_eq!(leaves(&txn), operations);
        }
        for (compares, operations) in [(129, 1), (128, 129), (100, 2801), (0, 4097)] {
            assert!(nested(txn(compares, operations), 128).is_none(), "{compares} {operations}");
        }
    }
}
