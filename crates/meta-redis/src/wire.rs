//! A socket to a server, encrypted or not: commands out, answers in.
//!
//! The answer of a near server ([`sluice_meta::near`]) is waited for by asking the socket again and
//! again, in between giving way to whoever else wants to run. What must stay true: a wait never
//! outlasts the deadlines of the configuration.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    thread,
    time::{Duration, Instant},
};

use redis::Value;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::RecvFlags,
};
use rustls::{ClientConnection, StreamOwned};
use sluice_meta::near::{NEAR, Nearness, connect_unix};

use crate::{config::Address, tls::Encryption};

/// The buffer between socket and answers, bytes.
const BUFFER: usize = 32 << 10;
/// Longest text Redis stores.
const LONGEST: usize = 512 << 20;
/// Longest line, bytes: lines are numbers and messages.
const LINE: usize = 1 << 20;
/// How deep answers may be nested: ours are at most three deep.
const DEEPEST: u32 = 8;

enum Socket {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

impl Socket {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Tls(session) => session.sock.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Tls(session) => session.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
        }
    }
}

/// A connection on which answers are read as they come.
pub(crate) struct Wire {
    socket: Socket,
    /// What was received and not yet read: `input[start..end]`.
    input: Vec<u8>,
    start: usize,
    end: usize,
    nearness: Nearness,
    /// Whether the answer to the last request is waited for awake.
    awake: bool,
    /// When the last request was sent, until its first byte of answer.
    asked: Option<Instant>,
    /// Whether the server may have any of the last request.
    began: bool,
}

impl Wire {
    /// Connects to an address, one resolved address after the other. Until told otherwise no wait
    /// is longer than `dial`.
    pub(crate) fn connect(address: &Address, tls: Option<&Encryption>, dial: Duration) -> io::Result<Self> {
        let socket = match (address, tls) {
            (Address::Unix(path), _) => Socket::Unix(connect_unix(path)?),
            (Address::Tcp(host, port), None) => Socket::Tcp(tcp(host, *port, dial)?),
            (Address::Tcp(host, port), Some(encryption)) => {
                let session = encryption.session(host)?;
                Socket::Tls(Box::new(StreamOwned::new(session, tcp(host, *port, dial)?)))
            }
        };
        let mut wire = Self::new(socket, BUFFER);
        wire.deadlines(dial, dial)?;
        Ok(wire)
    }

    fn new(socket: Socket, buffer: usize) -> Self {
        Self {
            socket,
            input: vec![0; buffer],
            start: 0,
            end: 0,
            nearness: Nearness::default(),
            awake: false,
            asked: None,
            began: false,
        }
    }

    /// Sets how long to wait for an answer and for a request to be taken.
    pub(crate) fn deadlines(&mut self, read: Duration, write: Duration) -> io::Result<()> {
        let socket = match &self.socket {
            Socket::Unix(socket) => {
                socket.set_read_timeout(Some(read))?;
                return socket.set_write_timeout(Some(write));
            }
            Socket::Tcp(socket) => socket,
            Socket::Tls(session) => &session.sock,
        };
        socket.set_read_timeout(Some(read))?;
        socket.set_write_timeout(Some(write))
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.asked = Some(Instant::now());
        // Encrypted bytes are not the answer yet.
        self.awake = !matches!(self.socket, Socket::Tls(_)) && self.nearness.stays_awake();
        self.began = false;
        let socket: &mut dyn Write = match &mut self.socket {
            Socket::Tcp(socket) => socket,
            Socket::Tls(session) => {
                // It passes on what it likes, when it likes.
                self.began = true;
                return session.write_all(request).and_then(|()| session.flush());
            }
            Socket::Unix(socket) => socket,
        };
        let mut rest = request;
        while !rest.is_empty() {
            match socket.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.began = true;
                    rest = &rest[sent..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the server may have any of the last request. It runs the first commands of one that
    /// ends too soon.
    pub(crate) fn began(&self) -> bool {
        self.began
    }

    /// Whether the server closed it or said something that nobody asked for: it is not to be used
    /// any more.
    pub(crate) fn is_stale(&self) -> bool {
        let mut byte = [0];
        let peeked = rustix::net::recv(self.socket.fd(), &mut byte, RecvFlags::DONTWAIT | RecvFlags::PEEK);
        self.start < self.end || !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
    }

    /// Waits up to `timeout` until there is something to [`Self::receive`], or the connection has
    /// ended.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        if self.start < self.end {
            return Ok(true);
        }
        if let Socket::Tls(session) = &mut self.socket {
            // What was decrypted already does not show on the socket.
            if session.conn.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0) {
                return Ok(true);
            }
        }
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match poll(&mut [PollFd::from_borrowed_fd(self.socket.fd(), PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The next answer, in RESP2 or as much of RESP3 as listeners meet. Errors of the server are
    /// values, messages are arrays, maps are arrays of keys and values.
    pub(crate) fn receive(&mut self) -> io::Result<Value> {
        self.value(DEEPEST)
    }

    fn value(&mut self, depth: u32) -> io::Result<Value> {
        let (from, to) = self.line()?;
        let (kind, text) = self.input[from..to].split_first().ok_or_else(|| odd("an empty line"))?;
        let kind = *kind;
        match kind {
            b'$' => {
                let length = number(text)?;
                self.bulk(length)
            }
            b':' => Ok(Value::Int(number(text)?)),
            b'*' | b'>' | b'%' => {
                let Ok(mut count) = usize::try_from(number(text)?) else { return Ok(Value::Nil) };
                if kind == b'%' {
                    count = count.saturating_mul(2);
                }
                let depth = depth.checked_sub(1).ok_or_else(|| odd("an answer that is nested too deep"))?;
                let mut values = Vec::with_capacity(count.min(BUFFER));
                for _ in 0..count {
                    values.push(self.value(depth)?);
                }
                Ok(Value::Array(values))
            }
            b'_' => Ok(Value::Nil),
            b'+' if text == b"OK" => Ok(Value::Okay),
            b'+' | b'-' => {
                redis::parse_redis_value(&self.input[from..to + 2]).map_err(|error| odd(&error.to_string()))
            }
            _ => Err(odd("an answer that is not RESP")),
        }
    }

    fn bulk(&mut self, length: i64) -> io::Result<Value> {
        let Ok(length) = usize::try_from(length) else { return Ok(Value::Nil) };
        if length > LONGEST {
            return Err(odd("a text longer than Redis has any"));
        }
        let mut text = Vec::with_capacity(length.min(1 << 20));
        while text.len() < length {
            if self.start == self.end {
                self.fill()?;
            }
            let take = (length - text.len()).min(self.end - self.start);
            text.extend_from_slice(&self.input[self.start..self.start + take]);
            self.start += take;
        }
        let (from, to) = self.line()?;
        if from == to { Ok(Value::BulkString(text)) } else { Err(odd("a text without an end")) }
    }

    /// From where to where in the buffer the next line stands, without its end. It stays there
    /// until more is read.
    fn line(&mut self) -> io::Result<(usize, usize)> {
        let mut searched = 0;
        loop {
            let had = &self.input[self.start..self.end];
            if let Some(at) = had[searched..].iter().position(|byte| *byte == b'\n') {
                let line =
                    had[..searched + at].strip_suffix(b"\r").ok_or_else(|| odd("a line without an end"))?;
                let (from, to) = (self.start, self.start + line.len());
                self.start = to + 2;
                return Ok((from, to));
            }
            searched = had.len();
            if searched > LINE {
                return Err(odd("a line without an end"));
            }
            self.fill()?;
        }
    }

    /// Waits for more bytes, behind those that are not read yet.
    fn fill(&mut self) -> io::Result<()> {
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.input.len() {
            self.input.resize(self.end * 2, 0);
        }
        let received = match self.spin()? {
            Some(received) => received,
            None => self.socket.read(&mut self.input[self.end..])?,
        };
        if received == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        if let Some(asked) = self.asked.take() {
            self.nearness.took(asked.elapsed());
        }
        self.end += received;
        Ok(())
    }

    /// Asks the socket until bytes come, if the answer is waited for awake, but not for longer than
    /// is worth it.
    fn spin(&mut self) -> io::Result<Option<usize>> {
        let since = self.asked.unwrap_or_else(Instant::now);
        while self.awake {
            if let Some(received) = try_receive(self.socket.fd(), &mut self.input[self.end..])? {
                return Ok(Some(received));
            }
            self.awake = since.elapsed() < NEAR;
            thread::yield_now();
        }
        Ok(None)
    }
}

fn try_receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match rustix::net::recv(fd, buffer, RecvFlags::DONTWAIT) {
        Ok((received, _)) => Ok(Some(received)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, format!("{host} has no address"));
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn number(text: &[u8]) -> io::Result<i64> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| odd("a number that is none"))
}

fn odd(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the server sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of `sent`, which comes in pieces.
    fn read(sent: &'static [&'static [u8]]) -> io::Result<Value> {
        let (ours, mut theirs) = UnixStream::pair()?;
        let mut wire = Wire::new(Socket::Unix(ours), 8);
        wire.deadlines(Duration::from_mins(1), Duration::from_mins(1))?;
        let writer = thread::spawn(move || sent.iter().try_for_each(|piece| theirs.write_all(piece)));
        wire.send(b"PING\r\n").ok();
        let value = wire.receive();
        writer.join().unwrap()?;
        value
    }

    #[test]
    fn answers_of_all_kinds_in_pieces() {
        let text = |text: &str| Value::BulkString(text.into());
        let simple = |text: &str| Value::SimpleString(text.into());
        assert_eq!(read(&[b"+OK\r\n"]).unwrap(), Value::Okay);
        assert_eq!(read(&[b"+PO", b"NG\r", b"\n"]).unwrap(), Value::SimpleString("PONG".into()));
        assert_eq!(read(&[b":-12\r\n"]).unwrap(), Value::Int(-12));
        assert_eq!(read(&[b"$-1\r\n"]).unwrap(), Value::Nil);
        assert_eq!(read(&[b"*-1\r\n"]).unwrap(), Value::Nil);
        assert_eq!(read(&[b"$0\r\n\r\n"]).unwrap(), text(""));
        assert_eq!(read(&[b"$12\r\nline\r\nno en", b"d\r\n"]).unwrap(), text("line\r\nno end"));
        let nested = read(&[b"*3\r\n*1\r\n$1\r\na\r\n", b":7\r\n$-1\r\n"]).unwrap();
        assert_eq!(nested, Value::Array(vec![Value::Array(vec![text("a")]), Value::Int(7), Value::Nil]));
        assert_eq!(read(&[b"%1\r\n+a\r\n_\r\n"]).unwrap(), Value::Array(vec![simple("a"), Value::Nil]));
        assert_eq!(read(&[b">2\r\n+a\r\n:1\r\n"]).unwrap(), Value::Array(vec![simple("a"), Value::Int(1)]));
        let Value::ServerError(error) = read(&[b"-NOSCRIPT no such script\r\n"]).unwrap() else { panic!() };
        assert_eq!((error.code(), error.details()), ("NOSCRIPT", Some("no such script")));
    }

    #[test]
    fn a_request_that_broke_off_says_whether_it_began() {
        let request = vec![b'x'; 64 << 20];
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut wire = Wire::new(Socket::Unix(ours), 8);
        assert!(wire.send(&request).is_err());
        assert!(!wire.began(), "nobody took any of it");

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let peer = thread::spawn(move || theirs.read_exact(&mut [0]));
        let mut wire = Wire::new(Socket::Unix(ours), 8);
        assert!(wire.send(&request).is_err());
        peer.join().unwrap().unwrap();
        assert!(wire.began());
    }

    #[test]
    fn nonsense_is_an_error() {
        for sent in
            [&[&b"HTTP/1.1 400\r\n"[..]], &[b"$x\r\n"], &[b"$1\r\nabc\r\n"], &[b"\r\n"], &[b"$3\r\na"]]
        {
            assert!(read(Box::leak(Box::new(*sent))).is_err(), "{sent:?}");
        }
        let deep: &'static [u8] = b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n";
        assert!(read(Box::leak(Box::new([deep]))).is_err());
    }
}
