//! The threads that read requests and run them.
//!
//! What must stay true: at least one reader waits for the next request, whatever blocks the others.
//! A reader runs its request itself. If no other reader waits then, it first wakes or starts one.
//! At the limit, the last reader queues requests instead of running them. Other readers run them
//! when they become free. So the last reader still receives interrupts and the end of the mount.
//! The watchdog raises the limit by one for every reader that it gives up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::{
    call::{self, Call, Calls, Channel},
    decode::{Malformed, Message, Operation},
    device::{Device, Received},
    dispatch,
    errno::Errno,
    filesystem::FileSystem,
    init::{Config, Negotiated},
    request_queue::{QueuedRequest, RequestQueue},
    wake::ReaderState,
};

/// All readers of one mount.
pub(crate) struct Readers {
    fs: Arc<dyn FileSystem>,
    negotiated: Negotiated,
    calls: Arc<Calls>,
    devices: Vec<Arc<Device>>,
    idle_max: usize,
    live_max: usize,
    /// Readers that wait for a request.
    idle: AtomicUsize,
    /// Readers that count against the limit: all but those given up.
    live: AtomicUsize,
    /// Queued requests, and their number, which can be read without a lock.
    queued: Mutex<RequestQueue>,
    queued_count: AtomicUsize,
    /// Readers that are not needed at the moment. The one last busy is on top.
    sleeping: Mutex<Vec<Arc<SleepingReader>>>,
    /// Whether reading is paused.
    paused: AtomicBool,
    /// Whether requests that need an answer come through rings.
    beside_rings: AtomicBool,
    /// The state of each reader.
    states: Mutex<Vec<Arc<ReaderState>>>,
    state: Mutex<State>,
    changed: Condvar,
}

/// How long an unneeded reader sleeps before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a reader beside rings lets the kernel collect forgotten inodes.
const COLLECT: Duration = Duration::from_millis(2);

/// A reader that sleeps.
struct SleepingReader {
    thread: Thread,
    woken: AtomicBool,
}

#[derive(Default)]
struct State {
    threads: usize,
    started: usize,
    gone: bool,
}

impl Readers {
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        negotiated: Negotiated,
        calls: Arc<Calls>,
        devices: Vec<Arc<Device>>,
        config: &Config,
    ) -> Arc<Self> {
        let idle_max = config.idle_readers.max(2);
        Arc::new(Self {
            fs,
            negotiated,
            calls,
            devices,
            idle_max,
            live_max: config.max_readers.max(idle_max),
            idle: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            queued: Mutex::default(),
            queued_count: AtomicUsize::new(0),
            sleeping: Mutex::default(),
            paused: AtomicBool::new(false),
            beside_rings: AtomicBool::new(false),
            states: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Starts the first readers; `false` if not even one can start.
    pub(crate) fn start(self: &Arc<Self>) -> bool {
        (0..self.idle_max).filter(|_| self.add()).count() > 0
    }

    /// Wakes or starts a reader; `false` if the limit is reached.
    fn add(self: &Arc<Self>) -> bool {
        let sleeping = self.sleeping.lock().pop();
        if let Some(reader) = sleeping {
            self.idle.fetch_add(1, Ordering::SeqCst);
            reader.woken.store(true, Ordering::Release);
            reader.thread.unpark();
            return true;
        }
        let room = |live| (live < self.live_max).then_some(live + 1);
        if self.live.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            return false;
        }
        let mut state = self.state.lock();
        self.idle.fetch_add(1, Ordering::AcqRel);
        let device = Arc::clone(&self.devices[state.started % self.devices.len()]);
        let this = Arc::clone(self);
        let thread = thread::Builder::new().name("fuse-reader".into());
        let span = tracing::Span::current();
        match thread.spawn(move || {
            // Once for all requests of the thread.
            let _span = span.enter();
            let reader = Arc::new(ReaderState::new());
            this.states.lock().push(Arc::clone(&reader));
            this.serve(&device, &reader);
            this.states.lock().retain(|other| !Arc::ptr_eq(other, &reader));
            this.state.lock().threads -= 1;
            this.changed.notify_all();
        }) {
            Ok(_) => {
                state.threads += 1;
                state.started += 1;
                true
            }
            Err(why) => {
                self.idle.fetch_sub(1, Ordering::AcqRel);
                self.leave(1);
                tracing::error!("cannot start another thread for FUSE requests: {why}");
                false
            }
        }
    }

    /// The watchdog gave up `count` readers: they are replaced, and end when their operations do.
    pub(crate) fn give_up(self: &Arc<Self>, count: usize) {
        self.leave(count);
        for _ in 0..count.min(self.queued_count.load(Ordering::SeqCst)) {
            self.add();
        }
    }

    /// This many readers no longer count against the limit.
    fn leave(&self, count: usize) {
        let fewer = |live: usize| Some(live.saturating_sub(count));
        // The update never fails.
        let _ = self.live.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
    }

    /// Runs a reader, which is already counted as idle and live.
    fn serve(self: &Arc<Self>, device: &Arc<Device>, reader: &ReaderState) {
        // Filled, so that the memory is present. If the kernel had to allocate a page while it
        // copies a request, and the process were killed at that moment, the kernel would answer EIO
        // instead of keeping the request for a successor.
        let mut buffer = vec![1; self.negotiated.buffer_size()];
        loop {
            if self.paused.load(Ordering::SeqCst) {
                self.idle.fetch_sub(1, Ordering::SeqCst);
                self.leave(1);
                return;
            }
            if self.queued_count.load(Ordering::SeqCst) > 0 && !self.run_queued() {
                return;
            }
            reader.reading();
            let received = if self.paused.load(Ordering::SeqCst) {
                Received::Nothing
            } else {
                device.receive(&mut buffer)
            };
            reader.busy();
            let size = match received {
                Received::Request(size) => size,
                Received::Nothing => continue,
                Received::Gone => break,
            };
            if self.beside_rings.load(Ordering::Relaxed) && self.forget(&buffer[..size]) {
                // Without a waiting reader, the kernel collects them, and wakes nobody for each.
                thread::sleep(COLLECT);
                continue;
            }
            let last = self.idle.fetch_sub(1, Ordering::SeqCst) == 1 && !self.add();
            if !self.handle(device, &buffer[..size], last) {
                return;
            }
            if self.idle.fetch_add(1, Ordering::SeqCst) >= self.idle_max {
                self.idle.fetch_sub(1, Ordering::SeqCst);
                reader.sleep(true);
                let needed = self.rest();
                reader.sleep(false);
                if !needed {
                    self.leave(1);
                    return;
                }
            }
        }
        self.state.lock().gone = true;
        self.changed.notify_all();
        while let Some(reader) = self.sleeping.lock().pop() {
            reader.woken.store(true, Ordering::Release);
            reader.thread.unpark();
        }
    }

    /// Handles a request that needs no answer; `false` if it is another one.
    fn forget(&self, bytes: &[u8]) -> bool {
        Message::parse(bytes).is_ok_and(|message| {
            let operation = message.operation(self.negotiated.setxattr_ext());
            operation.is_ok_and(|operation| dispatch::forget(&*self.fs, &message, &operation))
        })
    }

    /// From now on, only forgotten inodes, interrupts and the end of the mount come from the
    /// device.
    pub(crate) fn beside_rings(&self) {
        self.beside_rings.store(true, Ordering::Relaxed);
    }

    /// Sleeps until this reader is needed, and then counts it as idle; `false` if it was not needed
    /// for long. The kernel passes requests to its waiting readers in turn, each with a cold CPU
    /// cache. So only few wait there, and the others here.
    fn rest(&self) -> bool {
        let this = Arc::new(SleepingReader { thread: thread::current(), woken: AtomicBool::new(false) });
        let end = Instant::now() + IDLE_TIMEOUT;
        {
            let state = self.state.lock();
            if state.gone {
                return false;
            }
            self.sleeping.lock().push(Arc::clone(&this));
        }
        while !this.woken.load(Ordering::Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let mut sleeping = self.sleeping.lock();
                if let Some(at) = sleeping.iter().position(|other| Arc::ptr_eq(other, &this)) {
                    sleeping.remove(at);
                    return false;
                }
            }
            thread::park_timeout(left);
        }
        true
    }

    /// Handles one request; `false` if the watchdog gave up on this reader meanwhile. The `last`
    /// reader queues requests that may block.
    fn handle(&self, device: &Arc<Device>, bytes: &[u8], last: bool) -> bool {
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(why) => {
                tracing::error!("{why}");
                call::reject(&**device, bytes);
                return true;
            }
        };
        let operation = message.operation(self.negotiated.setxattr_ext());
        match &operation {
            Ok(Operation::Interrupt { unique }) => {
                self.interrupt(device, message.header.unique, *unique);
                return true;
            }
            Ok(operation) if dispatch::forget(&*self.fs, &message, operation) => return true,
            _ => {}
        }
        let call = Call::begin(Arc::clone(device) as Arc<dyn Channel>, &message.header);
        if last {
            return self.queue_request(&call, bytes);
        }
        self.run(&call, &message, operation)
    }

    /// Runs a request; `false` if the watchdog gave up on this reader meanwhile.
    fn run(
        &self,
        call: &Arc<Call>,
        message: &Message<'_>,
        operation: Result<Operation<'_>, Malformed>,
    ) -> bool {
        if !call.run() {
            return true;
        }
        match operation {
            Ok(operation) => dispatch::dispatch(&*self.fs, call, message, &operation),
            Err(why) => {
                tracing::error!("{why}");
                call.answer(Err::<(), _>(Errno::EIO));
            }
        }
        call.leave()
    }

    /// Queues a request. If memory does not allow that, its caller gets ENOMEM. `false` if the
    /// watchdog gave up on this reader meanwhile.
    fn queue_request(&self, call: &Arc<Call>, bytes: &[u8]) -> bool {
        let mut queued = self.queued.lock();
        if queued.add(QueuedRequest { call: Arc::clone(call), bytes: bytes.into() }) {
            self.queued_count.store(queued.len(), Ordering::SeqCst);
            return true;
        }
        drop(queued);
        if !call.run() {
            return true;
        }
        call.answer(Err::<(), _>(Errno(libc::ENOMEM)));
        call.leave()
    }

    /// Runs queued requests, as long as another reader waits for requests; `false` if the watchdog
    /// gave up on this reader meanwhile.
    ///
    /// A reader that is about to wait first counts itself as idle and then checks this queue. A
    /// reader that queues a request checks the queue before it waits again. So one of them sees the
    /// other.
    fn run_queued(self: &Arc<Self>) -> bool {
        loop {
            if self.idle.fetch_sub(1, Ordering::SeqCst) == 1 && !self.add() {
                // Another reader may have reached this point at the same time. The second of them
                // sees the first.
                if self.idle.fetch_add(1, Ordering::SeqCst) > 0
                    && self.queued_count.load(Ordering::SeqCst) > 0
                {
                    continue;
                }
                return true;
            }
            let next = {
                let mut queued = self.queued.lock();
                let next = queued.take();
                self.queued_count.store(queued.len(), Ordering::SeqCst);
                next
            };
            let ours = next.as_ref().is_none_or(|QueuedRequest { call, bytes }| {
                let Ok(message) = Message::parse(bytes) else {
                    call.answer(Err::<(), _>(Errno::EIO));
                    return true;
                };
                self.run(call, &message, message.operation(self.negotiated.setxattr_ext()))
            });
            if !ours {
                return false;
            }
            self.idle.fetch_add(1, Ordering::SeqCst);
            if next.is_none() {
                return true;
            }
        }
    }

    /// Interrupts the call `unique`. If another thread has read the call and not registered it yet,
    /// EAGAIN makes the kernel send the interrupt again. The kernel accepts EAGAIN only on the
    /// descriptor from which the call was read. If no descriptor accepts it, the call has been
    /// answered meanwhile. Of a call in a ring it accepts none.
    fn interrupt(&self, device: &Arc<Device>, interrupt: u64, unique: u64) {
        if self.beside_rings.load(Ordering::Relaxed) {
            return self.calls.interrupt_once(unique);
        }
        if self.calls.interrupt(unique) {
            return;
        }
        for device in std::iter::once(device).chain(&self.devices) {
            match call::send(&**device, interrupt, Errno::EAGAIN.wire(), &[]) {
                Err(why) if why.raw_os_error() == Some(libc::ENOENT) => {}
                _ => return,
            }
        }
    }

    /// Stops reading, and waits until all calls are done, except those that wait for a lock and
    /// those that are queued: the kernel can send both again. `false` if some are not done at
    /// `deadline`, or the mount is gone. Reading is stopped then, too.
    pub(crate) fn pause(&self, deadline: Instant) -> bool {
        self.paused.store(true, Ordering::SeqCst);
        loop {
            let states = self.states.lock().clone();
            let stopped = states.iter().filter(|reader| !reader.wake()).count() == 0;
            if stopped && !self.calls.any_at_work() {
                return !self.state.lock().gone;
            }
            if Instant::now() >= deadline || self.state.lock().gone {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reads again after [`Self::pause`].
    pub(crate) fn proceed(self: &Arc<Self>) {
        self.paused.store(false, Ordering::SeqCst);
        self.start();
    }

    /// Where requests are read.
    pub(crate) fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// All readers, including those that were given up and have not ended.
    pub(crate) fn threads(&self) -> usize {
        self.state.lock().threads
    }

    /// Waits until the mount is gone, or until `deadline`; `true` if it is.
    pub(crate) fn wait_gone(&self, deadline: Option<Instant>) -> bool {
        self.wait(deadline, |state| state.gone)
    }

    /// Waits until all readers have ended; says how many have not after `timeout`.
    pub(crate) fn wait_ended(&self, timeout: Duration) -> usize {
        self.wait(Some(Instant::now() + timeout), |state| state.threads == 0);
        self.state.lock().threads
    }

    fn wait(&self, deadline: Option<Instant>, done: impl Fn(&State) -> bool) -> bool {
        let mut state = self.state.lock();
        while !done(&state) {
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) => {
                    if self.changed.wait_until(&mut state, deadline).timed_out() {
                        return done(&state);
                    }
                }
            }
        }
        true
    }
}
