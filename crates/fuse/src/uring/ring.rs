//! One ring: the requests of one CPU.
//!
//! What must stay true: only the leading thread gives commands to the ring and takes requests from
//! it. The kernel copies a request on the thread that gave it the slot. So such a thread must not
//! end before the ring does, or before another thread has given its slots to the kernel again.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::RawFd,
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::thread::gettid;
use zerocopy::IntoBytes;

use super::{
    finished::{Answered, Finished},
    slot::{Arrived, HEADER_BYTES, Slot},
};
use crate::{
    abi::{RingCommand, ring as command},
    call::Calls,
    memory::{HEADERS, Mapping},
};

/// Commands that a ring takes before they are submitted.
const COMMANDS: u32 = 128;
/// In the user data of a completion: the wake-up event.
const WAKE: u64 = u64::MAX;
/// In the user data of a completion: the first command of a slot.
const REGISTER: u64 = 1 << 32;

/// The ring of a CPU.
pub(crate) struct Ring {
    /// Number of the CPU.
    pub(crate) cpu: u16,
    io: IoUring<squeue::Entry128, cqueue::Entry>,
    state: Mutex<State>,
    finished: Arc<Finished>,
    payload: usize,
    slots: Vec<Arc<Slot>>,
    /// Odd while the leading thread runs a request.
    runs: AtomicU64,
    /// The number of the leading thread for the kernel.
    thread: AtomicI32,
}

struct State {
    leader: u64,
}

/// What a ring has for its leading thread.
pub(crate) enum Next {
    Arrived(Arc<Slot>, Arrived),
    Nothing,
    /// Another thread leads now.
    Deposed,
    /// The kernel does not take the first command of a slot.
    Refused(io::Error),
    /// The mount is gone.
    Gone,
}

impl Ring {
    /// A ring with `depth` slots for payloads of `payload` bytes. A ring cannot get more later:
    /// what waits for a slot in the kernel would not see them.
    pub(crate) fn new(cpu: u16, calls: &Arc<Calls>, payload: usize, depth: usize) -> io::Result<Self> {
        let depth = depth.max(1);
        let io = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_coop_taskrun()
            .setup_submit_all()
            .setup_cqsize((2 * depth as u32 + 2).next_power_of_two().max(2 * COMMANDS))
            .build(COMMANDS)?;
        let finished = Arc::new(Finished::new()?);
        let size = HEADERS + payload;
        let kernel = Arc::new(Mapping::new(depth * size)?);
        let handlers = Arc::new(kernel.again()?);
        let slot = |index: usize| {
            let [kernel, handler] = [&kernel, &handlers].map(|whole| whole.part(index * size, size));
            Slot::new(index as u32, kernel, handler, Arc::clone(&finished), Arc::clone(calls))
        };
        let slots = (0..depth).map(slot).collect();
        let state = Mutex::new(State { leader: 0 });
        let (runs, thread) = (AtomicU64::new(0), AtomicI32::new(0));
        Ok(Self { cpu, io, state, finished, payload, slots, runs, thread })
    }

    /// Which descriptor of the kernel's device the commands are for.
    pub(crate) fn attach(&self, device: RawFd) -> io::Result<()> {
        self.io.submitter().register_files(&[device])
    }

    /// Begins to take requests, with the calling thread as the leading one.
    pub(crate) fn begin(&self, me: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.leader = me;
        self.thread.store(gettid().as_raw_nonzero().get(), Ordering::SeqCst);
        self.watch()?;
        self.register(&self.slots, 0, me)
    }

    /// Makes the kernel refuse rings for this mount, so that all requests come from the device.
    pub(crate) fn renounce(&self) {
        let command = RingCommand { qid: u16::MAX, ..RingCommand::default() };
        let entry = entry(command::REGISTER, &command, REGISTER, None);
        let _state = self.state.lock();
        if let Err(why) = self.push(&entry).and_then(|()| self.submit()) {
            tracing::error!("the kernel still waits for FUSE rings: {why}");
        }
    }

    /// The next request.
    pub(crate) fn next(&self, me: u64) -> Next {
        let state = self.state.lock();
        if state.leader != me {
            return Next::Deposed;
        }
        for answered in self.finished.take() {
            self.commit_one(answered, me);
        }
        loop {
            // SAFETY: only the leader uses the queue, under the lock.
            let completion = unsafe { self.io.completion_shared() }.next();
            let Some(completion) = completion else { return Next::Nothing };
            let (data, result) = (completion.user_data(), completion.result());
            if data == WAKE {
                if !cqueue::more(completion.flags())
                    && let Err(why) = self.watch()
                {
                    tracing::error!("answers of other threads wait for the next request: {why}");
                }
                continue;
            }
            let index = data as u32;
            match -result {
                0 => {
                    let slot = Arc::clone(&self.slots[index as usize]);
                    let arrived = slot.arrived();
                    return Next::Arrived(slot, arrived);
                }
                libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV => return Next::Gone,
                error if data & REGISTER != 0 => {
                    return Next::Refused(io::Error::from_raw_os_error(error));
                }
                error => {
                    let why = io::Error::from_raw_os_error(error);
                    tracing::error!("the kernel refused an answer in a FUSE ring: {why}");
                    let slot = Arc::clone(&self.slots[index as usize]);
                    if let Err(why) = self.register(&[slot], index, me) {
                        tracing::error!("a FUSE ring has lost a slot: {why}");
                    }
                }
            }
        }
    }

    fn register(&self, slots: &[Arc<Slot>], first: u32, me: u64) -> io::Result<()> {
        let memory: Vec<_> = slots
            .iter()
            .map(|slot| {
                let address = slot.memory().address();
                [
                    libc::iovec { iov_base: address.cast(), iov_len: HEADER_BYTES },
                    libc::iovec { iov_base: address.wrapping_add(HEADERS).cast(), iov_len: self.payload },
                ]
            })
            .collect();
        let command = RingCommand { qid: self.cpu, ..RingCommand::default() };
        for (index, (slot, memory)) in slots.iter().zip(&memory).enumerate() {
            slot.set_owner(me);
            let data = REGISTER | u64::from(first + index as u32);
            self.push(&entry(command::REGISTER, &command, data, Some(memory)))?;
        }
        // The kernel reads `memory` now.
        self.submit()
    }

    /// Makes the kernel report writes to the wake-up event.
    fn watch(&self) -> io::Result<()> {
        let event = types::Fd(self.finished.event());
        let poll = opcode::PollAdd::new(event, libc::POLLIN as u32).multi(true).build().user_data(WAKE);
        self.push(&poll.into())
    }

    /// Gives a slot with an answer to the kernel at the next submission. If another thread leads
    /// now, that does it.
    pub(crate) fn commit(&self, answered: Answered, me: u64) {
        let state = self.state.lock();
        if state.leader == me {
            self.commit_one(answered, me);
        } else {
            drop(state);
            self.finished.add(answered);
        }
    }

    /// Has a slot with an answer given to the kernel by the leading thread.
    pub(crate) fn finish(&self, answered: Answered) {
        self.finished.add(answered);
    }

    fn commit_one(&self, answered: Answered, me: u64) {
        let command = RingCommand { commit_id: answered.unique, qid: self.cpu, ..RingCommand::default() };
        self.slots[answered.slot as usize].set_owner(me);
        let entry = entry(command::COMMIT_AND_FETCH, &command, u64::from(answered.slot), None);
        if let Err(why) = self.push(&entry) {
            tracing::error!("an answer in a FUSE ring does not reach the kernel: {why}");
        }
    }

    fn push(&self, entry: &squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: only the leader uses the queue, under the lock. What the commands point to is
            // the memory of slots, which lives as long as the ring, or is submitted before it ends.
            let pushed = unsafe { self.io.submission_shared().push(entry) };
            match pushed {
                Ok(()) => return Ok(()),
                Err(_) => self.submit()?,
            }
        }
    }

    /// Submits the commands.
    pub(crate) fn submit(&self) -> io::Result<()> {
        loop {
            match self.io.submit() {
                Ok(_) => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Submits the commands and waits for a request or an answer of another thread.
    pub(crate) fn wait(&self) -> io::Result<()> {
        if !self.finished.may_wait() {
            return Ok(());
        }
        let waited = self.io.submit_and_wait(1);
        self.finished.waited();
        match waited {
            Err(why) if !matches!(why.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {
                Err(why)
            }
            _ => Ok(()),
        }
    }

    /// Wakes the leading thread.
    pub(crate) fn wake(&self) {
        self.finished.wake();
    }

    /// The leading thread begins to run a request.
    pub(crate) fn runs(&self) {
        self.runs.fetch_add(1, Ordering::SeqCst);
    }

    /// The thread `me` has run a request; `false` if another one leads now.
    pub(crate) fn ran(&self, me: u64) -> bool {
        let state = self.state.lock();
        let leads = state.leader == me;
        if leads {
            self.runs.fetch_add(1, Ordering::SeqCst);
        }
        leads
    }

    /// How often the leading thread began and ended to run requests: odd while it runs one.
    pub(crate) fn run_count(&self) -> u64 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Whether the leading thread runs or could run, instead of waiting for something.
    pub(crate) fn is_running(&self) -> bool {
        let path = format!("/proc/self/task/{}/stat", self.thread.load(Ordering::SeqCst));
        // The state follows the name, which may contain anything.
        let state = |text: String| text.rsplit_once(") ").map(|(_, rest)| rest.starts_with('R'));
        std::fs::read_to_string(path).ok().and_then(state).unwrap_or(false)
    }

    /// Lets the thread `me` lead, if the leading one still runs what it ran at `count`.
    pub(crate) fn depose(&self, count: u64, me: u64) -> bool {
        let mut state = self.state.lock();
        let stuck = self.run_count() == count;
        if stuck {
            state.leader = me;
            self.thread.store(gettid().as_raw_nonzero().get(), Ordering::SeqCst);
            self.runs.fetch_add(1, Ordering::SeqCst);
            // The kernel reports wake-ups on the thread that asked for it.
            if let Err(why) = self.watch() {
                tracing::error!("answers of other threads wait for the next request: {why}");
            }
        }
        stuck
    }

    /// Whether a thread gave a slot to the kernel that has not come back.
    pub(crate) fn owns(&self, thread: u64) -> bool {
        self.slots.iter().any(|slot| slot.owner() == thread)
    }
}

/// A command for the first registered descriptor.
fn entry(kind: u32, command: &RingCommand, data: u64, memory: Option<&[libc::iovec; 2]>) -> squeue::Entry128 {
    /// Where `len` is in `struct io_uring_sqe`.
    const LEN: usize = 24;
    let mut bytes = [0; 80];
    bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
    let built = opcode::UringCmd80::new(types::Fixed(0), kind).cmd(bytes);
    let built = built.addr(memory.map(|memory| memory.as_ptr() as u64));
    let mut entry = built.build().user_data(data);
    if let Some(memory) = memory {
        let len = (memory.len() as u32).to_ne_bytes();
        let place = (&raw mut entry).cast::<u8>().wrapping_add(LEN);
        // SAFETY: an entry is a `struct io_uring_sqe` of 128 bytes.
        unsafe { place.copy_from_nonoverlapping(len.as_ptr(), len.len()) };
    }
    entry
}
