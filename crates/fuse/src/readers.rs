//! The threads that read requests and run them.
//!
//! What must stay true: somebody waits for the next request, whatever the others are blocked in. A
//! reader runs its request itself; the one that leaves nobody waiting first wakes or starts
//! another. At the limit, the last one runs nothing any more but sets requests aside for those that
//! become free, so that interrupts and the end of the mount are still noticed. The watchdog lifts
//! the limit by every reader that it has given up on.

use std::{
    collections::VecDeque,
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
    wake::Seat,
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
    /// Requests set aside, and how many, to be looked at without a lock.
    parked: Mutex<Parking>,
    parked_count: AtomicUsize,
    /// Readers that nobody needs at the moment, the one last busy on top.
    resting: Mutex<Vec<Arc<Resting>>>,
    /// Nobody reads for the time being.
    paused: AtomicBool,
    /// Where each reader is.
    seats: Mutex<Vec<Arc<Seat>>>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A request that waits for a reader.
struct Parked {
    call: Arc<Call>,
    bytes: Box<[u8]>,
}

/// Requests that were set aside.
#[derive(Default)]
struct Parking {
    queue: VecDeque<Parked>,
    /// What the large ones take.
    bytes: usize,
}

/// Memory that large requests which are set aside may take.
const PARKED_BYTES: usize = 64 << 20;
/// Requests up to this size are always set aside: their callers wait, so they are no more than
/// there are threads.
const SMALL: usize = 8 << 10;

impl Parking {
    /// Sets a request aside; `false` if that would take too much memory.
    fn add(&mut self, parked: Parked) -> bool {
        let size = parked.weight();
        if size > 0 && self.bytes + size > PARKED_BYTES {
            return false;
        }
        self.bytes += size;
        self.queue.push_back(parked);
        true
    }

    fn take(&mut self) -> Option<Parked> {
        let parked = self.queue.pop_front()?;
        self.bytes -= parked.weight();
        Some(parked)
    }
}

impl Parked {
    /// What it counts for.
    fn weight(&self) -> usize {
        if self.bytes.len() > SMALL { self.bytes.len() } else { 0 }
    }
}

/// How long a reader that is not needed rests before it ends.
const REST: Duration = Duration::from_secs(10);

/// A reader that rests.
struct Resting {
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
            parked: Mutex::default(),
            parked_count: AtomicUsize::new(0),
            resting: Mutex::default(),
            paused: AtomicBool::new(false),
            seats: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Starts the first readers; `false` if not even one can be.
    pub(crate) fn start(self: &Arc<Self>) -> bool {
        (0..self.idle_max).filter(|_| self.add()).count() > 0
    }

    /// Wakes or starts a reader; `false` if there are as many as may be.
    fn add(self: &Arc<Self>) -> bool {
        let resting = self.resting.lock().pop();
        if let Some(reader) = resting {
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
        match thread.spawn(move || {
            let seat = Arc::new(Seat::new());
            this.seats.lock().push(Arc::clone(&seat));
            this.serve(&device, &seat);
            this.seats.lock().retain(|other| !Arc::ptr_eq(other, &seat));
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
        for _ in 0..count.min(self.parked_count.load(Ordering::SeqCst)) {
            self.add();
        }
    }

    /// So many count no longer against the limit.
    fn leave(&self, count: usize) {
        let fewer = |live: usize| Some(live.saturating_sub(count));
        // It always changes it.
        let _ = self.live.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
    }

    /// A reader's life. It comes counted as idle and live.
    fn serve(self: &Arc<Self>, device: &Arc<Device>, seat: &Seat) {
        // Written to, so that its memory is there: where the kernel has to find some while it
        // copies a request, and the process is killed in that moment, it answers the request with
        // EIO instead of keeping it for a successor.
        let mut buffer = vec![1; self.negotiated.buffer_size()];
        loop {
            if self.paused.load(Ordering::SeqCst) {
                self.idle.fetch_sub(1, Ordering::SeqCst);
                self.leave(1);
                return;
            }
            if self.parked_count.load(Ordering::SeqCst) > 0 && !self.unpark() {
                return;
            }
            seat.reading();
            let received = if self.paused.load(Ordering::SeqCst) {
                Received::Nothing
            } else {
                device.receive(&mut buffer)
            };
            seat.busy();
            let size = match received {
                Received::Request(size) => size,
                Received::Nothing => continue,
                Received::Gone => break,
            };
            let last = self.idle.fetch_sub(1, Ordering::SeqCst) == 1 && !self.add();
            if !self.handle(device, &buffer[..size], last) {
                return;
            }
            if self.idle.fetch_add(1, Ordering::SeqCst) >= self.idle_max {
                self.idle.fetch_sub(1, Ordering::SeqCst);
                seat.rest(true);
                let needed = self.rest();
                seat.rest(false);
                if !needed {
                    self.leave(1);
                    return;
                }
            }
        }
        self.state.lock().gone = true;
        self.changed.notify_all();
        while let Some(reader) = self.resting.lock().pop() {
            reader.woken.store(true, Ordering::Release);
            reader.thread.unpark();
        }
    }

    /// Waits to be needed again, then counted as idle; `false` if that has not been so for long.
    /// The kernel hands requests to its waiting readers in turn, each with a cold cache; so only
    /// few wait there, and the others here.
    fn rest(&self) -> bool {
        let this = Arc::new(Resting { thread: thread::current(), woken: AtomicBool::new(false) });
        let end = Instant::now() + REST;
        {
            let state = self.state.lock();
            if state.gone {
                return false;
            }
            self.resting.lock().push(Arc::clone(&this));
        }
        while !this.woken.load(Ordering::Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let mut resting = self.resting.lock();
                if let Some(at) = resting.iter().position(|other| Arc::ptr_eq(other, &this)) {
                    resting.remove(at);
                    return false;
                }
            }
            thread::park_timeout(left);
        }
        true
    }

    /// Handles one request; `false` if the watchdog gave up on this reader meanwhile. The `last`
    /// reader sets aside what may block.
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
            return self.park(&call, bytes);
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

    /// Sets a request aside; where memory does not allow that, its caller gets ENOMEM. `false` if
    /// the watchdog gave up on this reader meanwhile.
    fn park(&self, call: &Arc<Call>, bytes: &[u8]) -> bool {
        let mut parked = self.parked.lock();
        if parked.add(Parked { call: Arc::clone(call), bytes: bytes.into() }) {
            self.parked_count.store(parked.queue.len(), Ordering::SeqCst);
            return true;
        }
        drop(parked);
        if !call.run() {
            return true;
        }
        call.answer(Err::<(), _>(Errno(libc::ENOMEM)));
        call.leave()
    }

    /// Runs what was set aside, as long as another reader waits for requests; `false` if the
    /// watchdog gave up on this reader meanwhile.
    ///
    /// Whoever is about to wait counts itself as idle first and looks here then, and whoever sets
    /// something aside looks here before it waits again: one of them sees the other.
    fn unpark(self: &Arc<Self>) -> bool {
        loop {
            if self.idle.fetch_sub(1, Ordering::SeqCst) == 1 && !self.add() {
                // Another may have come to the same end at the same time: the second of them sees
                // the first.
                if self.idle.fetch_add(1, Ordering::SeqCst) > 0
                    && self.parked_count.load(Ordering::SeqCst) > 0
                {
                    continue;
                }
                return true;
            }
            let next = {
                let mut parked = self.parked.lock();
                let next = parked.take();
                self.parked_count.store(parked.queue.len(), Ordering::SeqCst);
                next
            };
            let ours = next.as_ref().is_none_or(|Parked { call, bytes }| {
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

    /// Interrupts the call `unique`. If another thread has read it and not yet taken note of it,
    /// EAGAIN makes the kernel send the interrupt again; it takes that only where the call itself
    /// was read. If none takes it, the call has been answered meanwhile.
    fn interrupt(&self, device: &Arc<Device>, interrupt: u64, unique: u64) {
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

    /// Nobody reads any more, and what was read is done, but for what waits for a lock and what was
    /// set aside: both can be asked again. `false` if that is not so at `deadline`, or the mount is
    /// gone; then too nobody reads.
    pub(crate) fn pause(&self, deadline: Instant) -> bool {
        self.paused.store(true, Ordering::SeqCst);
        loop {
            let seats = self.seats.lock().clone();
            let stopped = seats.iter().filter(|seat| !seat.wake()).count() == 0;
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

    /// All readers, those that were given up and have not ended included.
    pub(crate) fn threads(&self) -> usize {
        self.state.lock().threads
    }

    /// Waits until the mount is gone, or until `deadline`; `true` if it is.
    pub(crate) fn wait_gone(&self, deadline: Option<Instant>) -> bool {
        self.wait(deadline, |state| state.gone)
    }

    /// Waits until all readers have ended; says how many have not after `grace`.
    pub(crate) fn wait_ended(&self, grace: Duration) -> usize {
        self.wait(Some(Instant::now() + grace), |state| state.threads == 0);
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
