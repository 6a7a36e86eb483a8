//! etcd: reads at one revision, commits that compare the revisions of what was read.
//!
//! What must stay true: a commit is one transaction of the server or nothing. What does not fit
//! into one is refused before it is sent.

mod config;
mod members;
mod txn;
mod watch;
mod wire;

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_meta::engine::{EngineError, Limits, Notices, Watch};
use tokio::sync::OnceCell;

use self::{
    config::Config,
    members::Members,
    txn::{Seen, transaction},
    wire::{RangeRequest, RangeResponse},
};
use crate::{
    engine::KvEngine,
    keys::Keys,
    kv::{Change, Changes, Kv, Outcome, Volume},
    stored::{Pair, Raw, Span},
};

/// A cluster, and where in it the volume lies.
pub struct Etcd {
    members: Arc<Members>,
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
        let (most, lanes) = (config.most, config.lanes);
        let members = Arc::new(Members::new(config, volume)?);
        Ok(Self::new(Arc::new(Etcd { members, most, lanes })))
    }
}

/// One revision, that of the first read, and when the keys that were read had last changed: what a
/// commit compares.
#[derive(Debug, Default)]
pub struct Moment {
    revision: OnceCell<i64>,
    /// 0 for those that are absent.
    keys: Mutex<FxHashMap<Raw, i64>>,
}

impl Etcd {
    /// Ranges at the revision of a moment.
    async fn read(&self, at: &Moment, ranges: &[RangeRequest]) -> Result<Vec<RangeResponse>, EngineError> {
        let mut first = None;
        let begin = async {
            let (revision, answers) = self.members.read(0, ranges).await?;
            first = Some(answers);
            Ok(revision)
        };
        let revision = *at.revision.get_or_try_init(|| begin).await?;
        match first {
            Some(answers) => Ok(answers),
            None => Ok(self.members.read(revision, ranges).await?.1),
        }
    }
}

impl Kv for Etcd {
    type Moment = Moment;
    const NAME: &'static str = "etcd";
    const PAGE: usize = 4096;
    const CLEARS: bool = true;

    fn volume(&self) -> &Volume {
        &self.members.volume
    }

    /// Most changes compare two to five keys.
    fn limits(&self) -> Limits {
        Limits { lanes: self.lanes, batch: (self.most * 3 / 16).min(256), notices: Notices::Push }
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
        let requests = ranges.chunks(self.most).map(|ranges| self.read(at, ranges));
        let answers = futures::future::try_join_all(requests).await?;
        let mut seen = at.keys.lock();
        let mut pairs = Vec::new();
        for (key, answer) in keys.iter().zip(answers.into_iter().flatten()) {
            let found = answer.kvs.into_iter().next();
            seen.entry(key.clone()).or_insert(found.as_ref().map_or(0, |kv| kv.mod_revision));
            pairs.extend(found.map(|kv| (kv.key, kv.value)));
        }
        Ok(pairs)
    }

    async fn page(
        &self,
        at: &Moment,
        span: &Span,
        limit: usize,
        values: bool,
    ) -> Result<Vec<Pair>, EngineError> {
        let Span { from: key, to: range_end } = span.clone();
        let (limit, keys_only) = (limit as i64, !values);
        let range = RangeRequest { key, range_end, limit, keys_only, ..RangeRequest::default() };
        let found = self.read(at, &[range]).await?.into_iter().flat_map(|answer| answer.kvs);
        let mut seen = at.keys.lock();
        let pairs = found.map(|kv| {
            seen.entry(kv.key.clone()).or_insert(kv.mod_revision);
            (kv.key, kv.value)
        });
        Ok(pairs.collect())
    }

    async fn commit(&self, at: Moment, changes: Changes) -> Result<Outcome, EngineError> {
        let keys = at.keys.into_inner();
        let unread =
            |(key, change): &(Raw, Change)| matches!(change, Change::Insert(_)) && !keys.contains_key(key);
        let unread = changes.keys.iter().any(unread);
        let seen = Seen { revision: at.revision.get().copied().unwrap_or(0), keys: &keys };
        let volume = self.volume();
        match transaction(&volume.keys, &seen, changes, self.most) {
            Ok(txn) if self.members.commit(&txn).await? => Ok(Outcome::Done),
            Err((operations, compares)) if !unread => Err(volume.refused(format!(
                "a change of {operations} records that compares {compares} does not fit into one transaction, which \
                 has at most {} operations; raise --max-txn-ops of all etcd servers and say so in the URL \
                 (max-txn-ops=N)",
                self.most
            ))),
            // What is known to be absent takes fewer comparisons.
            Ok(_) | Err(_) => Ok(Outcome::Exists),
        }
    }

    fn watch(self: &Arc<Self>) -> Result<Box<dyn Watch>, EngineError> {
        Ok(Box::new(watch::Listener::new(&self.members)?))
    }
}
