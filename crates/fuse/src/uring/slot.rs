//! A slot of a ring: memory for one request and its answer.
//!
//! What must stay true: the kernel gets a slot back only when no handler reads or writes its
//! memory, or with new pages. The answer of the thread that runs the handler goes to the kernel
//! after the handler has returned.

#![allow(unsafe_code)]

use std::{
    cell::Cell,
    io::{self, IoSlice},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use zerocopy::{FromBytes, IntoBytes};

use super::finished::{Answered, Finished};
use crate::{
    abi::{InHeader, OutHeader, RingInOut},
    call::{Calls, Channel},
    errno::Errno,
    memory::{HEADERS, Mapping, Room},
};

/// Where the parts of the headers are.
const FIXED: usize = 128;
const IN_OUT: usize = 256;
/// Bytes of all headers.
pub(crate) const HEADER_BYTES: usize = 288;

/// One slot.
#[derive(Debug)]
pub(crate) struct Slot {
    index: u32,
    /// What the kernel uses.
    kernel: Mapping,
    state: Mutex<State>,
    finished: Arc<Finished>,
    calls: Arc<Calls>,
    /// The thread that gave it to the kernel.
    owner: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// What the handler uses: the same pages as `kernel`.
    handler: Arc<Mapping>,
    /// The request in it.
    unique: u64,
    phase: Phase,
    /// The thread that runs its handler; 0 for none.
    runner: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The kernel has it, or will get it next.
    Kernel,
    /// It holds a request that has no answer.
    Request,
    /// It holds an answer, and the handler has not returned.
    Answer,
}

/// A request that arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) header: InHeader,
    pub(crate) fixed: [u8; FIXED],
    handler: Arc<Mapping>,
    payload: usize,
}

impl Arrived {
    /// Bytes of the data of a READ or WRITE.
    pub(crate) fn data(&self) -> u32 {
        // `fh`, `offset` and then `size`.
        let size = self.fixed[16..20].first_chunk().copied().unwrap_or_default();
        u32::from_ne_bytes(size)
    }

    /// What follows the fixed part.
    ///
    /// # Safety
    /// Between [`Slot::enter`] and [`Slot::leave`] only.
    pub(crate) unsafe fn payload(&self) -> &[u8] {
        // SAFETY: between the two calls the kernel does not have these pages.
        unsafe { self.handler.bytes(HEADERS, self.payload) }
    }
}

/// A number for the calling thread.
pub(crate) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

impl Slot {
    /// A slot in memory that is mapped for the kernel and for handlers.
    pub(crate) fn new(
        index: u32,
        kernel: Mapping,
        handler: Mapping,
        finished: Arc<Finished>,
        calls: Arc<Calls>,
    ) -> Arc<Self> {
        let state = State { handler: Arc::new(handler), unique: 0, phase: Phase::Kernel, runner: 0 };
        let state = Mutex::new(state);
        Arc::new(Self { index, kernel, state, finished, calls, owner: AtomicU64::new(0) })
    }

    /// The memory that the kernel uses: the headers, and the payload from [`HEADERS`] on.
    pub(crate) fn memory(&self) -> &Mapping {
        &self.kernel
    }

    /// The thread that gave it to the kernel.
    pub(crate) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }

    pub(crate) fn set_owner(&self, owner: u64) {
        self.owner.store(owner, Ordering::Relaxed);
    }

    /// The kernel has put a request into it.
    pub(crate) fn arrived(&self) -> Arrived {
        let mut state = self.state.lock();
        let handler = Arc::clone(&state.handler);
        // SAFETY: the kernel has given the slot to this process, and no handler has it yet.
        let headers = unsafe { handler.bytes(0, HEADER_BYTES) };
        let mut fixed = [0; FIXED];
        fixed.copy_from_slice(&headers[FIXED..2 * FIXED]);
        let header = InHeader::read_from_prefix(headers).map_or_else(|_| InHeader::default(), |(h, _)| h);
        let sizes = RingInOut::read_from_prefix(&headers[IN_OUT..]).map_or(0, |(sizes, _)| sizes.payload_sz);
        let payload = (sizes as usize).min(self.size());
        state.unique = header.unique;
        state.phase = Phase::Request;
        state.runner = 0;
        drop(state);
        Arrived { header, fixed, handler, payload }
    }

    /// The calling thread begins to run the request; `false` if that was answered meanwhile.
    pub(crate) fn enter(&self, unique: u64) -> bool {
        let mut state = self.state.lock();
        let there = state.unique == unique && state.phase == Phase::Request;
        if there {
            state.runner = this_thread();
        }
        there
    }

    /// The handler has returned. Returns whether the caller must give the slot to the kernel.
    pub(crate) fn leave(&self, unique: u64) -> bool {
        let mut state = self.state.lock();
        if state.unique != unique || state.runner != this_thread() {
            return false;
        }
        state.runner = 0;
        let answered = state.phase == Phase::Answer;
        if answered {
            state.phase = Phase::Kernel;
        }
        answered
    }

    pub(crate) fn answered(&self, unique: u64) -> Answered {
        Answered { slot: self.index, unique }
    }

    /// Bytes of a payload.
    fn size(&self) -> usize {
        self.kernel.length() - HEADERS
    }

    /// Writes an answer into the memory. What the handler has put there itself is not copied.
    fn write(&self, handler: &Mapping, header: &OutHeader, body: &[IoSlice<'_>]) {
        let length: usize = body.iter().map(|piece| piece.len()).sum();
        if length > self.size() {
            let error = Errno::EIO.wire();
            return self.write(handler, &OutHeader { error, ..*header }, &[]);
        }
        // SAFETY: the slot holds a request that is answered just now, under its lock. The handler
        // either does this itself, or has returned, or uses other pages. It never uses the headers.
        unsafe {
            self.kernel.write(0, header.as_bytes());
            self.kernel.write(IN_OUT + PAYLOAD_SIZE, &(length as u32).to_ne_bytes());
            let mut at = HEADERS;
            for piece in body {
                if piece.as_ptr() != handler.address().wrapping_add(at) {
                    self.kernel.write(at, piece);
                }
                at += piece.len();
            }
        }
    }
}

/// Where the size of the payload is in a [`RingInOut`].
const PAYLOAD_SIZE: usize = 16;

impl Channel for Slot {
    fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let Some((header, body)) = pieces.split_first() else { return Ok(()) };
        let header = OutHeader::read_from_bytes(header).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut state = self.state.lock();
        if state.phase != Phase::Request || state.unique != header.unique {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.runner == this_thread() {
            self.write(&state.handler, &header, body);
            state.phase = Phase::Answer;
            return Ok(());
        }
        if state.runner != 0 {
            // The handler still runs: it keeps its pages.
            match self.kernel.renew() {
                Ok(handler) => state.handler = Arc::new(handler),
                Err(why) => {
                    tracing::error!("no memory to answer a FUSE request before its handler ends: {why}");
                    self.write(&state.handler, &header, &[]);
                    state.phase = Phase::Answer;
                    return Ok(());
                }
            }
            state.runner = 0;
        }
        self.write(&state.handler, &header, body);
        state.phase = Phase::Kernel;
        drop(state);
        self.finished.add(self.answered(header.unique));
        Ok(())
    }

    fn calls(&self) -> &Calls {
        &self.calls
    }

    fn room(&self) -> Option<Room> {
        let state = self.state.lock();
        // SAFETY: its runner asks, for a request without a payload.
        (state.runner == this_thread()).then(|| unsafe { Room::new(Arc::clone(&state.handler)) })
    }
}
