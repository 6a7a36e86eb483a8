//! The bytes of a connection: out as the server takes them, in as they come, encrypted or not.
//!
//! What must stay true: a wait never outlasts its deadline, and what the server sends is taken in
//! while it has no room for what we send, so that the two never wait for each other. The answer of
//! a near server ([`sluice_meta::near`]) is waited for awake.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    thread,
    time::Instant,
};

use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use rustls::ClientConnection;
use sluice_meta::near::{NEAR, Nearness};

/// Received at once, bytes.
const CHUNK: usize = 32 << 10;

/// The way to the server.
pub(super) enum Socket {
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
    fn wait(&self, or_send: bool, until: Instant) -> io::Result<()> {
        let wanted = if or_send { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "no answer within the deadline"));
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

/// Receives and sends what can be at once, else fails with [`ErrorKind::WouldBlock`].
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

/// What is awaited: answers to both kinds take their own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Look,
    Change,
}

/// A connection on which messages are read as they come.
pub(super) struct Wire {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
    input: BytesMut,
    chunk: Box<[u8]>,
    /// Of answers of either kind.
    nearness: [Nearness; 2],
    /// Whether the answer to the last request is waited for awake.
    awake: bool,
    /// What was asked last and when, until the first byte of its answer.
    asked: Option<(Kind, Instant)>,
    /// Bytes of the last request that may be on their way.
    sent: usize,
}

impl Wire {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            tls: None,
            input: BytesMut::new(),
            chunk: vec![0; CHUNK].into(),
            nearness: Default::default(),
            awake: false,
            asked: None,
            sent: 0,
        }
    }

    /// Encrypts everything from here on.
    pub(super) fn encrypt(&mut self, mut tls: ClientConnection, until: Instant) -> io::Result<()> {
        tls.set_buffer_limit(None);
        while tls.is_handshaking() {
            let done = if tls.wants_write() {
                tls.write_tls(&mut &self.socket).map(|_| true)
            } else {
                take_tls(&mut tls, &self.socket)
            };
            match done {
                Ok(true) => {}
                Ok(false) => return Err(closed()),
                Err(error) if would_block(&error) => self.socket.wait(tls.wants_write(), until)?,
                Err(error) => return Err(error),
            }
        }
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// Sends a request whole.
    pub(super) fn send(&mut self, request: &[u8], kind: Kind, until: Instant) -> io::Result<()> {
        self.asked = Some((kind, Instant::now()));
        self.awake = self.nearness[kind as usize].stays_awake();
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
                // What is in which encrypted byte is not known.
                Ok(_) => self.sent = request.len(),
                Err(error) if would_block(&error) => {
                    self.socket.wait(true, until)?;
                    self.take()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// How much of the last request the server can have seen.
    pub(super) const fn sent(&self) -> usize {
        self.sent
    }

    /// The next message.
    pub(super) fn receive(&mut self, until: Instant) -> io::Result<Message> {
        loop {
            if let Some(message) = Message::parse(&mut self.input)? {
                return Ok(message);
            }
            self.fill(until)?;
        }
    }

    /// One byte, which is how the server answers the wish for encryption.
    pub(super) fn receive_byte(&mut self, until: Instant) -> io::Result<u8> {
        let mut byte = [0];
        loop {
            match (&self.socket).read(&mut byte) {
                Ok(0) => return Err(closed()),
                Ok(_) => return Ok(byte[0]),
                Err(error) if would_block(&error) => self.socket.wait(false, until)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the server closed it or sent something that nobody asked for: it is not to be used
    /// any more.
    pub(super) fn is_stale(&self) -> bool {
        let mut byte = [0];
        let peeked = recv(self.socket.fd(), &mut byte, RecvFlags::DONTWAIT | RecvFlags::PEEK);
        !self.input.is_empty() || !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
    }

    /// Waits for more bytes.
    fn fill(&mut self, until: Instant) -> io::Result<()> {
        let since = self.asked.map_or_else(Instant::now, |(_, since)| since);
        while !self.take()? {
            self.awake &= since.elapsed() < NEAR;
            if self.awake {
                thread::yield_now();
            } else {
                self.socket.wait(false, until)?;
            }
        }
        if let Some((kind, since)) = self.asked.take() {
            self.nearness[kind as usize].took(since.elapsed());
        }
        Ok(())
    }

    /// Takes in what is there; whether there was something.
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

/// Takes in encrypted bytes; `false` at their end.
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
