//! The transport over `io_uring`: a ring for each CPU, and a thread on that CPU.
//!
//! What must stay true: the kernel holds back all requests of a mount that agreed to rings, until
//! each ring takes some. If one of them fails at the start, the kernel is told so, and all requests
//! come from `/dev/fuse`. A request of a ring has no other way to its answer: if the process dies,
//! its caller waits until the connection is aborted.

mod cpus;
mod finished;
mod leader;
mod pace;
mod ring;
mod signals;
mod slot;
mod workers;

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use self::{leader::Core, ring::Ring, workers::Workers};
use crate::{
    abi,
    call::Calls,
    filesystem::FileSystem,
    init::{Config, Negotiated},
};

/// How long the start of all rings may take.
const START: Duration = Duration::from_secs(10);

/// Slots of all rings, and of one. What a slot has not held yet takes no memory.
const MOST: usize = 8192;
const LEAST: usize = 4;

/// Requests that run for longer are looked at.
const LATE: Duration = Duration::from_secs(1);

/// Rings that take no requests yet.
pub(crate) struct Prepared(Vec<Arc<Ring>>);

/// The rings of a mount.
pub(crate) struct Rings {
    core: Arc<Core>,
    rings: Vec<Arc<Ring>>,
}

/// Interrupts requests of rings whose callers have a signal that the kernel forgot to tell.
pub(crate) fn interrupt_late(calls: &Calls) {
    calls.interrupt_late(LATE, signals::has_signal);
}

impl Prepared {
    /// A ring for each CPU that the machine can have, for the mount that `device` belongs to. All
    /// that can fail early does so here: a kernel that has agreed to rings has to be told.
    ///
    /// # Errors
    /// The reason why that is not possible.
    pub(crate) fn new(config: &Config, calls: &Arc<Calls>, device: BorrowedFd<'_>) -> Result<Self, String> {
        cpus::switch_on()?;
        let count = cpus::possible().map_err(|why| format!("cannot count the CPUs: {why}"))?;
        let payload = payload(config.max_write);
        let depth = config.ring_depth.min(MOST / usize::from(count.max(1))).max(LEAST);
        let rings = (0..count).map(|cpu| {
            let ring = Ring::new(cpu, calls, payload, depth);
            let attached = ring.and_then(|ring| ring.attach(device.as_raw_fd()).map(|()| ring));
            attached.map(Arc::new).map_err(|why| format!("cannot set up an io_uring: {why}"))
        });
        Ok(Self(rings.collect::<Result<_, _>>()?))
    }

    /// Begins to take requests. If that fails, they come from the device, and the reason is
    /// returned.
    pub(crate) fn start(
        self,
        fs: Arc<dyn FileSystem>,
        negotiated: Negotiated,
        config: &Config,
    ) -> io::Result<Rings> {
        let core = Arc::new(Core::new(fs, negotiated, Workers::new(config.max_readers)));
        let rings = Rings { core, rings: self.0 };
        rings.start().inspect_err(|_| {
            if let Some(ring) = rings.rings.first() {
                ring.renounce();
            }
            rings.stop(Duration::from_secs(1));
        })?;
        Ok(rings)
    }
}

/// Bytes of the payload that the kernel wants for requests of at most `max_write` bytes.
fn payload(max_write: u32) -> usize {
    max_write.clamp(2 * abi::PAGE, u32::from(u16::MAX) * abi::PAGE).next_multiple_of(abi::PAGE) as usize
}

impl Rings {
    fn start(&self) -> io::Result<()> {
        let (sender, begun) = mpsc::channel();
        for ring in &self.rings {
            let (led, sender) = (Arc::clone(ring), sender.clone());
            let lead = move |core: &Arc<Core>| core.lead(&led, Some(sender));
            self.core.spawn(format!("fuse-ring-{}", ring.cpu), lead)?;
        }
        let end = Instant::now() + START;
        for _ in &self.rings {
            let left = end.saturating_duration_since(Instant::now());
            begun.recv_timeout(left).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        }
        let rings = self.rings.clone();
        self.core.spawn("fuse-rings".into(), move |core| core.supervise(&rings))
    }

    /// The mount is gone: ends all threads that run no request, and waits for them, but not longer
    /// than `timeout`. Returns how many have not ended.
    pub(crate) fn stop(&self, timeout: Duration) -> usize {
        let end = Instant::now() + timeout;
        self.core.end();
        for ring in &self.rings {
            ring.wake();
        }
        self.core.workers.end();
        self.core.wait_ended(end);
        while self.core.workers.threads() > 0 && Instant::now() < end {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.threads()
    }

    /// All threads.
    pub(crate) fn threads(&self) -> usize {
        self.core.threads() + self.core.workers.threads()
    }

    /// The watchdog gave up `count` threads that run requests.
    pub(crate) fn give_up(&self, count: usize) {
        self.core.workers.give_up(count);
    }
}
