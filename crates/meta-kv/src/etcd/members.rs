//! The way to the servers: one connection to each member, one of them in use, a deadline for every
//! call.
//!
//! What must stay true: only what certainly did not happen counts as [`Trouble::Nothing`] or
//! [`Trouble::Refused`].

use std::{
    error::Error as _,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use prost::Message;
use sluice_meta::engine::EngineError;
use tokio::time::{error::Elapsed, timeout};
use tonic::{
    Code, ConnectError, Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::{
    config::{Config, refused},
    wire::{AuthRequest, AuthResponse},
};
use crate::kv::enter;

/// Longest wait for one answer: a server waits as long for the others.
const REQUEST: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(2);
/// A connection that says nothing is asked whether it lives; servers close those that ask more
/// often than every 5 s.
const ALIVE: Duration = Duration::from_secs(10);
/// Largest answer: a page of whole chunks.
const LARGEST_ANSWER: usize = 256 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It did not happen; another member, or a later try, may do it.
    Nothing(String),
    /// It did not happen and never will.
    Refused(String),
    /// What is to be read was given up by the server.
    Compacted,
    /// Nobody knows.
    Unknown(String),
}

pub(super) struct Members {
    channels: Vec<Channel>,
    current: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
}

impl Members {
    pub(super) fn new(config: &Config) -> Result<Self, EngineError> {
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
        let channels = channels.map_err(|error: tonic::transport::Error| refused(whole(&error)))?;
        Ok(Self {
            channels,
            current: AtomicUsize::new(0),
            user: config.address.user.clone(),
            token: Mutex::default(),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.channels.len()
    }

    /// One call, to the member in use. If that has trouble the next call asks another one.
    pub(super) async fn call<Q, A>(&self, method: &'static str, ask: Q) -> Result<A, Trouble>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let at = self.current.load(Ordering::Relaxed);
        let asked = async { unary(self.channels[at].clone(), method, self.signed(at, ask).await?).await };
        self.judged(at, timeout(REQUEST, asked).await)
    }

    /// Opens a stream of answers at the member in use, whose place is answered too.
    pub(super) async fn stream<Q, A>(
        &self,
        method: &'static str,
        ask: impl futures::Stream<Item = Q> + Send + 'static,
    ) -> Result<(usize, tonic::Streaming<A>), Trouble>
    where
        Q: Message + Send + 'static,
        A: Message + Default + Send + 'static,
    {
        let at = self.current.load(Ordering::Relaxed);
        let opened = async {
            let mut request = self.signed(at, ask).await?;
            // A member that is cut off from the others ends the stream instead of keeping silent.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            let mut grpc = ready(self.channels[at].clone()).await?;
            let path = PathAndQuery::from_static(method);
            Ok((at, grpc.streaming(request, path, ProstCodec::<Q, A>::default()).await?.into_inner()))
        };
        self.judged(at, timeout(REQUEST, opened).await)
    }

    /// Another member than that is used from now on.
    pub(super) fn leave(&self, at: usize) {
        let next = (at + 1) % self.channels.len();
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn judged<A>(&self, at: usize, answer: Result<Result<A, Status>, Elapsed>) -> Result<A, Trouble> {
        let trouble = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) if self.user.is_some() && is_stale(&status) => {
                *self.token.lock() = None;
                return Err(Trouble::Nothing(whole(&status)));
            }
            Ok(Err(status)) => judge(&status),
            Err(_) => Trouble::Unknown(format!("no answer within {} s", REQUEST.as_secs())),
        };
        if let Trouble::Nothing(_) | Trouble::Unknown(_) = trouble {
            self.leave(at);
        }
        Err(trouble)
    }

    /// The request with what shows who we are.
    async fn signed<T>(&self, at: usize, ask: T) -> Result<Request<T>, Status> {
        let mut request = Request::new(ask);
        let Some((name, password)) = self.user.clone() else { return Ok(request) };
        let known = self.token.lock().clone();
        let token = if let Some(token) = known {
            token
        } else {
            let who = Request::new(AuthRequest { name, password });
            let channel = self.channels[at].clone();
            let answer: AuthResponse = unary(channel, "/etcdserverpb.Auth/Authenticate", who).await?;
            self.token.lock().insert(answer.token).clone()
        };
        let token = MetadataValue::try_from(token).map_err(|_| Status::internal("a token of odd bytes"))?;
        request.metadata_mut().insert("token", token);
        Ok(request)
    }
}

async fn ready(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(LARGEST_ANSWER);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(grpc)
}

async fn unary<Q, A>(channel: Channel, method: &'static str, request: Request<Q>) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let path = PathAndQuery::from_static(method);
    Ok(ready(channel).await?.unary(request, path, ProstCodec::default()).await?.into_inner())
}

/// Whether the token is not good any more.
fn is_stale(status: &Status) -> bool {
    status.message().contains("invalid auth token") || status.message().contains("revision of auth store")
}

/// What an answer other than the wanted one means. The words are etcd's own.
fn judge(status: &Status) -> Trouble {
    let said = status.message();
    let advice = if said.contains("database space exceeded") {
        "; the database has reached --quota-backend-bytes: compact it, defragment it (etcdctl defrag) or raise the quota, \
         then etcdctl alarm disarm"
    } else if said.contains("too many operations") {
        "; raise the server's --max-txn-ops, or name a smaller max-txn-ops in the URL"
    } else if said.contains("request is too large") {
        "; raise the server's --max-request-bytes"
    } else if said.contains("compacted") {
        return Trouble::Compacted;
    } else if said.contains("too many requests") || was_not_sent(status) {
        return Trouble::Nothing(whole(status));
    } else {
        match status.code() {
            Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::Unimplemented => "",
            _ => return Trouble::Unknown(whole(status)),
        }
    };
    Trouble::Refused(format!("{said}{advice}"))
}

/// Whether there was no connection.
fn was_not_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// An error with its causes, each once.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text.chars().take(300).collect()
}
