//! Serves one connection of another client: reads its requests and sends the answers.
//!
//! What must stay true: all requests that have arrived are answered together. A request that must
//! wait for the object store or a disk does not delay the requests after it.

use std::{io, ops::Range, os::unix::fs::FileExt as _, sync::Arc, time::Duration};

use bytes::{Buf as _, Bytes, BytesMut};
use sluice_data::{Cached, CachedFile, Served, pages};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_rustls::server::TlsStream;

use crate::{
    deadline::Deadline,
    frame::{Head, Kind, Request, Status, sums},
    outgoing::{COPIED, Outgoing, timed},
    serving::{Serving, UNIT},
};

/// Bytes read at once.
const READ: usize = 8 << 10;
/// Bytes of a file that are read at once, to be encrypted.
const PIECE: usize = 256 << 10;
/// Requests of one connection that may wait for the object store or a disk.
const SLOW: usize = 256;
/// How long a connection may be idle.
const IDLE: Duration = Duration::from_mins(10);
/// How long a request waits for memory that other connections have.
const CROWDED: Duration = Duration::from_secs(2);
/// How long the rest of a request may take.
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
    out: Outgoing<'s>,
    /// Checksums of the answer that is being made.
    sums: Vec<u32>,
    late: (mpsc::Sender<Late>, mpsc::Receiver<Late>),
    /// What this connection may have of the memory: a client that takes no answers stops itself.
    share: Arc<Semaphore>,
    /// Requests that wait for the object store or a disk.
    slow: usize,
    /// For the payload of a request that is arriving.
    held: Option<OwnedSemaphorePermit>,
    /// Until when something has to arrive.
    deadline: Deadline,
}

impl<'s, S: Wire> ServedConnection<'s, S> {
    pub(crate) fn new(stream: S, serving: &'s Arc<Serving>) -> Self {
        Self {
            stream,
            serving,
            arrived: BytesMut::new(),
            out: Outgoing::new(&serving.buffers),
            sums: Vec::new(),
            late: mpsc::channel(SLOW + 1),
            share: Arc::new(Semaphore::new(serving.share())),
            slow: 0,
            held: None,
            deadline: Deadline::after(IDLE),
        }
    }

    /// Serves until the client goes, or breaks the protocol.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        let _counted = self.serving.group.stats().connections.one();
        loop {
            while let Some((request, payload)) = self.next()? {
                self.serving.group.heard_of(request.version);
                match self.answer_at_once(&request) {
                    Some(Cached::Here(())) => {}
                    Some(cached) => self.answer_later(&request, cached).await?,
                    None => self.answer(&request, payload).await?,
                }
                if self.out.is_full() {
                    self.flush().await?;
                }
            }
            while self.slow > 0
                && let Ok(late) = self.late.1.try_recv()
            {
                self.add_late(late).await?;
            }
            self.flush().await?;
            self.hold_memory().await?;
            self.arrived.reserve(READ);
            self.deadline.set(if self.arrived.is_empty() { IDLE } else { STALLED });
            tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.arrived) => if read? == 0 {
                    return Ok(());
                },
                Some(late) = self.late.1.recv(), if self.slow > 0 => self.add_late(late).await?,
                () = self.deadline.passed() => if self.slow == 0 || !self.arrived.is_empty() {
                    return Err(io::ErrorKind::TimedOut.into());
                },
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
        let mut payload = Bytes::new();
        if request.payload() > 0 {
            payload = self.arrived.split_to(request.payload()).freeze();
            self.held = None;
        }
        Ok(Some((request, payload)))
    }

    async fn answer(&mut self, request: &Request, payload: Bytes) -> io::Result<()> {
        let (blocks, key) = (&self.serving.blocks, request.key);
        match request.kind {
            Kind::Get | Kind::GetCached => self.get_large(request).await,
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

    /// Answers a request for few bytes that are in memory; `None` for any other request. Most
    /// requests are such, so nothing is waited for here.
    fn answer_at_once(&mut self, request: &Request) -> Option<Cached<()>> {
        let few = request.range.len() <= COPIED;
        (few && matches!(request.kind, Kind::Get | Kind::GetCached)).then(|| self.get(request))
    }

    /// Answers a request for bytes that are cached.
    fn get(&mut self, request: &Request) -> Cached<()> {
        // Head, checksums and bytes lie one behind the other, and nothing is copied.
        let (bytes, parts) = (request.range.len(), pages(&request.range).count());
        let head = Head { sums: parts as u16, length: bytes as u32, ..self.head(request, Status::Done) };
        let before = Head::BYTES + parts * 4;
        let (buffer, at) = self.out.buffer();
        let place = (buffer, at + before);
        let served =
            match self.serving.blocks.serve(request.key, &request.range, place, &mut self.sums, false) {
                Cached::Here(served) => served,
                Cached::Cold => return Cached::Cold,
                Cached::Missing => return Cached::Missing,
            };
        let (head_place, sum_places) = self.out.room(before).split_at_mut(Head::BYTES);
        head_place.copy_from_slice(&head.encode());
        for (place, sum) in sum_places.chunks_exact_mut(4).zip(self.sums.drain(..)) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
        match served {
            Served::Copied => self.out.add(before + bytes),
            Served::Shared(bytes) => {
                self.out.add(before);
                self.out.share(bytes);
            }
        }
        self.served(&request.range);
        Cached::Here(())
    }

    /// Counts an answer from the cache.
    fn served(&self, range: &Range<u32>) {
        let stats = self.serving.group.stats();
        stats.served_cached.add(1);
        stats.served_bytes.add(range.len() as u64);
    }

    /// Answers a request for many bytes.
    async fn get_large(&mut self, request: &Request) -> io::Result<()> {
        match self.serving.blocks.file(request.key, &request.range) {
            Cached::Here(file) => {
                self.served(&request.range);
                let head = Head { length: request.range.len() as u32, ..self.head(request, Status::Done) };
                self.send_file(head, &file, request.range.start).await
            }
            Cached::Cold => self.wait(request, true).await,
            Cached::Missing => match self.get(request) {
                Cached::Here(()) => self.flush().await,
                cached => self.answer_later(request, cached).await,
            },
        }
    }

    /// Answers a request for bytes that are not in memory.
    async fn answer_later(&mut self, request: &Request, cached: Cached<()>) -> io::Result<()> {
        if cached == Cached::Cold {
            return self.wait(request, true).await;
        }
        if request.kind == Kind::GetCached {
            self.serving.group.stats().served_none.add(1);
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
        self.add_head(head, sums);
        if payload.len() <= COPIED {
            self.out.copy(payload);
        } else {
            self.flush().await?;
            timed(self.stream.write_all(payload)).await?;
            timed(self.stream.flush()).await?;
        }
        if self.out.is_full() { self.flush().await } else { Ok(()) }
    }

    fn add_head(&mut self, head: Head, sums: &[u32]) {
        self.out.copy(&head.encode());
        for (place, sum) in self.out.room(sums.len() * 4).chunks_exact_mut(4).zip(sums) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
        self.out.add(sums.len() * 4);
    }

    /// Sends part of a file in pieces, so that a client that does not take them holds little of the
    /// memory.
    async fn copy_file(&mut self, file: &CachedFile, range: Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let piece = (range.end - at).min(PIECE as u64) as usize;
            file.file().read_exact_at(self.out.room(piece), at)?;
            self.out.add(piece);
            self.flush().await?;
            at += piece as u64;
        }
        Ok(())
    }

    /// Sends part of a file, without a copy if it can be.
    async fn send_file(&mut self, mut head: Head, file: &CachedFile, from: u32) -> io::Result<()> {
        head.sums = file.sums().len() as u16;
        self.add_head(head, file.sums());
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
        if self.out.is_empty() { Ok(()) } else { self.out.send(&mut self.stream).await }
    }
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
            Cached::Here((bytes, sums)) => return Ok((bytes, sums, Source::Cache)),
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
