//! The binary protocol of `.control`: one request at a time, answered by progress items and one result.
//!
//! What must stay true: a request is answered exactly once, whatever it says; the work runs on a thread of its own, and
//! ends early if the file is closed.

mod requests;
mod tree;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_meta::Interrupt;
use sluice_types::{Caller, FsError, FsResult};

use self::requests::Request;
use crate::{internal::InternalHandle, vfs::Vfs};

/// Bytes of the header of a request: operation and length.
const HEADER: usize = 8;
/// Longest body of a request in bytes.
const MOST_BYTES: usize = 16 << 20;
/// Time between two progress items.
const TICK: Duration = Duration::from_millis(300);

const PROGRESS: u8 = 0xFE;
const JSON: u8 = 0xFF;

/// One open `.control`.
#[derive(Default)]
pub(crate) struct ControlHandle {
    stream: Mutex<Stream>,
    interrupt: Interrupt,
}

/// The request as it came in, and the answer behind it.
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

/// What a request answers in the end.
enum Answer {
    /// Nothing more than that it is done.
    Done,
    /// A text, in the form of the older `info`.
    Text(String),
    /// A value.
    Json(serde_json::Value),
}

/// How far a request has come: two numbers that mean something else for each, told every now and then.
pub(crate) struct Progress<'a> {
    control: &'a ControlHandle,
    numbers: [AtomicU64; 2],
    last: Mutex<Instant>,
}

impl ControlHandle {
    pub(crate) fn close(&self) {
        self.interrupt.set();
    }

    /// What there is of the answer; nothing yet is no end.
    pub(crate) fn read(&self, offset: u64, size: u32) -> Bytes {
        let stream = self.stream.lock();
        let from = (offset.saturating_sub(stream.base) as usize).min(stream.bytes.len());
        let to = from.saturating_add(size as usize).min(stream.bytes.len());
        Bytes::copy_from_slice(&stream.bytes[from..to])
    }

    /// Takes a piece of a request. Answers it once it is whole.
    fn take(&self, offset: u64, data: &[u8]) -> Option<FsResult<Request>> {
        let mut stream = self.stream.lock();
        match stream.state {
            State::Running => return None,
            State::Answered => *stream = Stream::default(),
            State::Reading => {}
        }
        if stream.bytes.is_empty() {
            stream.base = offset;
        }
        stream.bytes.extend_from_slice(data);
        let header = stream.bytes.first_chunk::<HEADER>()?;
        let op = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let body = &stream.bytes[HEADER..];
        if length > MOST_BYTES || body.len() > length {
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

    fn append(&self, bytes: &[u8]) {
        self.stream.lock().bytes.extend_from_slice(bytes);
    }

    fn finish(&self, answer: FsResult<Answer>) {
        let mut stream = self.stream.lock();
        match answer {
            Ok(Answer::Done) => stream.bytes.push(0),
            Ok(Answer::Text(text)) => {
                stream.bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
                stream.bytes.extend_from_slice(text.as_bytes());
            }
            Ok(Answer::Json(value)) => {
                let text = value.to_string();
                stream.bytes.push(JSON);
                stream.bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
                stream.bytes.extend_from_slice(text.as_bytes());
            }
            Err(error) => {
                // There is only room for the number.
                if let FsError::Io(story) = &error {
                    tracing::error!("{story}");
                }
                stream.bytes.push(error.errno() as u8);
            }
        }
        stream.state = State::Answered;
    }
}

impl<'a> Progress<'a> {
    fn new(control: &'a ControlHandle) -> Self {
        Self { control, numbers: Default::default(), last: Mutex::new(Instant::now()) }
    }

    /// Adds to both numbers.
    pub(crate) fn add(&self, first: u64, second: u64) {
        self.numbers[0].fetch_add(first, Ordering::Relaxed);
        self.numbers[1].fetch_add(second, Ordering::Relaxed);
        let mut last = self.last.lock();
        if last.elapsed() >= TICK {
            *last = Instant::now();
            drop(last);
            self.tell();
        }
    }

    /// Sets both numbers.
    pub(crate) fn set(&self, first: u64, second: u64) {
        self.numbers[0].store(first, Ordering::Relaxed);
        self.numbers[1].store(second, Ordering::Relaxed);
    }

    fn tell(&self) {
        let mut item = vec![PROGRESS];
        for number in &self.numbers {
            item.extend_from_slice(&number.load(Ordering::Relaxed).to_be_bytes());
        }
        self.control.append(&item);
    }

    /// Tells the last numbers, if there are any.
    fn end(&self) {
        if self.numbers.iter().any(|number| number.load(Ordering::Relaxed) > 0) {
            self.tell();
        }
    }
}

impl Vfs {
    /// Takes what a program wrote to `.control`.
    pub(crate) fn control(
        self: &Arc<Self>,
        caller: &Caller,
        handle: &Arc<InternalHandle>,
        offset: u64,
        data: &[u8],
    ) {
        let InternalHandle::Control(control) = &**handle else { return };
        let request = match control.take(offset, data) {
            None => return,
            Some(Err(error)) => return control.finish(Err(error)),
            Some(Ok(request)) => request,
        };
        // Of what is asked for here the kernel has checked nothing.
        let caller = Caller { admitted: false, ..caller.clone() };
        let (vfs, kept) = (Arc::clone(self), Arc::clone(handle));
        let work = move || {
            let InternalHandle::Control(control) = &*kept else { return };
            let progress = Progress::new(control);
            let answer = vfs.serve(&caller, &control.interrupt, request, &progress);
            progress.end();
            control.finish(answer);
        };
        if let Err(error) = thread::Builder::new().name("sluice-control".into()).spawn(work) {
            control.finish(Err(FsError::io(format_args!(
                "a thread for .control could not be started: {error}"
            ))));
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
    fn more_than_it_says_is_an_error() {
        let control = ControlHandle::default();
        let parsed = control.take(0, &[0, 0, 3, 0xEA, 0, 0, 0, 1, 1, 2]);
        assert!(matches!(parsed, Some(Err(FsError::Io(_)))));
    }
}
