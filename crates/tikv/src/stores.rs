//! Scans and loads, each request to the store that leads a region.

use std::{
    fmt::Display,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{StreamExt as _, stream};
use prost::Message;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::{
    call::call,
    error::Error,
    regions::{Region, Regions},
    rows::{Pair, PrewriteRows},
    wire::{Prewrite, PrewriteResponse, ScanRequest, ScanResponse},
};

/// Most rows of one transaction.
pub const ROWS: usize = 4000;
/// Most bytes of one transaction, unless one row is larger: by default, an entry of the raft log
/// has room for eight times as many.
const MAX_BYTES: usize = 1 << 20;
/// How long the locks of a transaction last that could not be committed at once, in ms.
const LOCK_TTL: u64 = 3000;

/// The stores of a cluster. It connects at the first request.
pub struct Stores {
    regions: Regions,
    /// Whether a store did not commit in one phase: none is asked to do so again.
    has_two_phases: AtomicBool,
}

impl Stores {
    /// With the addresses of the placement drivers. If connections are encrypted: the certificates
    /// to trust, our own one and its key, all as PEM.
    pub fn new(hosts: Vec<String>, pem: Option<[Vec<u8>; 3]>) -> Self {
        let tls = pem.map(|[ca, cert, key]| {
            ClientTlsConfig::new()
                .ca_certificate(Certificate::from_pem(ca))
                .identity(Identity::from_pem(cert, key))
        });
        Self { regions: Regions::new(hosts, tls), has_two_phases: AtomicBool::new(false) }
    }

    /// The first `limit` rows from the key `from` up to, not including, the key `to`, as they were
    /// at the timestamp `version`. Without `values`, the values may be empty.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        version: u64,
        limit: usize,
        values: bool,
    ) -> Result<Vec<Pair>, Error> {
        let mut start_key = from.to_vec();
        let mut all = Vec::new();
        while *start_key < *to && all.len() < limit {
            let region = self.regions.of(&start_key).await?;
            let end_key = if region.end.is_empty() { to } else { to.min(&region.end) }.to_vec();
            let wanted = limit - all.len();
            let request = ScanRequest {
                context: Some(region.context.clone()),
                start_key,
                limit: u32::try_from(wanted).unwrap_or(u32::MAX),
                version,
                key_only: !values,
                end_key: end_key.clone(),
            };
            let answer: ScanResponse = self.ask(&region, "/tikvpb.Tikv/KvScan", request).await?;
            self.check(answer.region_error.as_deref())?;
            if answer.error.is_some() || answer.pairs.iter().any(|pair| pair.error.is_some()) {
                return Err(Error::Key);
            }
            all.reserve(answer.pairs.len());
            all.extend(answer.pairs.into_iter().map(|pair| (pair.key, pair.value)));
            start_key = end_key;
        }
        Ok(all)
    }

    /// Stores pairs that are sorted by their keys, in transactions of up to [`ROWS`] pairs of one
    /// region, `at_once` of them under way. `now` returns a new timestamp.
    ///
    /// # Errors
    /// See [`Error`]. Any of the pairs may be stored all the same.
    pub async fn load<N, T, E>(&self, pairs: &Arc<Vec<Pair>>, at_once: usize, now: N) -> Result<(), Error>
    where
        N: Fn() -> T,
        T: Future<Output = Result<u64, E>>,
        E: Display,
    {
        let now = &now;
        let store = |begin: usize| async move {
            let mut range = begin..pairs.len().min(begin + ROWS);
            while !range.is_empty() {
                let start = now().await.map_err(|error| Error::Time(error.to_string()))?;
                range.start = self.put(start, pairs, range.clone()).await?;
            }
            Ok(())
        };
        let parts = (0..pairs.len()).step_by(ROWS).map(store);
        // All end before an error is returned: what is repeated then would conflict with them.
        let ended: Vec<Result<(), Error>> = stream::iter(parts).buffer_unordered(at_once).collect().await;
        ended.into_iter().collect()
    }

    /// Stores the first of some pairs, those of one region. Returns where the others begin.
    async fn put(&self, start: u64, pairs: &Arc<Vec<Pair>>, range: Range<usize>) -> Result<usize, Error> {
        if self.has_two_phases.load(Ordering::Relaxed) {
            return Err(Error::TwoPhases);
        }
        let some = &pairs[range.clone()];
        let primary = &some[0].0;
        let region = self.regions.of(primary).await?;
        let mut bytes = 0;
        let fits = |(key, value): &&Pair| {
            bytes += key.len() + value.len();
            bytes <= MAX_BYTES && (region.end.is_empty() || *key < region.end)
        };
        let count = some.iter().take_while(fits).count().max(1);
        let head = Prewrite {
            context: Some(region.context.clone()),
            primary_lock: primary.clone(),
            start_version: start,
            lock_ttl: LOCK_TTL,
            txn_size: count as u64,
            try_one_pc: true,
        };
        let end = range.start + count;
        let request = PrewriteRows { head, pairs: pairs.clone(), range: range.start..end };
        let answer: PrewriteResponse = self.ask(&region, "/tikvpb.Tikv/KvPrewrite", request).await?;
        self.check(answer.region_error.as_deref())?;
        if !answer.errors.is_empty() {
            return Err(Error::Key);
        }
        if answer.one_pc_commit_ts == 0 {
            self.has_two_phases.store(true, Ordering::Relaxed);
            return Err(Error::TwoPhases);
        }
        Ok(end)
    }

    async fn ask<Q, A>(&self, region: &Arc<Region>, method: &'static str, request: Q) -> Result<A, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let answer = call(&region.store, method, request).await;
        if answer.is_err() {
            self.regions.forget();
        }
        answer
    }

    /// What is known of regions is outdated if a store says so.
    fn check(&self, region_error: Option<&[u8]>) -> Result<(), Error> {
        if region_error.is_none() {
            return Ok(());
        }
        self.regions.forget_regions();
        Err(Error::Region)
    }
}
