//! The threads that read requests and run them.
//!
//! What must stay true: somebody waits for the next request, whatever the others are blocked in. A reader runs its
//! request itself; the one that leaves nobody waiting first starts another, up to a limit. The watchdog lifts the
//! limit by every reader that it has given up on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::{
    call::{self, Call, Calls, Channel},
    decode::{Message, Operation},
    device::{Device, Received},
    dispatch,
    errno::Errno,
    filesystem::FileSystem,
    init::{Config, Negotiated},
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
    state: Mutex<State>,
    changed: Condvar,
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
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn start(self: &Arc<Self>) {
        for _ in 0..self.idle_max {
            self.add();
        }
    }

    /// Starts a reader unless there are enough.
    fn add(self: &Arc<Self>) {
        let room = |live| (live < self.live_max).then_some(live + 1);
        if self.live.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            return;
        }
        let mut state = self.state.lock();
        if state.gone {
            return;
        }
        self.idle.fetch_add(1, Ordering::AcqRel);
        let device = Arc::clone(&self.devices[state.started % self.devices.len()]);
        let this = Arc::clone(self);
        let thread = thread::Builder::new().name("fuse-reader".into());
        match thread.spawn(move || {
            this.serve(&device);
            this.state.lock().threads -= 1;
            this.changed.notify_all();
        }) {
            Ok(_) => {
                state.threads += 1;
                state.started += 1;
            }
            Err(why) => {
                self.idle.fetch_sub(1, Ordering::AcqRel);
                self.live.fetch_sub(1, Ordering::AcqRel);
                tracing::error!("cannot start another thread for FUSE requests: {why}");
            }
        }
    }

    /// The watchdog gave up `count` readers: they are replaced, and end when their operations do.
    pub(crate) fn give_up(self: &Arc<Self>, count: usize) {
        if count > 0 {
            self.live.fetch_sub(count, Ordering::AcqRel);
            if self.idle.load(Ordering::Acquire) == 0 {
                self.add();
            }
        }
    }

    /// A reader's life. It comes counted as idle and live.
    fn serve(self: &Arc<Self>, device: &Arc<Device>) {
        let mut buffer = vec![0; self.negotiated.buffer_size()];
        loop {
            let size = match device.receive(&mut buffer) {
                Received::Request(size) => size,
                Received::Nothing => continue,
                Received::Gone => break,
            };
            if self.idle.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.add();
            }
            if !self.handle(device, &buffer[..size]) {
                return;
            }
            if self.idle.fetch_add(1, Ordering::AcqRel) >= self.idle_max {
                self.idle.fetch_sub(1, Ordering::AcqRel);
                self.live.fetch_sub(1, Ordering::AcqRel);
                return;
            }
        }
        self.state.lock().gone = true;
        self.changed.notify_all();
    }

    /// Runs one request; `false` if the watchdog gave up on it.
    fn handle(&self, device: &Arc<Device>, bytes: &[u8]) -> bool {
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(why) => {
                tracing::error!("{why}");
                return true;
            }
        };
        match message.operation(self.negotiated.setxattr_ext()) {
            Ok(Operation::Interrupt { unique }) => {
                self.interrupt(device, message.header.unique, unique);
                true
            }
            Ok(mut operation) => {
                if dispatch::forget(&*self.fs, &message, &mut operation) {
                    return true;
                }
                let call = Call::begin(Arc::clone(device) as Arc<dyn Channel>, &message.header);
                dispatch::dispatch(&*self.fs, &call, &message, operation)
            }
            Err(why) => {
                tracing::error!("{why}");
                let call = Call::begin(Arc::clone(device) as Arc<dyn Channel>, &message.header);
                call.answer(Err::<(), _>(Errno::EIO))
            }
        }
    }

    /// Interrupts the call `unique`. If another thread has read it and not yet taken note of it, EAGAIN makes the
    /// kernel send the interrupt again; it takes that only where the call itself was read. If none takes it, the
    /// call has been answered meanwhile.
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
