//! The byte stream of a connection, encrypted or not. It sends and receives at the same time.
//!
//! What must stay true: a wait never outlasts its deadline. While the server does not accept data,
//! the client receives the data that the server sends. So client and server never wait for each
//! other (deadlock). The answer of a near server is polled (`near.rs`).

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    thread,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use rustls::ClientConnection;

use crate::{
    address::Address,
    connect::{connect_tcp, connect_unix},
    near::{NEAR, Nearness},
    processors,
    tls::{Tls, rejected_certificate},
};

/// Bytes of one receive.
const CHUNK: usize = 32 << 10;
/// The message for a deadline that passed.
const LATE: &str = "no answer within the deadline";

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub enum Deadline {
    /// Until this time, even if data comes.
    At(Instant),
    /// This long for each progress, however small.
    Idle(Duration),
}

impl Deadline {
    /// This long from now on.
    pub fn after(time: Duration) -> Self {
        Self::At(Instant::now() + time)
    }

    /// When a wait that begins now ends.
    fn end(self) -> Instant {
        match self {
            Self::At(end) => end,
            Self::Idle(time) => Instant::now() + time,
        }
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }

    /// Waits until something can be received, or (`or_send`) sent.
    fn wait(&self, or_send: bool, deadline: Deadline) -> io::Result<()> {
        let wanted = if or_send { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let end = deadline.end();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, LATE));
            }
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut fds = [PollFd::from_borrowed_fd(self.fd(), wanted)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Receives and sends without a wait; else fails with [`ErrorKind::WouldBlock`].
impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.fd(), buffer, RecvFlags::DONTWAIT)?.0)
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.fd(), bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The kind of a request. Each kind has its own usual time to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read.
    Read,
    /// A commit.
    Commit,
}

/// A connection that buffers what it receives.
pub struct Stream {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
    /// Bytes that were received and not consumed yet.
    pub input: BytesMut,
    chunk: Box<[u8]>,
    /// The usual times of both kinds.
    nearness: [Nearness; 2],
    /// Whether to poll for the answer to the last request.
    polls: bool,
    /// The last request and its time, until the first byte of its answer. `None` if the processors
    /// are busy.
    requested: Option<(Kind, Instant)>,
    /// Bytes of the last request that may have been sent.
    sent: usize,
}

impl Stream {
    /// Connects to a server, not encrypted yet.
    ///
    /// # Errors
    /// Those of the resolver and of `connect(2)`; [`ErrorKind::WouldBlock`] if the queue of a Unix
    /// socket is full.
    pub fn connect(address: &Address, until: Instant) -> io::Result<Self> {
        Ok(Self::new(match address {
            Address::Unix(path) => Socket::Unix(connect_unix(path)?),
            Address::Tcp(host, port) => Socket::Tcp(connect_tcp(host, *port, until)?),
        }))
    }

    fn new(socket: Socket) -> Self {
        Self {
            socket,
            tls: None,
            input: BytesMut::new(),
            chunk: vec![0; CHUNK].into(),
            nearness: Default::default(),
            polls: false,
            requested: None,
            sent: 0,
        }
    }

    /// Encrypts everything from here on. `host` is the name or IP address that the certificate of
    /// the server must have, if it must have any.
    ///
    /// # Errors
    /// Those of the socket, and what is wrong with the certificate
    /// ([`crate::tls::rejected_certificate`]).
    pub fn encrypt(&mut self, tls: &Tls, host: &str, until: Instant) -> io::Result<()> {
        let mut session = tls.session(host)?;
        session.set_buffer_limit(None);
        while session.is_handshaking() {
            let done = if session.wants_write() {
                session.write_tls(&mut &self.socket).map(|_| true)
            } else {
                take_tls(&mut session, &self.socket)
            };
            match done {
                Ok(true) => {}
                Ok(false) => return Err(closed()),
                Err(error) if would_block(&error) => {
                    self.socket.wait(session.wants_write(), Deadline::At(until))?;
                }
                Err(error) => return Err(error),
            }
        }
        self.tls = Some(Box::new(session));
        Ok(())
    }

    /// Sends a complete request.
    ///
    /// # Errors
    /// Those of the socket, and [`ErrorKind::TimedOut`]. [`Self::sent`] returns how much of it the
    /// server may have.
    pub fn send(&mut self, request: &[u8], kind: Kind, deadline: Deadline) -> io::Result<()> {
        let now = Instant::now();
        let is_busy = processors::are_busy(now);
        self.requested = (!is_busy).then_some((kind, now));
        self.polls = !is_busy && self.nearness[kind as usize].should_poll();
        self.sent = 0;
        let mut rest = request;
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(rest)?;
            rest = &[];
        }
        loop {
            let sent = match &mut self.tls {
                Some(tls) if tls.wants_write() => tls.write_tls(&mut &self.socket),
                None if !rest.is_empty() => (&self.socket).write(rest),
                _ => return Ok(()),
            };
            match sent {
                Ok(sent) if self.tls.is_none() => {
                    rest = &rest[sent..];
                    self.sent += sent;
                }
                // It is unknown which encrypted byte holds which byte of the request.
                Ok(_) => self.sent = request.len(),
                Err(error) if would_block(&error) => {
                    self.socket.wait(true, deadline)?;
                    self.take()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// How many bytes of the last request the server can have seen.
    pub const fn sent(&self) -> usize {
        self.sent
    }

    /// Waits for more bytes of [`Self::input`].
    ///
    /// # Errors
    /// Those of the socket, [`ErrorKind::TimedOut`], and [`ErrorKind::UnexpectedEof`] if the server
    /// closed the connection.
    pub fn fill(&mut self, deadline: Deadline) -> io::Result<()> {
        let since = self.requested.map_or_else(Instant::now, |(_, since)| since);
        while !self.take()? {
            self.polls &= since.elapsed() < NEAR;
            if self.polls {
                thread::yield_now();
            } else {
                self.socket.wait(false, deadline)?;
            }
        }
        if let Some((kind, since)) = self.requested.take() {
            self.nearness[kind as usize].took(since.elapsed());
        }
        Ok(())
    }

    /// Receives one byte and nothing after it: the server's answer to a request for encryption.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn receive_byte(&mut self, until: Instant) -> io::Result<u8> {
        let mut byte = [0];
        loop {
            match (&self.socket).read(&mut byte) {
                Ok(0) => return Err(closed()),
                Ok(_) => return Ok(byte[0]),
                Err(error) if would_block(&error) => self.socket.wait(false, Deadline::At(until))?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the server closed it or sent something unexpected. It must not be used any more
    /// then.
    pub fn is_stale(&self) -> bool {
        !self.input.is_empty() || self.is_closed()
    }

    /// As [`Self::is_stale`], if what is in [`Self::input`] was read.
    pub fn is_closed(&self) -> bool {
        let mut byte = [0];
        let peeked = recv(self.socket.fd(), &mut byte, RecvFlags::DONTWAIT | RecvFlags::PEEK);
        !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
    }

    /// Receives what is available. Returns whether there was something.
    fn take(&mut self) -> io::Result<bool> {
        loop {
            let taken = match &mut self.tls {
                None => (&self.socket).read(&mut self.chunk),
                Some(tls) => match tls.reader().read(&mut self.chunk) {
                    Err(error) if would_block(&error) => match take_tls(tls, &self.socket) {
                        Ok(true) => continue,
                        Ok(false) => Ok(0),
                        Err(error) => Err(error),
                    },
                    read => read,
                },
            };
            return match taken {
                Ok(0) => Err(closed()),
                Ok(length) => {
                    self.input.extend_from_slice(&self.chunk[..length]);
                    Ok(true)
                }
                Err(error) if would_block(&error) => Ok(false),
                Err(error) => Err(error),
            };
        }
    }
}

impl From<UnixStream> for Stream {
    fn from(socket: UnixStream) -> Self {
        Self::new(Socket::Unix(socket))
    }
}

/// The message for an error of a connection, without the data.
pub fn describe(error: &io::Error) -> String {
    if let Some(reason) = rejected_certificate(error) {
        return format!("its certificate is not to be trusted: {reason}");
    }
    match error.kind() {
        // `WouldBlock` means that the queue of a Unix socket stayed full.
        ErrorKind::TimedOut | ErrorKind::WouldBlock => LATE.into(),
        _ => error.to_string(),
    }
}

/// Receives encrypted bytes; `false` at the end.
fn take_tls(tls: &mut ClientConnection, mut socket: &Socket) -> io::Result<bool> {
    if tls.read_tls(&mut socket)? == 0 {
        return Ok(false);
    }
    tls.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    Ok(true)
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn closed() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn a_request_that_broke_off_says_how_much_was_sent() {
        let request = vec![b'x'; 64 << 20];
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        let mut stream = Stream::from(ours);
        assert!(stream.send(&request, Kind::Commit, Deadline::Idle(LONG)).is_err());
        assert_eq!(stream.sent(), 0, "nobody took any of it");

        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let peer = thread::spawn(move || theirs.read_exact(&mut [0]));
        let mut stream = Stream::from(ours);
        assert!(stream.send(&request, Kind::Commit, Deadline::Idle(LONG)).is_err());
        peer.join().expect("a thread").expect("a byte");
        assert!((1..request.len()).contains(&stream.sent()));
    }

    #[test]
    fn no_wait_outlasts_its_deadline() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut stream = Stream::from(ours);
        let kind = |result: io::Result<()>| result.expect_err("a deadline").kind();
        assert_eq!(kind(stream.fill(Deadline::Idle(SHORT))), ErrorKind::TimedOut);
        let request = vec![0; 64 << 20];
        assert_eq!(kind(stream.send(&request, Kind::Read, Deadline::after(SHORT))), ErrorKind::TimedOut);
        theirs.write_all(b"late").expect("sent");
        stream.fill(Deadline::after(LONG)).expect("more");
        assert_eq!(&stream.input[..], b"late");
        assert!(stream.is_stale());
    }

    #[test]
    fn what_the_server_says_is_taken_in_while_it_takes_nothing() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let bytes = vec![7; 8 << 20];
        let peer = thread::spawn(move || {
            theirs.write_all(&vec![9; 8 << 20])?;
            theirs.read_exact(&mut vec![0; 8 << 20])
        });
        let mut stream = Stream::from(ours);
        stream.send(&bytes, Kind::Read, Deadline::Idle(LONG)).expect("sent");
        while stream.input.len() < 8 << 20 {
            stream.fill(Deadline::Idle(LONG)).expect("more");
        }
        peer.join().expect("a thread").expect("all of it");
    }
}
