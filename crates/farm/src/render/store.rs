//! An object store of the S3 protocol that takes a set time for each request, and counts what it
//! gives.
//!
//! It has one user and does not check signatures. It supports what clients of a volume need: put,
//! get (also of a range), head and delete.

use std::{
    io::{ErrorKind, SeekFrom},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::Args;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body as _, Bytes, Incoming},
    header::{CONTENT_RANGE, ETAG, RANGE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use s3s::Body;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncSeekExt as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use super::process::{obey, say};

/// The bucket that is there.
pub(crate) const BUCKET: &str = "farm";
/// Keys of its user.
pub(crate) const ACCESS_KEY: &str = "farm";
pub(crate) const SECRET_KEY: &str = "secret-of-the-farm";

/// Serves objects from files.
#[derive(Args)]
pub(crate) struct Store {
    /// Directory of the objects
    dir: PathBuf,
}

/// What it did so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) gets: u64,
    pub(crate) get_bytes: u64,
}

struct Shared {
    dir: PathBuf,
    gets: AtomicU64,
    get_bytes: AtomicU64,
    /// Milliseconds that each request takes.
    delay: AtomicU64,
}

impl Store {
    /// Says the port. `delay N` sets the time of a request in milliseconds, `counts` asks for
    /// [`Counts`].
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let shared = Arc::new(Shared {
            dir: self.dir,
            gets: AtomicU64::new(0),
            get_bytes: AtomicU64::new(0),
            delay: AtomicU64::new(0),
        });
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        say(&listener.local_addr()?.port())?;
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        obey(|order| {
            if let Some(delay) = order.strip_prefix("delay ") {
                shared.delay.store(delay.parse().context("milliseconds")?, Ordering::Relaxed);
            }
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            say(&Counts { gets: get(&shared.gets), get_bytes: get(&shared.get_bytes) })
        })
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            serve(stream, shared).await;
        });
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move {
            let delay = shared.delay.load(Ordering::Relaxed);
            if delay > 0 {
                tokio::time::sleep_until(Instant::now() + Duration::from_millis(delay)).await;
            }
            shared.answer(request).await
        }
    });
    // A client that goes away is no fault.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, hyper::http::Error> {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let name = path.strip_prefix(BUCKET).map(|rest| rest.trim_start_matches('/'));
        let Some(name) = name.filter(|name| !name.split('/').any(|part| part == "..")) else {
            return failed(StatusCode::NOT_FOUND, "NoSuchBucket");
        };
        if name.is_empty() {
            return whole_bucket(request.method());
        }
        let file = self.dir.join(name.replace('/', "%"));
        let done = match *request.method() {
            Method::PUT => put(&file, request).await,
            Method::GET => self.get(&file, &request).await,
            Method::HEAD => head(&file).await,
            Method::DELETE => {
                let _ = tokio::fs::remove_file(&file).await;
                return Response::builder().status(StatusCode::NO_CONTENT).body(Body::empty());
            }
            _ => return failed(StatusCode::NOT_IMPLEMENTED, "NotImplemented"),
        };
        match done {
            Ok(response) => Ok(response),
            Err(error) if error.downcast_ref().map(std::io::Error::kind) == Some(ErrorKind::NotFound) => {
                failed(StatusCode::NOT_FOUND, "NoSuchKey")
            }
            Err(_) => failed(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        }
    }

    async fn get(&self, file: &Path, request: &Request<Incoming>) -> Result<Response<Body>> {
        let mut file = tokio::fs::File::open(file).await?;
        let size = file.metadata().await?.len();
        let range = request.headers().get(RANGE).and_then(|range| parse(range.to_str().ok()?, size));
        let (from, end) = range.unwrap_or((0, size));
        let mut bytes = vec![0; (end - from) as usize];
        // One request of the thread that reads, whatever the size.
        file.set_max_buf_size(bytes.len().max(1));
        file.seek(SeekFrom::Start(from)).await?;
        file.read_exact(&mut bytes).await?;
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.get_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mut response = Response::builder().header(ETAG, "\"0\"");
        if range.is_some() {
            response = response
                .status(StatusCode::PARTIAL_CONTENT)
                .header(CONTENT_RANGE, format!("bytes {from}-{}/{size}", end.saturating_sub(1)));
        }
        Ok(response.body(Body::from(Bytes::from(bytes)))?)
    }
}

/// What clients ask of a bucket: whether it is there, and what is in it; they need no list here.
fn whole_bucket(method: &Method) -> Result<Response<Body>, hyper::http::Error> {
    let list = "<?xml version=\"1.0\"?><ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated>\
                </ListBucketResult>";
    let body =
        if *method == Method::GET { Body::from(Bytes::from_static(list.as_bytes())) } else { Body::empty() };
    Response::builder().body(body)
}

async fn put(file: &Path, request: Request<Incoming>) -> Result<Response<Body>> {
    let (mut body, mut bytes) = (pin!(request.into_body()), Vec::new());
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    tokio::fs::write(file, bytes).await?;
    Ok(Response::builder().header(ETAG, "\"0\"").body(Body::empty())?)
}

async fn head(file: &Path) -> Result<Response<Body>> {
    let size = tokio::fs::metadata(file).await?.len();
    let time = "Thu, 01 Jan 2026 00:00:00 GMT";
    let response = Response::builder().header(ETAG, "\"0\"").header("last-modified", time);
    Ok(response.header("content-length", size).body(Body::empty())?)
}

fn failed(status: StatusCode, code: &str) -> Result<Response<Body>, hyper::http::Error> {
    let text = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>");
    Response::builder().status(status).body(Body::from(Bytes::from(text)))
}

/// From where to where `range` asks in an object of that size.
fn parse(range: &str, size: u64) -> Option<(u64, u64)> {
    let (from, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let from: u64 = from.parse().ok()?;
    let end = if last.is_empty() { size } else { (last.parse::<u64>().ok()? + 1).min(size) };
    (from < end).then_some((from, end))
}
