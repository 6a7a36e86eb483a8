//! One connection to a member: requests go out as they come, several in one write, and answers come
//! back in any order.
//!
//! What must stay true: every request gets an answer or an error, at the latest when the connection
//! ends. Bytes with a wrong checksum are never returned.

use std::{
    io,
    ops::Range,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_data::{Buffer, pages};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf},
    net::TcpStream,
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    auth::{HANDSHAKE, KeyRing, prove},
    frame::{Head, Kind, Request, Status},
    tls::{self, Fingerprint},
};

/// Requests that wait to be sent.
const QUEUE: usize = 1024;
/// Bytes read from a connection at once.
const READ: usize = 128 << 10;
/// Bytes of requests that are sent at once.
const WRITE: usize = 16 << 10;
/// Longest time that a server may take to accept what is sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The last answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// Version of the server's list of members.
    pub(crate) version: u64,
    pub(crate) payload: Bytes,
    /// A checksum did not fit: the member's file is damaged, or the member is.
    pub(crate) damaged: bool,
    /// The member said that it would take longer.
    pub(crate) waited: bool,
}

/// The answers that a request waits for.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Completes when the first answer begins to arrive, or has arrived: with [`Status::Wait`] if
    /// it is an interim one.
    pub(crate) first: oneshot::Receiver<Status>,
    pub(crate) last: oneshot::Receiver<io::Result<Answer>>,
}

struct Waiter {
    range: Range<u32>,
    /// Whether the payload has checksums.
    summed: bool,
    waited: bool,
    first: Option<oneshot::Sender<Status>>,
    last: oneshot::Sender<io::Result<Answer>>,
}

/// `None` once the connection has ended.
type Waiters = Mutex<Option<FxHashMap<u32, Waiter>>>;

/// A connection that is proved.
#[derive(Debug)]
pub(crate) struct Link {
    queue: mpsc::Sender<(Request, Option<Bytes>)>,
    shared: Arc<Shared>,
    reading: AbortHandle,
    writing: AbortHandle,
}

impl Drop for Link {
    /// A frozen server would keep the reading task for ever, and a slow one the other for as long
    /// as it takes what is queued.
    fn drop(&mut self) {
        self.reading.abort();
        self.writing.abort();
    }
}

#[derive(Default)]
struct Shared {
    waiters: Waiters,
    next: AtomicU32,
    /// Bytes that arrived.
    arrived: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} waiting", self.waiters.lock().as_ref().map_or(0, FxHashMap::len))
    }
}

impl Link {
    /// Connects to a member, with TLS if it has a certificate, and proves that we know a key.
    ///
    /// # Errors
    /// Those of the connection; [`io::ErrorKind::PermissionDenied`] if no key fits.
    pub(crate) async fn connect(
        address: &str,
        fingerprint: Option<Fingerprint>,
        ring: &KeyRing,
    ) -> io::Result<Self> {
        let mut denied = io::Error::new(io::ErrorKind::PermissionDenied, "the cache group has no key");
        for position in 0..ring.count() {
            match Self::try_connect(address, fingerprint, ring, position).await {
                // The server may know the key before the newest alone.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = error,
                connected => return connected,
            }
        }
        Err(denied)
    }

    async fn try_connect(
        address: &str,
        fingerprint: Option<Fingerprint>,
        ring: &KeyRing,
        position: usize,
    ) -> io::Result<Self> {
        let connected = timeout(HANDSHAKE, TcpStream::connect(address)).await;
        let mut stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        stream.set_nodelay(true)?;
        let Some(fingerprint) = fingerprint else {
            prove(&mut stream, ring, position, b"").await?;
            let (reader, writer) = stream.into_split();
            return Ok(Self::start(reader, writer));
        };
        let (config, name) = tls::client(fingerprint)?;
        let encrypted = timeout(HANDSHAKE, TlsConnector::from(config).connect(name, stream)).await;
        let mut stream = encrypted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        let binding = tls::binding(stream.get_ref().1)?;
        prove(&mut stream, ring, position, &binding).await?;
        let (reader, writer) = tokio::io::split(stream);
        Ok(Self::start(reader, writer))
    }

    fn start(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let (queue, requests) = mpsc::channel(QUEUE);
        let shared =
            Arc::new(Shared { waiters: Mutex::new(Some(FxHashMap::default())), ..Shared::default() });
        let writing = tokio::spawn(write(writer, requests));
        let end_writing = writing.abort_handle();
        let answers = Arc::clone(&shared);
        let reading = tokio::spawn(async move {
            let counted = Counted { reader, shared: Arc::clone(&answers) };
            let error = read(BufReader::with_capacity(READ, counted), &answers).await;
            end_writing.abort();
            let lost = answers.waiters.lock().take();
            for (_, waiter) in lost.into_iter().flatten() {
                let _ = waiter.last.send(Err(io::Error::new(error.kind(), error.to_string())));
            }
        });
        Self { queue, shared, reading: reading.abort_handle(), writing: writing.abort_handle() }
    }

    /// Whether the connection has ended.
    pub(crate) fn is_lost(&self) -> bool {
        self.shared.waiters.lock().is_none()
    }

    /// Bytes that arrived so far.
    pub(crate) fn arrived(&self) -> u64 {
        self.shared.arrived.load(Ordering::Relaxed)
    }

    /// Sends a request. Waits while too many others wait to be sent.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`] if the connection has ended.
    pub(crate) async fn send(&self, mut request: Request, payload: Option<Bytes>) -> io::Result<Waiting> {
        request.id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let (first, first_receiver) = oneshot::channel();
        let (last, last_receiver) = oneshot::channel();
        let waiter = Waiter {
            range: request.range.clone(),
            summed: matches!(request.kind, Kind::Get | Kind::GetCached),
            waited: false,
            first: Some(first),
            last,
        };
        let lost = || io::Error::from(io::ErrorKind::NotConnected);
        self.shared.waiters.lock().as_mut().ok_or_else(lost)?.insert(request.id, waiter);
        let id = request.id;
        if self.queue.send((request, payload)).await.is_err() {
            if let Some(waiters) = self.shared.waiters.lock().as_mut() {
                waiters.remove(&id);
            }
            return Err(lost());
        }
        Ok(Waiting { first: first_receiver, last: last_receiver })
    }
}

/// Counts what arrives.
struct Counted<R> {
    reader: R,
    shared: Arc<Shared>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.reader).poll_read(cx, into);
        self.shared.arrived.fetch_add((into.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

/// Sends what is queued until the queue or the connection ends.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut requests: mpsc::Receiver<(Request, Option<Bytes>)>,
) -> io::Result<()> {
    let mut out = Vec::with_capacity(WRITE);
    while let Some((request, payload)) = requests.recv().await {
        request.encode(&mut out);
        let mut payload = payload;
        while payload.is_none() && out.len() < WRITE {
            let Ok((request, more)) = requests.try_recv() else { break };
            request.encode(&mut out);
            payload = more;
        }
        let sent = timeout(WRITE_TIMEOUT, async {
            writer.write_all(&out).await?;
            if let Some(payload) = &payload {
                writer.write_all(payload).await?;
            }
            writer.flush().await
        });
        sent.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        out.clear();
    }
    writer.shutdown().await
}

/// Hands answers on until the connection ends. Returns why it did.
async fn read(mut reader: BufReader<impl AsyncRead + Unpin>, shared: &Shared) -> io::Error {
    loop {
        if let Err(error) = read_one(&mut reader, shared).await {
            return error;
        }
    }
}

async fn read_one(reader: &mut BufReader<impl AsyncRead + Unpin>, shared: &Shared) -> io::Result<()> {
    let garbage = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut bytes = [0; Head::BYTES];
    reader.read_exact(&mut bytes).await?;
    let head = Head::decode(&bytes).ok_or_else(|| garbage("an answer is none of the protocol"))?;
    let (range, summed, waited) = {
        let mut waiters = shared.waiters.lock();
        let waiter = waiters.as_mut().and_then(|waiters| waiters.get_mut(&head.id));
        let waiter = waiter.ok_or_else(|| garbage("an answer to no request"))?;
        waiter.waited |= head.status == Status::Wait;
        // If all of the answer is here, its end wakes who waits, and nobody is woken twice.
        let is_here = reader.buffer().len() >= usize::from(head.sums) * 4 + head.length as usize;
        if (head.status == Status::Wait || !is_here)
            && let Some(first) = waiter.first.take()
        {
            let _ = first.send(head.status);
        }
        (waiter.range.clone(), waiter.summed && head.status == Status::Done, waiter.waited)
    };
    if head.status == Status::Wait {
        return if head.length == 0 { Ok(()) } else { Err(garbage("an interim answer with a payload")) };
    }
    let parts = pages(&range).count();
    if summed && (head.length != range.end - range.start || usize::from(head.sums) != parts) {
        return Err(garbage("an answer of another length than was asked for"));
    }
    let mut sums = vec![0; usize::from(head.sums) * 4];
    reader.read_exact(&mut sums).await?;
    let payload = read_payload(reader, head.length as usize).await?;
    let is_wrong = |(page, sum): (Range<u32>, &[u8])| {
        let part = &payload[(page.start - range.start) as usize..(page.end - range.start) as usize];
        crc32c::crc32c(part).to_le_bytes() != sum
    };
    let damaged = summed && pages(&range).zip(sums.chunks_exact(4)).any(is_wrong);
    let (status, payload) = if damaged { (Status::Failed, Bytes::new()) } else { (head.status, payload) };
    let waiter = shared.waiters.lock().as_mut().and_then(|waiters| waiters.remove(&head.id));
    if let Some(waiter) = waiter {
        let Waiter { first, last, .. } = waiter;
        // Nobody may wait for it any more.
        let _ = last.send(Ok(Answer { status, version: head.version, payload, damaged, waited }));
        // Who waits for the beginning finds the end.
        drop(first);
    }
    Ok(())
}

async fn read_payload(reader: &mut (impl AsyncRead + Unpin), length: usize) -> io::Result<Bytes> {
    if length >= Buffer::LARGE {
        // New memory for a whole block takes as long as the block does.
        let mut payload = Buffer::with_length(length);
        reader.read_exact(&mut payload[..]).await?;
        return Ok(payload.into());
    }
    let mut payload = BytesMut::with_capacity(length);
    while payload.len() < length {
        let missing = (length - payload.len()) as u64;
        if (&mut *reader).take(missing).read_buf(&mut payload).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(payload.freeze())
}
