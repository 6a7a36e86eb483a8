//! The binary protocol of `.control`: one request at a time. The answer is a list of progress items
//! and one result.
//!
//! What must stay true: each request gets exactly one answer, even a malformed one. The work runs
//! on a thread of its own, and ends early if the file is closed. The memory and the threads of all
//! open `.control` files are bounded.

pub(crate) mod requests;
mod walks;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_meta::Interrupt;
use sluice_types::{Caller, FsError, FsResult};

use self::requests::{Request, longest};
pub(crate) use self::walks::Walks;

/// Bytes of the header of a request: operation and length.
const HEADER: usize = 8;
/// Most bytes of requests and answers that are kept for all open `.control` files of a mount.
const MAX_KEPT: usize = 64 << 20;
/// Most requests of a mount that run, or wait to run.
const MAX_REQUESTS: usize = 256;
/// Time between two progress items.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(300);

const PROGRESS: u8 = 0xFE;
const JSON: u8 = 0xFF;

/// The resources that the open `.control` files of a mount share.
#[derive(Default)]
pub(crate) struct ControlUse {
    /// Bytes.
    kept: AtomicUsize,
    requests: AtomicUsize,
    pub(crate) walks: Walks,
    /// Set at the end of the mount: ends the requests that go on after their file was closed.
    pub(crate) ended: Interrupt,
}

/// One open `.control`.
#[derive(Default)]
pub(crate) struct ControlHandle {
    stream: Mutex<Stream>,
    pub(crate) interrupt: Interrupt,
    pub(crate) all: Arc<ControlUse>,
}

/// A request that runs.
pub(crate) struct Running(Arc<ControlUse>);

impl Running {
    /// `None` if there are too many.
    pub(crate) fn begin(all: &Arc<ControlUse>) -> Option<Self> {
        let running = Self(Arc::clone(all));
        (all.requests.fetch_add(1, Ordering::Relaxed) < MAX_REQUESTS).then_some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The bytes of the request, followed by those of the answer.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    /// Offset in the file at which the request began.
    base: u64,
    state: State,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Reading,
    Running,
    Answered,
}

/// The result of a request.
pub(crate) enum Answer {
    /// Success, without a value.
    Done,
    /// A text, in the form of the older `info`.
    Text(String),
    /// A value.
    Json(serde_json::Value),
}

/// The caller of a request, how it is interrupted, and where its progress goes.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) progress: &'a Progress<'a>,
}

/// The progress of a request: two numbers, reported from time to time. Their meaning depends on the
/// request.
pub(crate) struct Progress<'a> {
    /// Where it is reported, if anybody waits.
    control: Option<&'a ControlHandle>,
    numbers: [AtomicU64; 2],
    last: Mutex<Instant>,
}

impl ControlHandle {
    pub(crate) fn new(all: &Arc<ControlUse>) -> Self {
        Self { all: Arc::clone(all), ..Self::default() }
    }

    pub(crate) fn close(&self) {
        self.interrupt.set();
        self.forget(&mut self.stream.lock());
    }

    /// Begins a new request, and drops all bytes of the previous one.
    fn forget(&self, stream: &mut Stream) {
        self.all.kept.fetch_sub(std::mem::take(stream).bytes.len(), Ordering::Relaxed);
    }

    /// Appends bytes to the stream. Returns whether there was room.
    fn keep(&self, stream: &mut Stream, bytes: &[u8]) -> bool {
        let fits = self.all.kept.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len() <= MAX_KEPT;
        if fits {
            stream.bytes.extend_from_slice(bytes);
        } else {
            self.all.kept.fetch_sub(bytes.len(), Ordering::Relaxed);
        }
        fits
    }

    /// The bytes of the answer that exist. An empty result does not mean that the answer has ended.
    pub(crate) fn read(&self, offset: u64, size: u32) -> Bytes {
        let stream = self.stream.lock();
        let from = (offset.saturating_sub(stream.base) as usize).min(stream.bytes.len());
        let to = from.saturating_add(size as usize).min(stream.bytes.len());
        Bytes::copy_from_slice(&stream.bytes[from..to])
    }

    /// Takes a part of a request. Returns the request once it is complete.
    pub(crate) fn take(&self, offset: u64, data: &[u8]) -> Option<FsResult<Request>> {
        let mut stream = self.stream.lock();
        match stream.state {
            State::Running => return None,
            State::Answered => self.forget(&mut stream),
            State::Reading => {}
        }
        if stream.bytes.is_empty() {
            stream.base = offset;
        }
        if !self.keep(&mut stream, data) {
            stream.state = State::Running;
            return Some(Err(FsError::NoSpace));
        }
        let header = stream.bytes.first_chunk::<HEADER>()?;
        let op = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let body = &stream.bytes[HEADER..];
        if length > longest(op) || body.len() > length {
            stream.state = State::Running;
            return Some(Err(FsError::io("a request to .control does not have the length it says")));
        }
        if body.len() < length {
            return None;
        }
        let request = Request::parse(op, body);
        stream.state = State::Running;
        Some(request)
    }

    /// Appends a progress item, if there is room.
    fn append(&self, bytes: &[u8]) {
        self.keep(&mut self.stream.lock(), bytes);
    }

    pub(crate) fn finish(&self, answer: FsResult<Answer>) {
        let bytes = match answer {
            Ok(Answer::Done) => vec![0],
            Ok(Answer::Text(text)) => [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat(),
            Ok(Answer::Json(value)) => {
                let text = value.to_string();
                [&[JSON][..], &(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
            }
            Err(error) => {
                // The protocol has only room for the error number.
                if let FsError::Io(reason) = &error {
                    tracing::error!("{reason}");
                }
                vec![error.errno() as u8]
            }
        };
        let mut stream = self.stream.lock();
        if !self.keep(&mut stream, &bytes) {
            // The waiting program gets at least the error.
            tracing::warn!("an answer of .control is too long to be kept");
            stream.bytes.push(FsError::TooBig.errno() as u8);
            self.all.kept.fetch_add(1, Ordering::Relaxed);
        }
        stream.state = State::Answered;
        // No program reads the answer any more.
        if self.interrupt.is_set() {
            self.forget(&mut stream);
        }
    }
}

impl<'a> Progress<'a> {
    /// Reported to `control`, if there is one.
    pub(crate) fn new(control: Option<&'a ControlHandle>) -> Self {
        Self { control, numbers: Default::default(), last: Mutex::new(Instant::now()) }
    }

    /// Adds to both numbers.
    pub(crate) fn add(&self, first: u64, second: u64) {
        self.numbers[0].fetch_add(first, Ordering::Relaxed);
        self.numbers[1].fetch_add(second, Ordering::Relaxed);
        let mut last = self.last.lock();
        if last.elapsed() >= PROGRESS_INTERVAL {
            *last = Instant::now();
            drop(last);
            self.report();
        }
    }

    /// Sets both numbers.
    pub(crate) fn set(&self, first: u64, second: u64) {
        self.numbers[0].store(first, Ordering::Relaxed);
        self.numbers[1].store(second, Ordering::Relaxed);
    }

    fn report(&self) {
        let Some(control) = self.control else { return };
        let mut item = vec![PROGRESS];
        for number in &self.numbers {
            item.extend_from_slice(&number.load(Ordering::Relaxed).to_be_bytes());
        }
        control.append(&item);
    }

    /// Reports the last numbers, if there are any.
    pub(crate) fn end(&self) {
        if self.numbers.iter().any(|number| number.load(Ordering::Relaxed) > 0) {
            self.report();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_may_come_in_pieces_and_its_answer_stands_behind_it() {
        let control = ControlHandle::default();
        let request = [0, 0, 0x27, 0x0F, 0, 0, 0, 2, 7, 7];
        for (at, byte) in request[..9].iter().enumerate() {
            assert!(control.take(100 + at as u64, &[*byte]).is_none());
        }
        assert!(control.take(109, &request[9..]).is_some_and(|parsed| parsed.is_err()), "unknown operation");
        control.finish(Err(FsError::Invalid));
        assert_eq!(control.read(110, 10)[..], [22]);
        assert_eq!(control.read(111, 10).len(), 0);
        assert!(control.take(111, &request).is_some(), "another request");
        assert_eq!(control.read(121, 10).len(), 0);
    }

    #[test]
    fn what_is_kept_in_memory_has_a_bound() {
        let all = Arc::<ControlUse>::default();
        let most = longest(9999);
        let long = vec![0; most];
        let head = [0, 0, 0x27, 0x0F, 0, 1, 0, 0];
        let handles: Vec<_> = (0..2 * MAX_KEPT / most).map(|_| ControlHandle::new(&all)).collect();
        let refused = handles.iter().filter(|control| {
            control.take(0, &head).is_some()
                || control.take(8, &long[1..]).is_some_and(|taken| taken.is_err())
        });
        assert!(refused.count() >= handles.len() / 2);
        assert!(all.kept.load(Ordering::Relaxed) <= MAX_KEPT);
        handles.iter().for_each(ControlHandle::close);
        assert_eq!(all.kept.load(Ordering::Relaxed), 0);
        let one = ControlHandle::new(&all);
        assert!(one.take(0, &head).is_none());
        let taken = one.take(8, &[&long[..], &[0]].concat());
        assert!(matches!(taken, Some(Err(FsError::Io(_)))), "longer than it says");
        one.finish(Err(FsError::NoSpace));
        // The answer comes after what was written.
        assert_eq!(one.read((head.len() + most + 1) as u64, 10)[..], [libc::ENOSPC as u8]);
        let two = ControlHandle::new(&all);
        assert!(two.take(0, &[0, 0, 0x27, 0x0F, 0, 1, 0, 1]).is_some_and(|taken| taken.is_err()), "too long");
        let paths = ControlHandle::new(&all);
        assert!(paths.take(0, &[0, 0, 3, 0xEC, 0, 1, 0, 1]).is_none(), "a list of paths may be longer");
    }

    #[test]
    fn more_than_it_says_is_an_error() {
        let control = ControlHandle::default();
        let parsed = control.take(0, &[0, 0, 3, 0xEA, 0, 0, 0, 1, 1, 2]);
        assert!(matches!(parsed, Some(Err(FsError::Io(_)))));
    }
}
