//! The connections to the servers: one to each member. One of them is in use. Every call has a
//! deadline.
//!
//! What must stay true: a commit that may have happened is not sent again.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use futures::{StreamExt as _, future, stream};
use parking_lot::Mutex;
use sluice_meta::engine::EngineError;
use tokio::time::{sleep, timeout};
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::MetadataValue,
    transport::{Channel, Endpoint, Error},
};
use tonic_prost::ProstCodec;

use super::{
    status::{COMPACTED, error, with_causes},
    tls::tls,
    txn::Moment,
    wire::{
        AuthRequest, AuthResponse, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
        WatchCreate, WatchRequest, WatchResponse,
    },
};
use crate::{
    address::Address,
    kv::{Volume, run},
    stored::Result,
};

/// Longest wait for one answer. A server waits as long for the other members.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of keep-alive pings on an idle connection. Servers close connections that send them
/// more often than every 5 s.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Tries on each member before a read fails. The election of a leader takes a second or two.
const ROUNDS: usize = 3;
/// Pause after a round of all members, and before the next member.
const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(5)];
/// Most operations of one transaction, unless the servers were started with `--max-txn-ops`.
const DEFAULT_TXN_OPS: usize = 128;
/// Largest answer: a page of whole chunks.
const MAX_ANSWER: usize = 256 << 20;

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Commit,
    /// Any member may answer.
    Snapshot,
    Read,
}

/// A cluster, and the place of the volume in it.
pub struct Etcd {
    channels: Vec<Channel>,
    current: AtomicUsize,
    /// Reads of snapshots so far. They go to all members in turn.
    snapshot_reads: AtomicUsize,
    /// Whether a member failed. Then all requests go to the current one.
    failed: AtomicBool,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    pub(super) volume: Volume,
    /// Most operations of one transaction.
    pub(super) most: usize,
    pub(super) lanes: usize,
}

impl Etcd {
    /// Reads a URL; connects at the first call.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the URL is wrong, or a certificate cannot be read.
    pub fn open(url: &str) -> Result<Self> {
        let mut address = Address::parse(url, "etcd")?;
        let (most, lanes) = (address.number("max-txn-ops", DEFAULT_TXN_OPS)?, address.lanes()?);
        if most < 16 {
            return Err(address.refused("max-txn-ops must be 16 or more"));
        }
        let tls = tls(&mut address)?;
        address.warn();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let channel = |member: &String| {
            let endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))?
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(REQUEST_TIMEOUT)
                .keep_alive_while_idle(true);
            Ok(match tls.clone() {
                Some(tls) => endpoint.tls_config(tls)?.connect_lazy(),
                None => endpoint.connect_lazy(),
            })
        };
        // A channel starts tasks of its own.
        let channels = run(async {
            let all: Result<_, Error> = address.hosts.iter().map(channel).collect();
            all.map_err(|error| address.refused(with_causes(&error)))
        })?;
        let volume = address.volume(&address.path);
        Ok(Self {
            channels,
            current: AtomicUsize::new(0),
            snapshot_reads: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            user: address.user,
            token: Mutex::default(),
            volume,
            most,
            lanes,
        })
    }

    /// Reads ranges at the revision of a snapshot, which is that of its first read. Only the first
    /// read waits for a majority: a member has either the whole later revision, or reports that it
    /// does not have it yet, and then the next member is asked.
    pub(super) async fn read(&self, at: &Moment, ranges: &[RangeRequest]) -> Result<Vec<RangeResponse>> {
        let read = async |revision| {
            let serializable = revision > 0;
            let range = |range: &RangeRequest| Some(RangeRequest { revision, serializable, ..range.clone() });
            let success = ranges.iter().map(|of| RequestOp { range: range(of), ..RequestOp::default() });
            let request = TxnRequest { success: success.collect(), ..TxnRequest::default() };
            let purpose = if serializable && at.reads_only { Purpose::Snapshot } else { Purpose::Read };
            self.transact(&request, purpose).await
        };
        let mut first = None;
        let begin = async || {
            let answer = first.insert(read(0).await?);
            Ok(answer.header.as_ref().map_or(0, |header| header.revision))
        };
        let revision = *at.revision.get_or_try_init(begin).await?;
        let answer = match first {
            Some(answer) => answer,
            None => read(revision).await?,
        };
        Ok(answer.responses.into_iter().filter_map(|op| op.range).collect())
    }

    /// Opens a watch.
    pub(super) async fn listen(&self, create: WatchCreate) -> Result<Streaming<WatchResponse>> {
        // The stream of requests must stay open as long as the stream of answers.
        let create = future::ready(WatchRequest { create: Some(create) });
        let requests = stream::once(create).chain(stream::pending());
        let call = async |at| {
            let mut request = self.signed(at, requests).await?;
            // This makes a member that loses its leader end the stream, instead of sending nothing.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            Ok(self.ready(at).await?.streaming(request, path, ProstCodec::default()).await?.into_inner())
        };
        self.call(Purpose::Read, call).await
    }

    /// Sends a transaction to one member after another until it is answered, or may have happened.
    pub(super) async fn transact(&self, request: &TxnRequest, purpose: Purpose) -> Result<TxnResponse> {
        let members = self.channels.len();
        let tries = if purpose == Purpose::Commit { members + 1 } else { ROUNDS * members };
        let mut tried = 0;
        loop {
            let call = async |at| {
                let request = self.signed(at, request.clone()).await?;
                self.unary(at, "/etcdserverpb.KV/Txn", request).await
            };
            tried += 1;
            match self.call(purpose, call).await {
                // A read at a compacted revision begins again, at a newer one.
                Err(EngineError::Unavailable { reason, .. })
                    if tried < tries && !reason.contains(COMPACTED) =>
                {
                    tracing::debug!(tried, reason, "a request is sent again");
                }
                ended => return ended,
            }
            sleep(PAUSES[usize::from(tried % members != 0)]).await;
        }
    }

    /// Makes a call to the member in use, or for a snapshot to any. If the member may be the reason
    /// of an error, the next call goes to another one.
    async fn call<A>(
        &self,
        purpose: Purpose,
        call: impl AsyncFnOnce(usize) -> Result<A, Status>,
    ) -> Result<A> {
        let at = if purpose == Purpose::Snapshot && !self.failed.load(Ordering::Relaxed) {
            self.snapshot_reads.fetch_add(1, Ordering::Relaxed) % self.channels.len()
        } else {
            self.current.load(Ordering::Relaxed)
        };
        let late = || Status::deadline_exceeded(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()));
        let ended = timeout(REQUEST_TIMEOUT, call(at)).await.unwrap_or_else(|_| Err(late()));
        ended.map_err(|status| {
            // The token may be invalid.
            *self.token.lock() = None;
            let error = error(&self.volume, &status, purpose != Purpose::Commit);
            if !matches!(error, EngineError::Refused { .. }) {
                self.failed.store(true, Ordering::Relaxed);
                let next = (at + 1) % self.channels.len();
                let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
            }
            error
        })
    }

    async fn unary<Q, A>(&self, at: usize, method: &'static str, request: Request<Q>) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(method);
        Ok(self.ready(at).await?.unary(request, path, ProstCodec::default()).await?.into_inner())
    }

    async fn ready(&self, at: usize) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channels[at].clone()).max_decoding_message_size(MAX_ANSWER);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc)
    }

    /// The request with the authentication token.
    async fn signed<T>(&self, at: usize, message: T) -> Result<Request<T>, Status> {
        let mut request = Request::new(message);
        let Some((name, password)) = self.user.clone() else { return Ok(request) };
        let known = self.token.lock().clone();
        let token = if let Some(token) = known {
            token
        } else {
            let who = Request::new(AuthRequest { name, password });
            let answer: AuthResponse = self.unary(at, "/etcdserverpb.Auth/Authenticate", who).await?;
            self.token.lock().insert(answer.token).clone()
        };
        let token = MetadataValue::try_from(token).map_err(|_| Status::internal("the token is no text"))?;
        request.metadata_mut().insert("token", token);
        Ok(request)
    }
}
