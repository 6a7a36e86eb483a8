//! Serves one connection of another client: reads its requests and sends the answers.
//!
//! What must stay true: all requests that have arrived are answered together. A request that must
//! wait for the object store or a disk does not delay the requests after it.

use std::{io, ops::Range, os::unix::fs::FileExt as _, sync::Arc, time::Duration};

use bytes::{Buf as _, Bytes, BytesMut};
use sluice_data::{Cached, CachedFile, pages};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_rustls::server::TlsStream;

use crate::{
    frame::{Head, Kind, Request, Status, sums},
    serving::{Serving, UNIT},
};

/// Bytes read at once.
const READ: usize = 8 << 10;
/// Answers of more bytes than this are sent without being copied.
const COPIED: usize = 64 << 10;
/// Bytes of answers that are gathered before they are sent.
const GATHERED: usize = 256 << 10;
/// Requests of one connection that may wait for the object store or a disk.
const SLOW: usize = 256;
/// How long a connection may be idle.
const IDLE: Duration = Duration::from_mins(10);
/// How long a request waits for memory that other connections have.
const CROWDED: Duration = Duration::from_secs(2);
/// How long the rest of a request may take, and the sending of answers.
const STALLED: Duration = Duration::from_secs(30);

/// An answer that was waited for.
struct Late {
    head: Head,
    sums: Vec<u32>,
    bytes: Bytes,
    source: Source,
    _memory: Option<[OwnedSemaphorePermit; 2]>,
}

/// Where the bytes of an answer come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Cache,
    Store,
    Warmed,
}

/// A connection.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin {
    /// The socket, if what is written to it goes over the network as it is.
    fn socket(&self) -> Option<&TcpStream> {
        None
    }
}

impl Wire for TcpStream {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl Wire for TlsStream<TcpStream> {}

pub(crate) struct ServedConnection<'s, S> {
    stream: S,
    serving: &'s Arc<Serving>,
    arrived: BytesMut,
    out: Vec<u8>,
    /// Checksums of the answer that is being made.
    sums: Vec<u32>,
    late: (mpsc::Sender<Late>, mpsc::Receiver<Late>),
    /// What this connection may have of the memory: a client that takes no answers stops itself.
    share: Arc<Semaphore>,
    /// Requests that wait for the object store or a disk.
    slow: usize,
    /// For the payload of a request that is arriving.
    held: Option<OwnedSemaphorePermit>,
}

impl<'s, S: Wire> ServedConnection<'s, S> {
    pub(crate) fn new(stream: S, serving: &'s Arc<Serving>) -> Self {
        Self {
            stream,
            serving,
            arrived: BytesMut::new(),
            out: Vec::new(),
            sums: Vec::new(),
            late: mpsc::channel(SLOW + 1),
            share: Arc::new(Semaphore::new(serving.share())),
            slow: 0,
            held: None,
        }
    }

    /// Serves until the client goes, or breaks the protocol.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        let _counted = self.serving.group.stats().connections.one();
        loop {
            while let Some((request, payload)) = self.next()? {
                self.answer(&request, payload).await?;
            }
            while let Ok(late) = self.late.1.try_recv() {
                self.add_late(late).await?;
            }
            self.flush().await?;
            self.hold_memory().await?;
            self.arrived.reserve(READ);
            let patience = if self.arrived.is_empty() { IDLE } else { STALLED };
            tokio::select! {
                read = timeout(patience, self.stream.read_buf(&mut self.arrived)) => match read {
                    Ok(Ok(0)) => return Ok(()),
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return Err(error),
                    Err(_) if self.slow > 0 && self.arrived.is_empty() => {}
                    Err(_) => return Err(io::ErrorKind::TimedOut.into()),
                },
                Some(late) = self.late.1.recv() => self.add_late(late).await?,
            }
        }
    }

    /// Takes part of the budget for a payload that is arriving. Waits while others have it.
    async fn hold_memory(&mut self) -> io::Result<()> {
        let head = self.arrived.first_chunk().and_then(Request::decode);
        let bytes = head.map_or(0, |request| request.payload());
        if bytes > 0 && self.held.is_none() {
            let units = (bytes / UNIT + 1) as u32;
            let held = timeout(STALLED, Arc::clone(&self.serving.memory).acquire_many_owned(units)).await;
            self.held = Some(held.map_err(|_| io::ErrorKind::TimedOut)?.map_err(io::Error::other)?);
            self.arrived.reserve(bytes);
        }
        Ok(())
    }

    /// The next request, if all of it has arrived.
    fn next(&mut self) -> io::Result<Option<(Request, Bytes)>> {
        let Some(head) = self.arrived.first_chunk::<{ Request::BYTES }>() else { return Ok(None) };
        let garbage = || io::Error::new(io::ErrorKind::InvalidData, "a request is none of the protocol");
        let request = Request::decode(head).ok_or_else(garbage)?;
        if self.arrived.len() < Request::BYTES + request.payload() {
            return Ok(None);
        }
        self.arrived.advance(Request::BYTES);
        let payload = self.arrived.split_to(request.payload()).freeze();
        self.held = None;
        Ok(Some((request, payload)))
    }

    async fn answer(&mut self, request: &Request, payload: Bytes) -> io::Result<()> {
        let (blocks, key) = (&self.serving.blocks, request.key);
        self.serving.group.heard_of(request.version);
        match request.kind {
            Kind::Get | Kind::GetCached => return self.get(request).await,
            Kind::Put => {
                blocks.accept(key, &Bytes::copy_from_slice(&payload));
                self.end(request, Status::Done).await
            }
            Kind::Has => {
                let status = if blocks.has(key) { Status::Done } else { Status::Missing };
                self.end(request, status).await
            }
            Kind::Evict => {
                let serving = Arc::clone(self.serving);
                drop(tokio::task::spawn_blocking(move || serving.blocks.evict(key)));
                self.end(request, Status::Done).await
            }
            Kind::Warm => self.wait(request, false).await,
            Kind::List => {
                let list = serde_json::to_vec(&self.serving.group.members())?;
                self.add(self.head(request, Status::Done), &[], &list).await
            }
        }
    }

    async fn get(&mut self, request: &Request) -> io::Result<()> {
        let stats = self.serving.group.stats();
        let length = request.range.end - request.range.start;
        if length as usize > COPIED {
            match self.serving.blocks.file(request.key, &request.range) {
                Cached::Here(file) => {
                    stats.served_cached.add(1);
                    stats.served_bytes.add(u64::from(length));
                    let head = Head { length, ..self.head(request, Status::Done) };
                    return self.send_file(head, &file, request.range.start).await;
                }
                Cached::Cold => return self.wait(request, true).await,
                Cached::Missing => {}
            }
        }
        // Head, checksums and bytes lie one behind the other, and nothing is copied.
        let (at, parts) = (self.out.len(), pages(&request.range).count());
        let head = Head { sums: parts as u16, length, ..self.head(request, Status::Done) };
        self.out.extend_from_slice(&head.encode());
        self.out.resize(at + Head::BYTES + parts * 4, 0);
        let (out, sums) = (&mut self.out, &mut self.sums);
        let cached = self.serving.blocks.serve(request.key, &request.range, out, sums, false);
        if cached == Cached::Here(()) {
            for (place, sum) in self.out[at + Head::BYTES..].chunks_exact_mut(4).zip(self.sums.drain(..)) {
                place.copy_from_slice(&sum.to_le_bytes());
            }
            stats.served_cached.add(1);
            stats.served_bytes.add(u64::from(length));
            return if self.out.len() > GATHERED { self.flush().await } else { Ok(()) };
        }
        self.out.truncate(at);
        if cached == Cached::Cold {
            return self.wait(request, true).await;
        }
        if request.kind == Kind::GetCached {
            stats.served_none.add(1);
            return self.end(request, Status::Missing).await;
        }
        self.wait(request, false).await
    }

    /// Has a request wait for the object store, beside others; with `cold` for the disk that has
    /// the block, which the client is not told: a disk that takes long is slow.
    async fn wait(&mut self, request: &Request, cold: bool) -> io::Result<()> {
        if self.slow >= SLOW {
            self.serving.group.stats().served_none.add(1);
            return self.end(request, Status::Failed).await;
        }
        self.slow += 1;
        if !cold {
            // So that the client knows that somebody is at work.
            self.end(request, Status::Wait).await?;
        }
        let (serving, share, sender) =
            (Arc::clone(self.serving), Arc::clone(&self.share), self.late.0.clone());
        let (request, head) = (request.clone(), self.head(request, Status::Done));
        tokio::spawn(async move {
            let units = (request.key.size as usize / UNIT + 1) as u32;
            let memory = memory(&share, &serving.memory, units).await;
            let found = if memory.is_none() {
                Err((Status::Failed, "the member has no memory for it".to_owned()))
            } else {
                find(&serving, &request, cold).await
            };
            let late = match found {
                Ok((bytes, sums, source)) => Late { head, sums, bytes, source, _memory: memory },
                Err((status, reason)) => {
                    tracing::debug!(reason, "a block for another client was not read");
                    let (sums, source) = (Vec::new(), Source::Store);
                    Late { head: Head { status, ..head }, sums, bytes: Bytes::new(), source, _memory: None }
                }
            };
            // The client may be gone.
            let _ = sender.send(late).await;
        });
        Ok(())
    }

    async fn add_late(&mut self, late: Late) -> io::Result<()> {
        self.slow -= 1;
        let stats = self.serving.group.stats();
        let counter = match late.source {
            _ if late.head.status != Status::Done => &stats.served_none,
            Source::Cache => &stats.served_cached,
            Source::Store => &stats.served_read,
            Source::Warmed => &stats.served_warmed,
        };
        counter.add(1);
        stats.served_bytes.add(late.bytes.len() as u64);
        self.add(late.head, &late.sums, &late.bytes).await
    }

    fn head(&self, request: &Request, status: Status) -> Head {
        Head { id: request.id, status, sums: 0, length: 0, version: self.serving.group.version() }
    }

    /// Answers without a payload.
    async fn end(&mut self, request: &Request, status: Status) -> io::Result<()> {
        self.add(self.head(request, status), &[], &[]).await
    }

    async fn add(&mut self, mut head: Head, sums: &[u32], payload: &[u8]) -> io::Result<()> {
        (head.sums, head.length) = (sums.len() as u16, payload.len() as u32);
        self.out.extend_from_slice(&head.encode());
        for sum in sums {
            self.out.extend_from_slice(&sum.to_le_bytes());
        }
        if payload.len() <= COPIED {
            self.out.extend_from_slice(payload);
        } else {
            self.flush().await?;
            timed(self.stream.write_all(payload)).await?;
        }
        if self.out.len() > GATHERED { self.flush().await } else { Ok(()) }
    }

    /// Sends part of a file in pieces, so that a client that does not take them holds little of the
    /// memory.
    async fn copy_file(&mut self, file: &CachedFile, range: Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let piece = (range.end - at).min(GATHERED as u64) as usize;
            self.out.resize(piece, 0);
            file.file().read_exact_at(&mut self.out, at)?;
            timed(self.stream.write_all(&self.out)).await?;
            at += piece as u64;
        }
        self.out.clear();
        self.out.shrink_to(COPIED);
        timed(self.stream.flush()).await
    }

    /// Sends part of a file, without a copy if it can be.
    async fn send_file(&mut self, mut head: Head, file: &CachedFile, from: u32) -> io::Result<()> {
        head.sums = file.sums().len() as u16;
        self.out.extend_from_slice(&head.encode());
        self.out.extend(file.sums().iter().flat_map(|sum| sum.to_le_bytes()));
        self.flush().await?;
        let (mut at, end) = (u64::from(from), u64::from(from) + u64::from(head.length));
        let Some(socket) = self.stream.socket() else { return self.copy_file(file, at..end).await };
        while at < end {
            timed(socket.writable()).await?;
            let left = (end - at) as usize;
            let send = || Ok(rustix::fs::sendfile(socket, file.file(), Some(&mut at), left)?);
            match socket.try_io(Interest::WRITABLE, send) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            timed(self.stream.write_all(&self.out)).await?;
            self.out.clear();
            // Thousands of clients are idle at most times.
            self.out.shrink_to(COPIED);
        }
        timed(self.stream.flush()).await
    }
}

async fn timed(work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    timeout(STALLED, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Part of a connection's share of the memory, and of the memory itself; `None` if there is none
/// for long.
async fn memory(
    share: &Arc<Semaphore>,
    memory: &Arc<Semaphore>,
    units: u32,
) -> Option<[OwnedSemaphorePermit; 2]> {
    let own = timeout(STALLED, Arc::clone(share).acquire_many_owned(units)).await.ok()?.ok()?;
    let all = timeout(CROWDED, Arc::clone(memory).acquire_many_owned(units)).await.ok()?.ok()?;
    Some([own, all])
}

/// What a request wants, from a local file, else from the object store.
async fn find(
    serving: &Arc<Serving>,
    request: &Request,
    cold: bool,
) -> Result<(Bytes, Vec<u32>, Source), (Status, String)> {
    let failed = |reason| (Status::Failed, reason);
    if request.kind == Kind::Warm {
        warm(serving, request.key).await.map_err(failed)?;
        return Ok((Bytes::new(), Vec::new(), Source::Warmed));
    }
    if cold {
        match serving.read_file(request.key, request.range.clone()).await {
            Cached::Here((bytes, sums)) => return Ok((bytes.into(), sums, Source::Cache)),
            Cached::Cold => return Err(failed("the disk of the cache hangs".into())),
            Cached::Missing if request.kind == Kind::GetCached => {
                return Err((Status::Missing, "it went meanwhile".into()));
            }
            Cached::Missing => {}
        }
    }
    let whole = serving.blocks.read(request.key).await.map_err(failed)?;
    let bytes = whole.slice(request.range.start as usize..request.range.end as usize);
    let sums = sums(&request.range, &bytes);
    Ok((bytes, sums, Source::Store))
}

async fn warm(serving: &Arc<Serving>, key: sluice_data::BlockKey) -> Result<(), String> {
    let serving = Arc::clone(serving);
    let warmed = tokio::task::spawn_blocking(move || serving.blocks.warm(key)).await;
    match warmed {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err("there is no room in the cache".into()),
        Ok(Err(reason)) => Err(reason),
        Err(error) => Err(error.to_string()),
    }
}
