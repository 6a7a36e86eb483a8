//! A request under way. It gets exactly one answer: the first one.
//!
//! What must stay true: a call is in [`Calls`] from before its handler starts until it is answered,
//! and its state decides which thread writes to the kernel. So the watchdog may answer a call whose
//! handler hangs, and the late answer of the handler is dropped.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, IoSlice},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    abi::{InHeader, OutHeader, opcode},
    callbacks::Callbacks,
    errno::{Errno, Result},
    memory::Room,
    reply::Answer,
};

/// Sends the answers of a transport.
pub(crate) trait Channel: fmt::Debug + Send + Sync {
    /// Sends one reply or notification, whole.
    fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<()>;
    /// The calls that came over it.
    fn calls(&self) -> &Calls;
    /// Memory where the handler of a request may put the bytes of its answer, so that they need not
    /// be copied there later.
    fn room(&self) -> Option<Room> {
        None
    }
}

/// No reader runs it yet.
const WAITING: u8 = 0;
/// A reader runs it.
const RUNNING: u8 = 1;
/// The kernel has its answer.
const ANSWERED: u8 = 2;

/// The reader that runs it is in its handler, or none does yet.
const BUSY: u8 = 0;
/// The handler has returned. The answer may still come from another thread.
const FREE: u8 = 1;
/// The watchdog gave up the reader that is in its handler.
const ABANDONED: u8 = 2;

/// A request that the kernel waits for.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) unique: u64,
    pub(crate) opcode: u32,
    /// The thread that waits for it; 0 if it is not known.
    caller: u32,
    channel: Arc<dyn Channel>,
    started: Instant,
    /// For how long a call that must run waited for a reader, in milliseconds.
    waited: AtomicU64,
    state: AtomicU8,
    reader: AtomicU8,
    callbacks: Callbacks,
}

impl Call {
    /// Registers a request, before it is processed.
    pub(crate) fn begin(channel: Arc<dyn Channel>, header: &InHeader) -> Arc<Self> {
        let call = Arc::new(Self {
            unique: header.unique,
            opcode: header.opcode,
            caller: header.pid,
            channel,
            started: Instant::now(),
            waited: AtomicU64::new(0),
            state: AtomicU8::new(WAITING),
            reader: AtomicU8::new(BUSY),
            callbacks: Callbacks::default(),
        });
        let calls = call.channel.calls();
        calls.insert(&call);
        if let Some(underway) = calls.underway.get() {
            underway.began(call.unique);
        }
        call
    }

    /// Marks it as running; `false` if it was answered while it waited.
    pub(crate) fn run(&self) -> bool {
        if self.must_run() {
            self.waited.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        self.state.compare_exchange(WAITING, RUNNING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The handler has returned; `false` if the watchdog has given up this reader meanwhile.
    pub(crate) fn leave(&self) -> bool {
        self.reader.compare_exchange(BUSY, FREE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives up the reader that runs it, if there is one.
    fn abandon(&self) -> bool {
        self.reader.compare_exchange(BUSY, ABANDONED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// No caller waits for it any more. Interrupts its handler. If it has none yet, it is answered
    /// here.
    fn interrupt(&self) {
        self.callbacks.trigger();
        if !self.must_run() && self.run() {
            self.answer(Err::<(), _>(Errno::EINTR));
        }
    }

    /// Answers; `false` if it has an answer already.
    pub(crate) fn answer(&self, result: Result<impl Answer>) -> bool {
        let first = match result {
            Ok(answer) => answer.send(|body| self.finish(0, body) != ANSWERED),
            Err(errno) => self.finish(errno.wire(), &[]) != ANSWERED,
        };
        self.callbacks.clear();
        first
    }

    /// Answers unless that has been done, and says in which state it was.
    fn finish(&self, error: i32, body: &[&[u8]]) -> u8 {
        let before = self.state.swap(ANSWERED, Ordering::AcqRel);
        if before == ANSWERED {
            return before;
        }
        self.channel.calls().remove(self.unique);
        // ENOENT: the kernel dropped the request meanwhile. Other errors: the mount is gone.
        if let Err(why) = send(&*self.channel, self.unique, error, body)
            && !matches!(why.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ECONNABORTED))
        {
            tracing::error!(
                "the kernel refused the answer to FUSE operation {}, its caller gets an error: {why}",
                self.opcode
            );
        }
        if let Some(underway) = self.channel.calls().underway.get() {
            underway.answered(self.unique);
        }
        before
    }

    /// See [`Channel::room`].
    pub(crate) fn room(&self) -> Option<Room> {
        self.channel.room()
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.callbacks.is_set()
    }

    pub(crate) fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    /// Whether it takes longer than allowed. There is no limit for a wait for a lock, nor for a
    /// call that must run and waits for a free reader.
    fn is_late(&self, deadline: Duration) -> bool {
        let waits = self.state.load(Ordering::Acquire) == WAITING;
        if self.opcode == opcode::SETLKW || waits && self.must_run() {
            return false;
        }
        let waited = Duration::from_millis(self.waited.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(waited) >= deadline
    }

    /// Whether the kernel sends this request only once, to release something.
    fn must_run(&self) -> bool {
        matches!(self.opcode, opcode::FLUSH | opcode::RELEASE | opcode::RELEASEDIR)
    }
}

/// Sends a message with its header in front.
pub(crate) fn send(channel: &dyn Channel, unique: u64, error: i32, body: &[&[u8]]) -> io::Result<()> {
    let len = size_of::<OutHeader>() + body.iter().map(|piece| piece.len()).sum::<usize>();
    let header = OutHeader { len: len as u32, error, unique };
    let header = IoSlice::new(header.as_bytes());
    match *body {
        [] => channel.send(&[header]),
        [one] => channel.send(&[header, IoSlice::new(one)]),
        [one, two] => channel.send(&[header, IoSlice::new(one), IoSlice::new(two)]),
        _ => {
            let pieces = body.iter().map(|piece| IoSlice::new(piece));
            channel.send(&std::iter::once(header).chain(pieces).collect::<Vec<_>>())
        }
    }
}

/// Answers a malformed message, if it has the number of a request at all.
pub(crate) fn reject(channel: &dyn Channel, bytes: &[u8]) {
    let Ok((header, _)) = InHeader::read_from_prefix(bytes) else { return };
    if matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT) {
        return;
    }
    if let Err(why) = send(channel, header.unique, Errno::EIO.wire(), &[]) {
        tracing::error!("the kernel refused the answer to a malformed FUSE request: {why}");
    }
}

/// The answer to a request that may take long. It is given once, from any thread. If this is
/// dropped without an answer, the answer is EIO.
#[derive(Debug)]
pub struct Reply(pub(crate) Arc<Call>);

impl Reply {
    /// Success. `false` if the caller already got an error.
    pub fn ok(self) -> bool {
        self.result(Ok(()))
    }

    /// Failed.
    pub fn error(self, errno: Errno) {
        self.0.answer(Err::<(), _>(errno));
    }

    /// Answers with the result of an operation. `false` if the caller already got another answer.
    pub fn result(self, result: Result<()>) -> bool {
        self.0.answer(result)
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.0.answer(Err::<(), _>(Errno::EIO));
    }
}

const SHARDS: usize = 32;

/// Records, outside of the process, which requests are not answered yet: for kernels that do not
/// send them again to a successor.
pub trait Underway: fmt::Debug + Send + Sync {
    /// A request was read.
    fn began(&self, unique: u64);

    /// It was answered.
    fn answered(&self, unique: u64);
}

/// All calls that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    shards: [Mutex<FxHashMap<u64, Arc<Call>>>; SHARDS],
    pub(crate) underway: OnceLock<Arc<dyn Underway>>,
    early: Early,
}

/// Interrupts of calls that are not known: they came before the call, or after its answer.
#[derive(Debug, Default)]
struct Early {
    /// Whether `list` has any.
    any: AtomicBool,
    list: Mutex<VecDeque<(u64, Instant)>>,
}

/// A call becomes known in less time.
const EARLY: Duration = Duration::from_secs(20);
/// Most interrupts of unknown calls.
const EARLY_MAX: usize = 4096;

impl Early {
    fn add(&self, unique: u64) {
        let mut list = self.list.lock();
        while list.len() >= EARLY_MAX || list.front().is_some_and(|(_, came)| came.elapsed() > EARLY) {
            list.pop_front();
        }
        list.push_back((unique, Instant::now()));
        self.any.store(true, Ordering::SeqCst);
    }

    fn take(&self, unique: u64) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let mut list = self.list.lock();
        while list.front().is_some_and(|(_, came)| came.elapsed() > EARLY) {
            list.pop_front();
        }
        let at = list.iter().position(|(other, _)| *other == unique);
        at.map(|at| list.remove(at));
        self.any.store(!list.is_empty(), Ordering::SeqCst);
        at.is_some()
    }
}

impl Calls {
    fn shard(&self, unique: u64) -> &Mutex<FxHashMap<u64, Arc<Call>>> {
        // Numbers of the kernel are even: the lowest bit marks interrupts.
        &self.shards[(unique >> 1) as usize % SHARDS]
    }

    fn insert(&self, call: &Arc<Call>) {
        self.shard(call.unique).lock().insert(call.unique, Arc::clone(call));
        if self.early.take(call.unique) {
            call.interrupt();
        }
    }

    fn remove(&self, unique: u64) {
        // Dropped after the lock is: a call may own a callback that owns anything.
        let _call = self.shard(unique).lock().remove(&unique);
    }

    /// Interrupts a call; `false` if there is no such call (yet, or any more).
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        let call = self.shard(unique).lock().get(&unique).cloned();
        call.inspect(|call| call.interrupt()).is_some()
    }

    /// Interrupts a call, also if it becomes known later: for transports where the kernel does not
    /// send an interrupt again.
    pub(crate) fn interrupt_once(&self, unique: u64) {
        if !self.interrupt(unique) {
            self.early.add(unique);
            // It may have become known just before that.
            if self.interrupt(unique) {
                self.early.take(unique);
            }
        }
    }

    /// Interrupts calls that run for longer than `time`, and whose callers have a signal, as
    /// `has_signal` says.
    pub(crate) fn interrupt_late(&self, time: Duration, has_signal: impl Fn(u32) -> bool) {
        let late = |call: &Call| call.caller != 0 && !call.is_interrupted() && call.started.elapsed() >= time;
        for call in self.collect(late) {
            if has_signal(call.caller) {
                call.interrupt();
            }
        }
    }

    /// Whether a call runs that does not concern a lock. Calls for locks have no further effect if
    /// they run twice.
    pub(crate) fn any_at_work(&self) -> bool {
        let at_work = |call: &Call| {
            call.state.load(Ordering::Acquire) == RUNNING
                && !matches!(call.opcode, opcode::SETLK | opcode::SETLKW)
        };
        self.shards.iter().any(|shard| shard.lock().values().any(|call| at_work(call)))
    }

    /// Interrupts all calls.
    pub(crate) fn interrupt_all(&self) {
        self.collect(|_| true).iter().for_each(|call| call.interrupt());
    }

    /// Answers EIO to all calls older than `deadline`. Returns the number of handlers that are
    /// abandoned.
    pub(crate) fn expire(&self, deadline: Duration) -> usize {
        let mut abandoned = 0;
        for call in self.collect(|call| call.is_late(deadline)) {
            let before = call.finish(Errno::EIO.wire(), &[]);
            if before != ANSWERED {
                tracing::warn!(
                    "FUSE operation {} took over {deadline:?}, its caller got an I/O error",
                    call.opcode
                );
            }
            abandoned += usize::from(before == RUNNING && call.abandon());
            call.callbacks.trigger();
            call.callbacks.clear();
        }
        abandoned
    }

    fn collect(&self, wanted: impl Fn(&Call) -> bool) -> Vec<Arc<Call>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            found.extend(shard.lock().values().filter(|call| wanted(call)).cloned());
        }
        found
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::Interrupt;

    /// Keeps what was sent.
    #[derive(Debug, Default)]
    pub(crate) struct Sink {
        sent: Mutex<Vec<Vec<u8>>>,
        pub(crate) calls: Calls,
    }

    impl Channel for Sink {
        fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
            self.sent.lock().push(pieces.iter().flat_map(|piece| piece.to_vec()).collect());
            Ok(())
        }

        fn calls(&self) -> &Calls {
            &self.calls
        }
    }

    pub(crate) fn call(sink: &Arc<Sink>, unique: u64, opcode: u32) -> Arc<Call> {
        let header = InHeader { opcode, unique, ..InHeader::default() };
        Call::begin(Arc::clone(sink) as Arc<dyn Channel>, &header)
    }

    #[test]
    fn a_call_is_answered_once() {
        let sink = Arc::<Sink>::default();
        let call = call(&sink, 4, opcode::READ);
        assert!(call.answer(Ok(bytes::Bytes::from_static(b"data"))));
        assert!(!call.answer(Err::<(), _>(Errno::EIO)));
        drop(Reply(call));
        let sent = sink.sent.lock();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0], [&20_u32.to_ne_bytes()[..], &[0; 4], &4_u64.to_ne_bytes(), b"data"].concat());
    }

    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<u64>>);

    impl Underway for Kept {
        fn began(&self, unique: u64) {
            self.0.lock().push(unique);
        }

        fn answered(&self, unique: u64) {
            self.0.lock().retain(|kept| *kept != unique);
        }
    }

    #[test]
    fn what_is_not_answered_is_kept_for_a_successor() {
        let (sink, kept) = (Arc::<Sink>::default(), Arc::<Kept>::default());
        sink.calls.underway.set(Arc::clone(&kept) as _).expect("none before");
        let (one, two) = (call(&sink, 4, opcode::READ), call(&sink, 6, opcode::READ));
        assert_eq!(*kept.0.lock(), [4, 6]);
        one.answer(Err::<(), _>(Errno::EIO));
        assert_eq!(*kept.0.lock(), [6]);
        drop(Reply(two));
        assert_eq!(*kept.0.lock(), [0; 0]);
    }

    #[test]
    fn whoever_answers_too_late_hears_that_nobody_listened() {
        let sink = Arc::<Sink>::default();
        assert!(Reply(call(&sink, 2, opcode::SETLK)).ok());
        let late = call(&sink, 4, opcode::SETLK);
        assert!(late.run());
        sink.calls.expire(Duration::ZERO);
        assert!(!Reply(late).ok());
    }

    #[test]
    fn a_malformed_message_is_answered_if_somebody_waits() {
        let sink = Arc::<Sink>::default();
        let header = |opcode| InHeader { len: 999, opcode, unique: 6, ..InHeader::default() };
        for opcode in [opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT] {
            reject(&*sink, header(opcode).as_bytes());
        }
        reject(&*sink, &header(opcode::READ).as_bytes()[..39]);
        assert!(sink.sent.lock().is_empty());
        reject(&*sink, &[header(opcode::READ).as_bytes(), b"more"].concat());
        let answer = [&16_u32.to_ne_bytes()[..], &(-libc::EIO).to_ne_bytes(), &6_u64.to_ne_bytes()].concat();
        assert_eq!(*sink.sent.lock(), [answer]);
    }

    #[test]
    fn a_dropped_reply_is_an_error() {
        let sink = Arc::<Sink>::default();
        drop(Reply(call(&sink, 4, opcode::SETLKW)));
        assert_eq!(sink.sent.lock()[0][4..8], (-libc::EIO).to_ne_bytes());
    }

    #[test]
    fn what_is_no_errno_becomes_one() {
        let sink = Arc::<Sink>::default();
        for (unique, errno) in [(2, 0), (4, -5), (6, 512)] {
            call(&sink, unique, opcode::READ).answer(Err::<(), _>(Errno(errno)));
        }
        assert!(sink.sent.lock().iter().all(|reply| reply[4..8] == (-libc::EIO).to_ne_bytes()));
    }

    #[test]
    fn only_running_calls_are_abandoned_and_locks_never() {
        let sink = Arc::<Sink>::default();
        let (parked, running) = (call(&sink, 2, opcode::READ), call(&sink, 4, opcode::READ));
        let lock = call(&sink, 6, opcode::SETLKW);
        let handed_on = call(&sink, 8, opcode::SETLK);
        assert!(running.run() && lock.run() && handed_on.run());
        assert!(handed_on.leave(), "another thread will answer");
        let heard = Arc::new(AtomicUsize::new(0));
        let kept = Interrupt::new(&running).on_interrupt({
            let heard = Arc::clone(&heard);
            move || {
                heard.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(sink.calls.expire(Duration::from_hours(1)), 0);
        assert_eq!(sink.calls.expire(Duration::ZERO), 1, "its reader goes on by itself");
        assert!(!parked.run(), "it has its answer, nobody must run it");
        assert!(running.is_interrupted() && !lock.is_interrupted());
        assert_eq!(heard.load(Ordering::Relaxed), 1, "what it waits for is told");
        assert!(!running.leave() && lock.leave());
        assert_eq!(sink.sent.lock().len(), 3);
        drop(kept);
    }

    #[test]
    fn what_lets_go_of_something_is_run_in_any_case() {
        let sink = Arc::<Sink>::default();
        let flush = call(&sink, 2, opcode::FLUSH);
        assert!(sink.calls.interrupt(2));
        assert_eq!(sink.calls.expire(Duration::ZERO), 0);
        assert!(sink.sent.lock().is_empty() && flush.run());
        assert_eq!(sink.calls.expire(Duration::ZERO), 1, "it hangs");
    }

    #[test]
    fn interrupts_run_callbacks_once() {
        let sink = Arc::<Sink>::default();
        let count = Arc::new(AtomicUsize::new(0));
        let add = |count: &Arc<AtomicUsize>| {
            let count = Arc::clone(count);
            move || {
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        let call = call(&sink, 2, opcode::READ);
        assert!(call.run());
        let interrupt = Interrupt::new(&call);
        let kept = interrupt.on_interrupt(add(&count));
        drop(interrupt.on_interrupt(add(&count)));
        assert!(!sink.calls.interrupt(4), "no such call");
        assert!(sink.calls.interrupt(2) && sink.calls.interrupt(2));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let late = interrupt.on_interrupt(add(&count));
        assert_eq!(count.load(Ordering::Relaxed), 2, "it was interrupted already");
        drop((kept, late));
        call.answer(Ok(()));
        assert!(!sink.calls.interrupt(2), "it has been answered");
    }

    #[test]
    fn an_interrupted_call_that_nobody_runs_is_answered() {
        let sink = Arc::<Sink>::default();
        let call = call(&sink, 2, opcode::OPEN);
        assert!(sink.calls.interrupt(2));
        assert_eq!(sink.sent.lock()[0][4..8], (-libc::EINTR).to_ne_bytes());
        assert!(!call.run());
    }

    #[test]
    fn an_answered_call_lets_go_of_its_callbacks() {
        let sink = Arc::<Sink>::default();
        let call = call(&sink, 2, opcode::SETLKW);
        let token = Arc::new(());
        let (held, itself) = (Arc::clone(&token), Arc::clone(&call));
        let registration = Interrupt::new(&call).on_interrupt(move || drop((held, itself)));
        call.answer(Ok(()));
        assert_eq!(Arc::strong_count(&token), 1);
        drop(registration);
    }
}
