//! A connection to a server: sends commands, receives answers.
//!
//! What must stay true: an answer never causes an allocation of more memory than Redis can store,
//! even if it contains wrong lengths. No wait is longer than the deadlines of the configuration.

use std::{
    io::{self, ErrorKind},
    time::Duration,
};

use bytes::Buf;
use redis::Value;
use sluice_net::{Deadline, Kind, Stream};

/// Longest text Redis stores.
const MAX_TEXT: usize = 512 << 20;
/// Longest line, bytes: lines are numbers and messages.
const MAX_LINE: usize = 1 << 20;
/// Deepest nesting of answers. The real ones have at most three levels.
const MAX_DEPTH: u32 = 8;
/// Most values of an answer for which memory is allocated before they come.
const MAX_RESERVED: usize = 32 << 10;

/// A connection on which answers are read as they come.
pub(crate) struct Wire {
    stream: Stream,
    /// How many received bytes are consumed.
    start: usize,
    read: Deadline,
    write: Deadline,
}

impl Wire {
    /// `deadline` limits all waits, until [`Self::deadlines`] changes it.
    pub(crate) fn new(stream: Stream, deadline: Deadline) -> Self {
        Self { stream, start: 0, read: deadline, write: deadline }
    }

    /// Sets the deadlines for an answer and for sending a request.
    pub(crate) fn deadlines(&mut self, read: Duration, write: Duration) {
        (self.read, self.write) = (Deadline::Idle(read), Deadline::Idle(write));
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.send(request, Kind::Read, self.write)
    }

    /// Sends a request and receives all its answers.
    pub(crate) fn talk(&mut self, request: &[u8], answers: usize) -> io::Result<Vec<Value>> {
        self.send(request)?;
        (0..answers).map(|_| self.receive()).collect()
    }

    /// Whether the server may have received any of the last request. It runs the complete commands
    /// of a truncated one.
    pub(crate) fn began(&self) -> bool {
        self.stream.sent() > 0
    }

    /// Whether the server closed it or sent something unexpected. It must not be used any more
    /// then.
    pub(crate) fn is_stale(&self) -> bool {
        self.start < self.stream.input.len() || self.stream.is_closed()
    }

    /// Waits up to `timeout` until there is something to [`Self::receive`].
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        if self.start < self.stream.input.len() {
            return Ok(true);
        }
        match self.fill(Deadline::after(timeout)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The next answer, in RESP2 or the part of RESP3 that listeners need. Errors of the server are
    /// values, messages are arrays, maps are arrays of keys and values.
    pub(crate) fn receive(&mut self) -> io::Result<Value> {
        self.value(MAX_DEPTH)
    }

    /// As [`Self::receive`]. If the answer is an array, calls `early` with its first value before
    /// the others are read.
    pub(crate) fn receive_early(
        &mut self,
        early: impl FnOnce(&mut Self, &Value) -> io::Result<()>,
    ) -> io::Result<Value> {
        let (from, to) = self.line()?;
        let count = match self.stream.input[from..to].split_first() {
            Some((b'*', count)) => number(count)?,
            _ => 0,
        };
        if count < 1 {
            // It is in the buffer until more is read.
            self.start = from;
            return self.receive();
        }
        let mut values = vec![self.value(MAX_DEPTH - 1)?];
        early(self, &values[0])?;
        for _ in 1..count {
            values.push(self.value(MAX_DEPTH - 1)?);
        }
        Ok(Value::Array(values))
    }

    fn value(&mut self, depth: u32) -> io::Result<Value> {
        let (from, to) = self.line()?;
        let (kind, text) =
            self.stream.input[from..to].split_first().ok_or_else(|| unexpected("an empty line"))?;
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
                let depth =
                    depth.checked_sub(1).ok_or_else(|| unexpected("an answer that is nested too deep"))?;
                let mut values = Vec::with_capacity(count.min(MAX_RESERVED));
                for _ in 0..count {
                    values.push(self.value(depth)?);
                }
                Ok(Value::Array(values))
            }
            b'_' => Ok(Value::Nil),
            b'+' if text == b"OK" => Ok(Value::Okay),
            b'+' | b'-' => redis::parse_redis_value(&self.stream.input[from..to + 2])
                .map_err(|error| unexpected(&error.to_string())),
            _ => Err(unexpected("an answer that is not RESP")),
        }
    }

    fn bulk(&mut self, length: i64) -> io::Result<Value> {
        let Ok(length) = usize::try_from(length) else { return Ok(Value::Nil) };
        if length > MAX_TEXT {
            return Err(unexpected("a text longer than Redis has any"));
        }
        let mut text = Vec::with_capacity(length.min(1 << 20));
        while text.len() < length {
            if self.start == self.stream.input.len() {
                self.fill(self.read)?;
            }
            let take = (length - text.len()).min(self.stream.input.len() - self.start);
            text.extend_from_slice(&self.stream.input[self.start..self.start + take]);
            self.start += take;
        }
        let (from, to) = self.line()?;
        if from == to { Ok(Value::BulkString(text)) } else { Err(unexpected("a text without an end")) }
    }

    /// The range of the next line in the buffer, without its end. It stays valid until more is
    /// read.
    fn line(&mut self) -> io::Result<(usize, usize)> {
        let mut searched = 0;
        loop {
            let had = &self.stream.input[self.start..];
            if let Some(at) = had[searched..].iter().position(|byte| *byte == b'\n') {
                let line = had[..searched + at]
                    .strip_suffix(b"\r")
                    .ok_or_else(|| unexpected("a line without an end"))?;
                let (from, to) = (self.start, self.start + line.len());
                self.start = to + 2;
                return Ok((from, to));
            }
            searched = had.len();
            if searched > MAX_LINE {
                return Err(unexpected("a line without an end"));
            }
            self.fill(self.read)?;
        }
    }

    /// Waits for more bytes, after those that are not consumed yet.
    fn fill(&mut self, deadline: Deadline) -> io::Result<()> {
        self.stream.input.advance(std::mem::take(&mut self.start));
        self.stream.fill(deadline)
    }
}

fn number(text: &[u8]) -> io::Result<i64> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| unexpected("a number that is none"))
}

fn unexpected(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the server sent {what}"))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
        thread,
    };

    use super::*;

    /// What is read of `sent`, which comes in pieces.
    fn read(sent: &'static [&'static [u8]]) -> io::Result<Value> {
        let (ours, mut theirs) = UnixStream::pair()?;
        let mut wire = Wire::new(ours.into(), Deadline::Idle(Duration::from_mins(1)));
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
    fn a_request_is_sent_before_an_answer_is_complete() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::new(ours.into(), Deadline::Idle(Duration::from_mins(1)));
        let server = thread::spawn(move || {
            theirs.write_all(b"*2\r\n$1\r\n7\r\n*2\r\n$1\r\na\r\n").unwrap();
            let mut next = [0; 6];
            theirs.read_exact(&mut next).unwrap();
            theirs.write_all(b"$1\r\nb\r\n-ERR gone\r\n*0\r\n").unwrap();
            next
        });
        let answer = wire.receive_early(|wire, first| {
            assert_eq!(*first, Value::BulkString(b"7".into()));
            wire.send(b"PING\r\n")
        });
        let Value::Array(values) = answer.unwrap() else { panic!() };
        assert_eq!((values.len(), server.join().unwrap()), (2, *b"PING\r\n"));
        let never = |_: &mut Wire, value: &Value| panic!("{value:?} is not the first of several");
        assert!(matches!(wire.receive_early(never).unwrap(), Value::ServerError(_)));
        assert_eq!(wire.receive_early(never).unwrap(), Value::Array(Vec::new()));
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
