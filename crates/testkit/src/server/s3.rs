//! An S3 server on loopback, and a proxy before it that breaks answers on demand.
//!
//! The server creates each bucket that a request names. So the proxy answers the requests to
//! buckets that must not exist.
//!
//! What must stay true: the proxy applies to each request the next matching fault, once, or the
//! fault that is set for all requests. Otherwise it forwards the bytes unchanged.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Keys that the server knows.
pub const ACCESS_KEY: &str = "AKIATESTTESTTEST";
/// The secret one.
pub const SECRET_KEY: &str = "secret-of-the-test-server";
/// The bucket that exists.
pub const BUCKET: &str = "volumes";

/// What to do to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answer with this status; the server hears nothing.
    Status(u16),
    /// Close the connection before the server hears anything.
    Refuse,
    /// Let the server do it, and reset the connection instead of answering.
    LoseAnswer,
    /// Announce the whole body, and end the connection in the middle of it.
    Truncate,
    /// Send half the body as if that were all of it.
    Shorten,
    /// Never answer.
    Stall,
}

/// Server and proxy; both end with their runtime.
pub struct S3 {
    directory: TempDir,
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    faults: Mutex<VecDeque<(&'static str, Fault)>>,
    always: Mutex<Option<Fault>>,
    requests: AtomicU64,
    broken: AtomicU64,
}

impl S3 {
    /// Starts both on the current runtime.
    pub async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(BUCKET)).unwrap();
        let server = serve(FileSystem::new(directory.path()).unwrap()).await;
        let shared = Arc::new(Shared::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&state);
                // A client that goes away is part of the tests.
                tokio::spawn(async move { drop(proxy(client, server, &state).await) });
            }
        });
        Self { directory, address, shared }
    }

    /// Where a client finds `bucket`.
    pub fn url(&self, bucket: &str) -> String {
        format!("http://{}/{bucket}", self.address)
    }

    /// Does `fault` to the next request with this method (any, if empty), after the faults asked
    /// for before.
    pub fn inject(&self, method: &'static str, fault: Fault) {
        self.shared.faults.lock().push_back((method, fault));
    }

    /// Faults that no request has met yet.
    pub fn pending(&self) -> usize {
        self.shared.faults.lock().len()
    }

    /// Does `fault` to every request until [`Self::heal`].
    pub fn break_all(&self, fault: Fault) {
        *self.shared.always.lock() = Some(fault);
    }

    /// Forgets the faults that are left.
    pub fn heal(&self) {
        *self.shared.always.lock() = None;
        self.shared.faults.lock().clear();
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Requests so far that met a fault.
    pub fn broken(&self) -> u64 {
        self.shared.broken.load(Ordering::SeqCst)
    }

    /// Changes a bit of what is stored under `key`, as a disk does that fails unnoticed.
    pub fn damage(&self, key: &str) {
        let path = self.directory.path().join(BUCKET).join(key);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[0] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }

    /// What the server stores under `key`.
    pub fn stored(&self, key: &str) -> Option<Vec<u8>> {
        std::fs::read(self.directory.path().join(BUCKET).join(key)).ok()
    }
}

async fn serve(files: FileSystem) -> SocketAddr {
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
    let service = builder.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service.clone());
            tokio::spawn(async move { drop(connection.await) });
        }
    });
    address
}

/// Serves one request; the connection ends with it.
async fn proxy(mut client: TcpStream, server: SocketAddr, shared: &Shared) -> std::io::Result<()> {
    let Some(request) = read_request(&mut client).await? else { return Ok(()) };
    shared.requests.fetch_add(1, Ordering::SeqCst);
    let target = String::from_utf8_lossy(&request).split(' ').nth(1).unwrap_or_default().to_owned();
    if !target.starts_with(&format!("/{BUCKET}")) {
        let body = "<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>gone</Message></Error>";
        return answer(client, "404 Not Found", body).await;
    }
    let method = String::from_utf8_lossy(&request[..8]).into_owned();
    let fault = {
        let mut faults = shared.faults.lock();
        let at = faults.iter().position(|(wanted, _)| method.starts_with(wanted));
        at.and_then(|at| faults.remove(at)).map(|(_, fault)| fault).or(*shared.always.lock())
    };
    if fault.is_some() {
        shared.broken.fetch_add(1, Ordering::SeqCst);
    }
    match fault {
        Some(Fault::Status(status)) => {
            let answer =
                format!("HTTP/1.1 {status} Injected\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy");
            client.write_all(answer.as_bytes()).await?;
            return client.shutdown().await;
        }
        Some(Fault::Refuse) => return reset(&client),
        Some(Fault::Stall) => std::future::pending().await,
        _ => {}
    }
    let whole = forward(&request, server).await?;
    let (head, body) = whole.split_at(head_length(&whole).unwrap_or(whole.len()));
    match fault {
        Some(Fault::LoseAnswer) => return reset(&client),
        Some(Fault::Truncate) => {
            client.write_all(head).await?;
            client.write_all(&body[..body.len() / 2]).await?;
        }
        Some(Fault::Shorten) => {
            let half = &body[..body.len() / 2];
            let mut lines: Vec<String> = String::from_utf8_lossy(head).lines().map(str::to_owned).collect();
            lines.retain(|line| !line.is_empty() && !line.to_lowercase().starts_with("content-length:"));
            let head = format!("{}\r\ncontent-length: {}\r\n\r\n", lines.join("\r\n"), half.len());
            client.write_all(head.as_bytes()).await?;
            client.write_all(half).await?;
        }
        _ => client.write_all(&whole).await?,
    }
    client.shutdown().await
}

async fn answer(mut client: TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    client.write_all(text.as_bytes()).await?;
    client.shutdown().await
}

/// Ends a connection so that the other side gets an error.
fn reset(client: &TcpStream) -> std::io::Result<()> {
    client.set_zero_linger()
}

fn head_length(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

async fn read_request(client: &mut TcpStream) -> std::io::Result<Option<Vec<u8>>> {
    let mut request = Vec::new();
    let wanted = loop {
        if let Some(head) = head_length(&request) {
            let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
            let body = text.lines().find_map(|line| line.strip_prefix("content-length:"));
            break head + body.map_or(0, |length| length.trim().parse::<usize>().unwrap());
        }
        if client.read_buf(&mut request).await? == 0 {
            return Ok(None);
        }
    };
    while request.len() < wanted {
        if client.read_buf(&mut request).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(request))
}

/// The server's whole answer; the connection to it is used once.
async fn forward(request: &[u8], server: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut upstream = TcpStream::connect(server).await?;
    let line = request.iter().position(|byte| *byte == b'\n').unwrap_or(0) + 1;
    upstream.write_all(&request[..line]).await?;
    upstream.write_all(b"connection: close\r\n").await?;
    upstream.write_all(&request[line..]).await?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer).await?;
    Ok(answer)
}
