//! An object store of the S3 protocol that keeps its objects in memory, takes a set time for each
//! request, and counts what it gives.
//!
//! It has one user and does not check signatures. It supports what clients of a volume need: put,
//! get (also of a range), head, delete, and a list of all objects with a prefix.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Body as _, Bytes, Incoming},
    header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED, RANGE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use s3s::Body;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
};

/// The bucket that is there.
pub const BUCKET: &str = "farm";
/// Keys of its user.
pub const ACCESS_KEY: &str = "farm";
/// The secret one.
pub const SECRET_KEY: &str = "secret-of-the-farm";

type Answer = Result<Response<Body>, hyper::http::Error>;

/// The store; it ends when it is dropped, with all objects.
#[derive(Debug)]
pub struct Objects {
    shared: Arc<Shared>,
    address: SocketAddr,
    // Its drop ends the server.
    _runtime: Runtime,
}

#[derive(Debug, Default)]
struct Shared {
    objects: Mutex<BTreeMap<String, Bytes>>,
    gets: AtomicU64,
    get_bytes: AtomicU64,
    /// Milliseconds that each request takes.
    delay: AtomicU64,
}

impl Objects {
    /// Starts it on a free port of the loopback, with a thread of its own and no delay.
    ///
    /// # Errors
    /// When there is no thread or no port for it.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let shared = Arc::new(Shared::default());
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { shared, address, _runtime: runtime })
    }

    /// Where clients find it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The time that each request takes from now on, in whole milliseconds.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.delay.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// Requests so far that it answered with bytes of an object.
    pub fn gets(&self) -> u64 {
        self.shared.gets.load(Ordering::Relaxed)
    }

    /// Those bytes.
    pub fn get_bytes(&self) -> u64 {
        self.shared.get_bytes.load(Ordering::Relaxed)
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
                tokio::time::sleep(Duration::from_millis(delay)).await;
            }
            shared.answer(request).await
        }
    });
    // A client that goes away is no fault.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().trim_start_matches('/');
        let Some(name) = path.strip_prefix(BUCKET).map(|rest| rest.trim_start_matches('/').to_owned()) else {
            return failed(StatusCode::NOT_FOUND, "NoSuchBucket");
        };
        if name.is_empty() {
            // Whether the bucket is there, or what is in it.
            let query = request.uri().query().unwrap_or_default();
            let list = *request.method() == Method::GET;
            let body = if list { Bytes::from(self.list(query)) } else { Bytes::new() };
            return Response::builder().body(Body::from(body));
        }
        let object = || self.objects.lock().get(&name).cloned();
        match *request.method() {
            Method::PUT => match body(request).await {
                Ok(bytes) => {
                    self.objects.lock().insert(name, bytes);
                    Response::builder().header(ETAG, "\"0\"").body(Body::empty())
                }
                Err(_) => failed(StatusCode::BAD_REQUEST, "IncompleteBody"),
            },
            Method::GET => match object() {
                Some(object) => self.get(&object, request.headers()),
                None => failed(StatusCode::NOT_FOUND, "NoSuchKey"),
            },
            Method::HEAD => match object() {
                Some(object) => {
                    let response = Response::builder().header(ETAG, "\"0\"");
                    let response = response.header(LAST_MODIFIED, "Thu, 01 Jan 2026 00:00:00 GMT");
                    response.header(CONTENT_LENGTH, object.len()).body(Body::empty())
                }
                None => failed(StatusCode::NOT_FOUND, "NoSuchKey"),
            },
            Method::DELETE => {
                self.objects.lock().remove(&name);
                Response::builder().status(StatusCode::NO_CONTENT).body(Body::empty())
            }
            _ => failed(StatusCode::NOT_IMPLEMENTED, "NotImplemented"),
        }
    }

    fn get(&self, object: &Bytes, headers: &HeaderMap) -> Answer {
        let range = headers.get(RANGE).and_then(|range| parse(range.to_str().ok()?, object.len()));
        let (from, end) = range.unwrap_or((0, object.len()));
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.get_bytes.fetch_add((end - from) as u64, Ordering::Relaxed);
        let mut response = Response::builder().header(ETAG, "\"0\"");
        if range.is_some() {
            let part = format!("bytes {from}-{}/{}", end.saturating_sub(1), object.len());
            response = response.status(StatusCode::PARTIAL_CONTENT).header(CONTENT_RANGE, part);
        }
        response.body(Body::from(object.slice(from..end)))
    }

    /// All objects after `start-after` or `marker` whose names begin with `prefix`, however many.
    fn list(&self, query: &str) -> String {
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|pair| pair.0 == name).map(|pair| decoded(pair.1)).unwrap_or_default()
        };
        let (prefix, after) = (value("prefix"), value("start-after").max(value("marker")));
        let mut list = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
        for (name, object) in self.objects.lock().iter() {
            if name.starts_with(&prefix) && *name > after {
                let size = object.len();
                let time = "2026-01-01T00:00:00.000Z";
                let _ = write!(
                    list,
                    "<Contents><Key>{name}</Key><LastModified>{time}</LastModified><ETag>\"0\"</ETag><Size>{size}</Size>\
                     </Contents>"
                );
            }
        }
        list + "</ListBucketResult>"
    }
}

/// A part of a query, without its `%XX`.
fn decoded(value: &str) -> String {
    let mut parts = value.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => bytes.extend_from_slice(part.as_bytes()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn body(request: Request<Incoming>) -> hyper::Result<Bytes> {
    let length = request.body().size_hint().exact().unwrap_or(0);
    let (mut body, mut bytes) = (pin!(request.into_body()), Vec::with_capacity(length as usize));
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.into())
}

fn failed(status: StatusCode, code: &str) -> Answer {
    let text = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>");
    Response::builder().status(status).body(Body::from(Bytes::from(text)))
}

/// From where to where `range` asks in an object of that size.
fn parse(range: &str, size: usize) -> Option<(usize, usize)> {
    let (from, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let from: usize = from.parse().ok()?;
    let end = if last.is_empty() { size } else { (last.parse::<usize>().ok()? + 1).min(size) };
    (from < end).then_some((from, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_with_the_object() {
        assert_eq!(parse("bytes=0-9", 5), Some((0, 5)));
        assert_eq!(parse("bytes=2-", 5), Some((2, 5)));
        assert_eq!(parse("bytes=5-9", 5), None);
    }

    #[test]
    fn a_list_has_the_objects_with_the_prefix() {
        let shared = Shared::default();
        for name in ["a/1", "a/2", "b"] {
            shared.objects.lock().insert(name.into(), Bytes::new());
        }
        let keys = |query| shared.list(query).matches("<Key>a/").count();
        assert_eq!(keys("list-type=2&prefix=a%2F"), 2);
        assert_eq!(keys("prefix=a%2F&marker=a%2F1"), 1);
        assert_eq!(keys("prefix=b"), 0);
    }
}
