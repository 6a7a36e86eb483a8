//! The way to the servers: one connection to each member, one of them in use, a deadline for every
//! call.
//!
//! What must stay true: only what certainly did not happen is [`EngineError::Unavailable`] or
//! [`EngineError::Refused`].

use std::{
    error::Error,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::StreamExt as _;
use parking_lot::Mutex;
use prost::Message;
use sluice_meta::engine::EngineError;
use tokio::time::{sleep, timeout};
use tonic::{
    Code, ConnectError, Request, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::{
    config::{Config, refused},
    wire::{
        AuthRequest, AuthResponse, RangeRequest, RangeResponse, RequestKind, TxnRequest, TxnResponse,
        WatchCreate, WatchRequest, WatchResponse,
    },
};
use crate::kv::{Volume, enter};

/// Longest wait for one answer: a server waits as long for the others.
const REQUEST: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(2);
/// A connection that says nothing is asked whether it lives; servers close those that ask more
/// often than every 5 s.
const ALIVE: Duration = Duration::from_secs(10);
/// Times that each member is asked before a read fails. A new leader takes a second or two.
const ROUNDS: usize = 3;
/// Wait before all members are asked again, and before the next one is.
const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(5)];
/// Largest answer: a page of whole chunks.
const LARGEST_ANSWER: usize = 256 << 20;
/// What etcd says of a revision that it does not have any more.
const COMPACTED: &str = "has been compacted";

pub(super) struct Members {
    channels: Vec<Channel>,
    current: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    pub(super) volume: Volume,
}

impl Members {
    pub(super) fn new(config: Config, volume: Volume) -> Result<Self, EngineError> {
        let tls = config.tls()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let channel = |member: &String| {
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))?
                .connect_timeout(CONNECT)
                .http2_keep_alive_interval(ALIVE)
                .keep_alive_timeout(REQUEST)
                .keep_alive_while_idle(true);
            if let Some(tls) = tls.clone() {
                endpoint = endpoint.tls_config(tls)?;
            }
            Ok(endpoint.connect_lazy())
        };
        // Its tasks run there.
        let channels = enter(|| config.address.hosts.iter().map(channel).collect::<Result<Vec<_>, _>>())?;
        let channels = channels.map_err(|error: tonic::transport::Error| refused(with_causes(&error)))?;
        let (user, token) = (config.address.user, Mutex::default());
        Ok(Self { channels, current: AtomicUsize::new(0), user, token, volume })
    }

    /// Ranges at a revision, 0 for the present, and what that is.
    pub(super) async fn read(
        &self,
        revision: i64,
        ranges: &[RangeRequest],
    ) -> Result<(i64, Vec<RangeResponse>), EngineError> {
        let range = |range: &RangeRequest| RequestKind::Range(RangeRequest { revision, ..range.clone() });
        let success = ranges.iter().map(|of| range(of).into()).collect();
        let request = TxnRequest { compare: Vec::new(), success };
        let answer =
            self.transact(&request, ROUNDS * self.channels.len(), true).await.map_err(
                |error| match error {
                    EngineError::Indeterminate { reason, .. } => self.volume.unavailable(reason),
                    error => error,
                },
            )?;
        let now = answer.header.map_or(0, |header| header.revision);
        let found = answer.responses.into_iter().filter_map(|op| op.range).collect();
        Ok((if revision > 0 { revision } else { now }, found))
    }

    /// Whether the comparisons held and all of it happened. Sent again only if it did not happen.
    pub(super) async fn commit(&self, request: &TxnRequest) -> Result<bool, EngineError> {
        Ok(self.transact(request, self.channels.len() + 1, false).await?.succeeded)
    }

    /// Sends a transaction up to `tries` times, to one member after another; what may have happened
    /// is sent again only if it is `repeatable`.
    async fn transact(
        &self,
        request: &TxnRequest,
        tries: usize,
        repeatable: bool,
    ) -> Result<TxnResponse, EngineError> {
        let mut tried = 0;
        loop {
            let at = self.current.load(Ordering::Relaxed);
            let call = async {
                let request = self.signed(at, request.clone()).await?;
                self.unary(at, "/etcdserverpb.KV/Txn", request).await
            };
            let error = match self.ended(at, call).await {
                Err(error) => error,
                answer => return answer,
            };
            tried += 1;
            let again = match &error {
                // Whoever reads begins anew, at a newer revision.
                EngineError::Unavailable { reason, .. } => !reason.contains(COMPACTED),
                EngineError::Indeterminate { .. } => repeatable,
                _ => false,
            };
            if !again || tried >= tries {
                return Err(error);
            }
            tracing::debug!(tried, %error, "a request is sent again");
            sleep(PAUSES[usize::from(tried % self.channels.len() != 0)]).await;
        }
    }

    /// Opens a watch at the member in use, whose place is answered too.
    pub(super) async fn watch(
        &self,
        create: WatchCreate,
    ) -> Result<(usize, Streaming<WatchResponse>), EngineError> {
        let at = self.current.load(Ordering::Relaxed);
        // The stream of requests stays open as long as that of the answers.
        let create = std::future::ready(WatchRequest { create: Some(create) });
        let requests = futures::stream::once(create).chain(futures::stream::pending());
        let call = async {
            let mut request = self.signed(at, requests).await?;
            // A member that is cut off from the others ends the stream instead of keeping silent.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            let answers = self.ready(at).await?.streaming(request, path, ProstCodec::default()).await?;
            Ok((at, answers.into_inner()))
        };
        self.ended(at, call).await
    }

    /// Another member than that is used from now on.
    pub(super) fn leave(&self, at: usize) {
        let next = (at + 1) % self.channels.len();
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// How a call to a member ended. If that may be to blame for an error, the next call goes to
    /// another one.
    async fn ended<A>(
        &self,
        at: usize,
        call: impl Future<Output = Result<A, Status>>,
    ) -> Result<A, EngineError> {
        let error = match timeout(REQUEST, call).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) if self.user.is_some() && is_stale(&status) => {
                *self.token.lock() = None;
                return Err(self.volume.unavailable(with_causes(&status)));
            }
            Ok(Err(status)) => self.error(&status),
            Err(_) => self.volume.indeterminate(format!("no answer within {} s", REQUEST.as_secs())),
        };
        if !matches!(error, EngineError::Refused { .. }) {
            self.leave(at);
        }
        Err(error)
    }

    async fn unary<Q, A>(&self, at: usize, method: &'static str, request: Request<Q>) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(method);
        Ok(self.ready(at).await?.unary(request, path, ProstCodec::default()).await?.into_inner())
    }

    async fn ready(&self, at: usize) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channels[at].clone()).max_decoding_message_size(LARGEST_ANSWER);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc)
    }

    /// The request with what shows who we are.
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

    /// What an answer other than the wanted one means. The words are etcd's own.
    fn error(&self, status: &Status) -> EngineError {
        let said = status.message();
        let advice = [
            (
                "database space exceeded",
                "the database has reached --quota-backend-bytes: compact it, defragment it (etcdctl defrag) or raise \
                 the quota, then etcdctl alarm disarm",
            ),
            (
                "too many operations",
                "raise the server's --max-txn-ops, or name a smaller max-txn-ops in the URL",
            ),
            ("request is too large", "raise the server's --max-request-bytes"),
        ];
        if let Some((_, advice)) = advice.iter().find(|(words, _)| said.contains(words)) {
            return self.volume.refused(format!("{said}; {advice}"));
        }
        let not_sent = causes(status).any(<dyn Error>::is::<ConnectError>);
        if not_sent || said.contains("too many requests") || said.contains(COMPACTED) {
            return self.volume.unavailable(with_causes(status));
        }
        match status.code() {
            Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::Unimplemented => self.volume.refused(said),
            _ => self.volume.indeterminate(with_causes(status)),
        }
    }
}

/// Whether the token is not good any more.
fn is_stale(status: &Status) -> bool {
    status.message().contains("invalid auth token") || status.message().contains("revision of auth store")
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}

/// An error with its causes, each once.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text.chars().take(300).collect()
}
