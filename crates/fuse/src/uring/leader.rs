//! The threads that serve the rings.
//!
//! What must stay true: a request that waits never stops its ring. What may wait is run by a
//! worker. If the leading thread of a ring waits nevertheless, another thread leads from then on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use super::{
    cpus,
    pace::{Kind, Pace},
    ring::{Next, Ring},
    slot::{Arrived, Slot, this_thread},
    workers::{Work, Workers},
};
use crate::{
    call::{Call, Channel},
    decode::Message,
    dispatch,
    errno::Errno,
    filesystem::FileSystem,
    init::Negotiated,
};

/// After a request that took this long, answers before it are passed on at once.
const LONG: Duration = Duration::from_micros(20);
/// Time between two looks at the leading threads, while they have requests.
const LOOK: Duration = Duration::from_millis(2);
/// A leading thread that runs, and does not wait, is replaced after so many looks.
const TRIES: u32 = 20;
/// After so many looks without a request, nobody looks until there is one.
const QUIET: u32 = 8;
/// Time between two looks of a thread that waits for its slots.
const RETIRED: Duration = Duration::from_secs(5);

/// What all threads of the rings share.
pub(crate) struct Core {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) negotiated: Negotiated,
    pub(crate) workers: Arc<Workers<Job>>,
    pub(crate) gone: AtomicBool,
    pace: Pace,
    threads: Mutex<usize>,
    ended: Condvar,
    /// Who looks at the leading threads, and whether it looks at the moment.
    looks: AtomicBool,
    looker: Mutex<Option<Thread>>,
    /// Threads that led once, and wait for their slots.
    retired: Mutex<Vec<Thread>>,
}

/// A request for a worker.
pub(crate) struct Job {
    core: Arc<Core>,
    ring: Arc<Ring>,
    slot: Arc<Slot>,
    call: Arc<Call>,
    arrived: Arrived,
    kind: Kind,
}

impl Work for Job {
    fn work(self) -> bool {
        let begun = self.core.pace.begin(self.kind, true);
        let started = Instant::now();
        let (ours, answered) = self.core.run(&self.slot, &self.call, &self.arrived);
        self.core.pace.end(begun, started.elapsed());
        if answered {
            self.ring.finish(self.slot.answered(self.call.unique));
        }
        ours
    }
}

impl Core {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, negotiated: Negotiated, workers: Arc<Workers<Job>>) -> Self {
        Self {
            fs,
            negotiated,
            workers,
            gone: AtomicBool::new(false),
            pace: Pace::new(),
            threads: Mutex::new(0),
            ended: Condvar::new(),
            looks: AtomicBool::new(false),
            looker: Mutex::new(None),
            retired: Mutex::default(),
        }
    }

    /// Starts a thread of the rings. It counts until it ends.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: String,
        run: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> std::io::Result<()> {
        let this = Arc::clone(self);
        let span = tracing::Span::current();
        *self.threads.lock() += 1;
        let spawned = thread::Builder::new().name(name).spawn(move || {
            let _span = span.enter();
            run(&this);
            this.thread_ended();
        });
        spawned.map(|_| ()).inspect_err(|_| self.thread_ended())
    }

    fn thread_ended(&self) {
        *self.threads.lock() -= 1;
        self.ended.notify_all();
    }

    /// Threads of the rings, without workers.
    pub(crate) fn threads(&self) -> usize {
        *self.threads.lock()
    }

    /// Waits until all threads of the rings have ended, or until `deadline`.
    pub(crate) fn wait_ended(&self, deadline: Instant) {
        let mut threads = self.threads.lock();
        while *threads > 0 && !self.ended.wait_until(&mut threads, deadline).timed_out() {}
    }

    /// Runs a request. Returns whether the watchdog did not give up on this thread meanwhile, and
    /// whether the slot is to be given to the kernel.
    fn run(&self, slot: &Slot, call: &Arc<Call>, arrived: &Arrived) -> (bool, bool) {
        if !slot.enter(call.unique) {
            return (true, false);
        }
        let mut ours = true;
        if call.run() {
            self.dispatch(call, arrived);
            ours = call.leave();
        }
        (ours, slot.leave(call.unique))
    }

    #[allow(unsafe_code)]
    fn dispatch(&self, call: &Arc<Call>, arrived: &Arrived) {
        // SAFETY: `run` has entered the slot, and leaves it later.
        let payload = unsafe { arrived.payload() };
        let message = Message::apart(arrived.header, &arrived.fixed, payload);
        let decoded =
            message.and_then(|message| Ok((message, message.operation(self.negotiated.setxattr_ext())?)));
        match decoded {
            Ok((message, operation)) => dispatch::dispatch(&*self.fs, call, &message, &operation),
            Err(why) => {
                tracing::error!("{why}");
                call.answer(Err::<(), _>(Errno::EIO));
            }
        }
    }

    /// Leads a ring until the mount is gone or another thread leads. `begun` hears whether the ring
    /// works.
    pub(crate) fn lead(self: &Arc<Self>, ring: &Arc<Ring>, begun: Option<Sender<std::io::Result<()>>>) {
        let me = this_thread();
        let before = cpus::pin(ring.cpu);
        let mut begun = begun;
        if let Some(sender) = &begun
            && let Err(why) = ring.begin(me)
        {
            let _ = sender.send(Err(why));
            return;
        }
        let deposed = loop {
            let next = ring.next(me);
            match (next, begun.take()) {
                (Next::Refused(why), Some(sender)) => {
                    let _ = sender.send(Err(why));
                    return;
                }
                (Next::Refused(why), None) => tracing::warn!("a FUSE ring does not get more slots: {why}"),
                (Next::Deposed, _) => break true,
                (Next::Gone, _) => break false,
                (Next::Nothing, None) if self.is_gone() => break false,
                (next, sender) => {
                    if let Some(sender) = sender {
                        let _ = sender.send(Ok(()));
                    }
                    self.handle(ring, me, next);
                }
            }
        };
        if deposed {
            if let Some(before) = before {
                let _ = rustix::thread::sched_setaffinity(None, &before);
            }
            self.retire(ring, me);
        }
    }

    /// Waits until all slots that this thread gave to the kernel have come back.
    fn retire(&self, ring: &Ring, me: u64) {
        self.retired.lock().push(thread::current());
        while !self.is_gone() && ring.owns(me) {
            thread::park_timeout(RETIRED);
        }
        self.retired.lock().retain(|thread| thread.id() != thread::current().id());
    }

    /// Handles what the ring has for its leading thread.
    fn handle(self: &Arc<Self>, ring: &Arc<Ring>, me: u64, next: Next) {
        match next {
            Next::Arrived(slot, arrived) => self.take(ring, me, slot, arrived),
            Next::Nothing => {
                if let Err(why) = ring.wait() {
                    tracing::error!("cannot wait for FUSE requests of CPU {}: {why}", ring.cpu);
                    thread::park_timeout(LOOK);
                }
            }
            Next::Refused(_) | Next::Deposed | Next::Gone => {}
        }
    }

    /// Runs a request, or has a worker run it.
    fn take(self: &Arc<Self>, ring: &Arc<Ring>, me: u64, slot: Arc<Slot>, arrived: Arrived) {
        let call = Call::begin(Arc::clone(&slot) as Arc<dyn Channel>, &arrived.header);
        let kind = Kind::new(call.opcode, arrived.data());
        if self.pace.may_wait(kind) {
            let (core, ring) = (Arc::clone(self), Arc::clone(ring));
            self.workers.push(Job { core, ring, slot, call, arrived, kind });
            return;
        }
        let begun = self.pace.begin(kind, false);
        let started = Instant::now();
        ring.runs();
        if !self.looks.load(Ordering::SeqCst) {
            self.look();
        }
        let (ours, answered) = self.run(&slot, &call, &arrived);
        let took = started.elapsed();
        let leads = ring.ran(me);
        self.pace.end(begun, took);
        if answered {
            ring.commit(slot.answered(call.unique), me);
        }
        if !leads {
            // This thread counted as a worker since another one leads.
            self.pace.waited(kind);
            if ours {
                self.workers.leave();
            }
        } else if took > LONG
            && let Err(why) = ring.submit()
        {
            tracing::error!("cannot answer FUSE requests of CPU {}: {why}", ring.cpu);
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Has the leading threads looked at.
    fn look(&self) {
        if !self.looks.swap(true, Ordering::SeqCst)
            && let Some(looker) = &*self.looker.lock()
        {
            looker.unpark();
        }
    }

    /// Ends the thread that looks.
    pub(crate) fn end(&self) {
        self.gone.store(true, Ordering::SeqCst);
        if let Some(looker) = &*self.looker.lock() {
            looker.unpark();
        }
        for thread in &*self.retired.lock() {
            thread.unpark();
        }
    }

    /// Looks at the leading threads until the mount is gone.
    pub(crate) fn supervise(self: &Arc<Self>, rings: &[Arc<Ring>]) {
        *self.looker.lock() = Some(thread::current());
        let mut seen: Vec<(u64, u32)> = rings.iter().map(|ring| (ring.run_count(), 0)).collect();
        let mut quiet = 0;
        while !self.is_gone() {
            if quiet < QUIET {
                thread::park_timeout(LOOK);
            } else {
                self.looks.store(false, Ordering::SeqCst);
                // A thread that began a request before that wakes nobody.
                if rings.iter().zip(&seen).all(|(ring, (seen, _))| ring.run_count() == *seen) {
                    thread::park();
                }
                self.looks.store(true, Ordering::SeqCst);
                quiet = 0;
            }
            quiet += 1;
            for (ring, (seen, times)) in rings.iter().zip(&mut seen) {
                let count = ring.run_count();
                *times = if count == *seen { *times + 1 } else { 0 };
                *seen = count;
                if *times == 0 || count % 2 == 1 {
                    quiet = 0;
                }
                if *times > 0 && count % 2 == 1 && (*times > TRIES || !ring.is_running()) {
                    self.replace(ring, count);
                }
            }
        }
    }

    /// Lets another thread lead a ring whose leading thread waits.
    fn replace(self: &Arc<Self>, ring: &Arc<Ring>, count: u64) {
        let led = Arc::clone(ring);
        let lead = move |core: &Arc<Self>| {
            if led.depose(count, this_thread()) {
                core.workers.join();
                core.lead(&led, None);
            }
        };
        if let Err(why) = self.spawn(format!("fuse-ring-{}", ring.cpu), lead) {
            tracing::error!("cannot start another thread for FUSE requests: {why}");
        }
    }
}
