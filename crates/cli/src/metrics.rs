//! Shows the metrics of a mount to Prometheus, over HTTP.
//!
//! What must stay true: a failure here does not affect the mount. No client can block another one:
//! the number of connections is limited, and each has a deadline.

use std::{
    convert::Infallible,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use sluice_object::layers::{MethodStats, Stats};
use sluice_types::job;
use sluice_vfs::{Families, MoreMetrics, Vfs};
use tokio::{sync::Semaphore, time::timeout};

use crate::{consul, volume};

/// Where metrics are shown if nobody says where.
pub(crate) const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PORT: u16 = 9567;
/// Ports tried from there on, before any port will do.
const TRIES: u16 = 100;
/// Most connections at once.
const CONNECTIONS: usize = 16;
/// How long one may take to send a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may last; Prometheus then makes another.
const CONNECTION: Duration = Duration::from_mins(10);
/// The text format of Prometheus.
const FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Where metrics are shown.
#[derive(Clone)]
pub(crate) enum Address {
    /// At the usual port, or at another one if that is in use.
    Default,
    /// Here and nowhere else.
    This(String),
    Nowhere,
}

/// What shows the metrics of a mount.
#[derive(Clone)]
pub(crate) struct Exporter {
    pub(crate) address: Address,
    /// Labels that every metric gets.
    pub(crate) labels: Vec<(String, String)>,
    /// The Consul that is told, as `HOST:PORT`.
    pub(crate) consul: Option<String>,
    pub(crate) mountpoint: String,
    /// What was bound before, if anything.
    pub(crate) bound: Option<Arc<TcpListener>>,
}

impl Exporter {
    /// Shows the metrics of `vfs` as long as that lives, on a thread of its own. What goes wrong is
    /// logged.
    pub(crate) fn start(&self, vfs: &Arc<Vfs>) {
        let (this, vfs) = (self.clone(), Arc::downgrade(vfs));
        let show = move || {
            if let Err(error) = this.run(vfs) {
                tracing::error!("the mount works, but its metrics are not shown: {error:#}");
            }
        };
        if let Err(error) =
            thread::Builder::new().name("sluice-metrics".into()).spawn(job("sluice-metrics", show))
        {
            tracing::error!(%error, "no thread to show metrics");
        }
    }

    fn run(self, vfs: Weak<Vfs>) -> Result<()> {
        let listener = match &self.bound {
            Some(bound) => bound.try_clone()?,
            None => match self.listen()? {
                Some(listener) => listener,
                None => return Ok(()),
            },
        };
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        tracing::info!("metrics are shown at http://{address}/metrics");
        if let Some(vfs) = vfs.upgrade() {
            vfs.meta().change_info(|info| info.metrics_addr = address.to_string());
        }
        if let Some(consul) = self.consul {
            let notify = move || match tell(&consul, address, &self.mountpoint) {
                Ok(()) => tracing::info!("Consul at {consul} knows of the metrics"),
                Err(error) => tracing::error!("{error:#}"),
            };
            thread::Builder::new().name("sluice-consul".into()).spawn(job("sluice-consul", notify))?;
        }
        volume::runtime()?.block_on(accept(listener, vfs, self.labels.into()))
    }

    /// Where they are shown, if they are.
    fn listen(&self) -> Result<Option<TcpListener>> {
        match (&self.address, &self.consul) {
            // Consul is of use to others, so they must reach it.
            (Address::Default, Some(consul)) => {
                any_port(consul::connect(consul)?.local_addr()?.ip()).map(Some)
            }
            (address, _) => address.bind(),
        }
    }
}

impl Address {
    /// Binds it, if metrics are shown.
    pub(crate) fn bind(&self) -> Result<Option<TcpListener>> {
        match self {
            Self::Nowhere => Ok(None),
            Self::This(address) => TcpListener::bind(address)
                .map(Some)
                .with_context(|| format!("cannot listen on {address}; give another --metrics HOST:PORT")),
            Self::Default => any_port(HOST).map(Some),
        }
    }
}

fn tell(consul: &str, shown: SocketAddr, mountpoint: &str) -> Result<()> {
    consul::register(consul::connect(consul)?, shown, mountpoint)
}

/// Several that add metrics as one.
pub(crate) fn all(more: Vec<MoreMetrics>) -> MoreMetrics {
    Arc::new(move |families: &mut Families| more.iter().for_each(|more| more(families)))
}

/// One of the numbers of a method.
type Number = fn(&MethodStats) -> u64;

/// Metrics of the tries that reach the object store. A request may take several.
pub(crate) fn of_tries(stats: Arc<Stats>) -> MoreMetrics {
    Arc::new(move |families: &mut Families| {
        let titles: [(_, Number); 3] = [
            (("sluice_object_tries_total", "Tries of requests to the object store."), MethodStats::calls),
            (
                ("sluice_object_failures_total", "Tries that failed, missing objects included."),
                MethodStats::failures,
            ),
            (
                ("sluice_object_abandoned_total", "Tries that were given up, timed out included."),
                MethodStats::abandoned,
            ),
        ];
        for (title, number) in titles {
            let by_method =
                stats.methods().map(|(method, stats)| (method.to_uppercase(), number(stats) as f64));
            families.counters(title, "method", by_method);
        }
    })
}

/// The usual port, one of those after it, or any.
pub(crate) fn any_port(host: IpAddr) -> Result<TcpListener> {
    for port in (PORT..PORT + TRIES).chain([0]) {
        match TcpListener::bind((host, port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return bound.with_context(|| format!("cannot listen on {host}:{port}")),
        }
    }
    anyhow::bail!("no port of {host} is free")
}

/// Answers whoever connects until the volume is gone.
async fn accept(listener: TcpListener, vfs: Weak<Vfs>, labels: Arc<[(String, String)]>) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await?;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many open files, for instance.
                tracing::debug!(%error, "a connection for metrics was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (vfs, labels) = (vfs.clone(), Arc::clone(&labels));
        let answer = service_fn(move |request| answer(request, vfs.clone(), Arc::clone(&labels)));
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(TIMEOUT)
                .serve_connection(TokioIo::new(stream), answer);
            // Who asks may close the connection at any time.
            let _ = timeout(CONNECTION, served).await;
            drop(place);
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    vfs: Weak<Vfs>,
    labels: Arc<[(String, String)]>,
) -> Result<Response<String>, Infallible> {
    let get = matches!(*request.method(), Method::GET | Method::HEAD);
    let answer = match request.uri().path() {
        _ if !get => {
            let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            answer
        }
        "/metrics" => {
            // Reading what the system says of the process may block.
            let text = tokio::task::spawn_blocking(move || Some(vfs.upgrade()?.prometheus_text(&labels)));
            match text.await.ok().flatten() {
                Some(text) => {
                    let mut answer = Response::new(text);
                    answer.headers_mut().insert(CONTENT_TYPE, FORMAT);
                    answer
                }
                None => plain(StatusCode::SERVICE_UNAVAILABLE, "the mount is ending\n"),
            }
        }
        _ => plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n"),
    };
    Ok(answer)
}

fn plain(status: StatusCode, text: &str) -> Response<String> {
    let mut answer = Response::new(text.to_owned());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, PLAIN);
    answer
}
