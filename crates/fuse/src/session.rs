//! The session of a mount, from INIT until the mount ends.
//!
//! What must stay true: [`Session::run`] returns after the mount has ended, even if handlers still
//! hang. A mount is removed only by an unmount. If it ends otherwise, accesses fail with ENOTCONN.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use sluice_types::job;

use crate::{
    abi::opcode,
    call::{self, Call, Calls, Channel, Underway},
    connection::Connection,
    decode::Message,
    device::{Device, Received},
    errno::Errno,
    filesystem::FileSystem,
    init::{Config, Features, Negotiated},
    mount::{self, Mount},
    mount_error::MountError,
    notify::Notifier,
    options::MountOptions,
    readers::Readers,
    reply::Wire,
    unmount::unmount,
    uring::{Prepared, Rings, interrupt_late},
};

/// Most descriptors of one mount. They must fit into one message over a socket, with some to spare.
const DEVICES: usize = 128;

/// A mounted file system that is not served yet. If this is dropped, it is unmounted.
pub struct Session {
    fs: Arc<dyn FileSystem>,
    config: Config,
    negotiated: Negotiated,
    calls: Arc<Calls>,
    readers: Arc<Readers>,
    notifier: Notifier,
    mount: Mount,
    /// Rings that do not take requests yet.
    prepared: Option<Prepared>,
    rings: Arc<OnceLock<Rings>>,
    /// Whether another server served it before, and may have left requests unanswered.
    resumed: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("mount", &self.mount).finish_non_exhaustive()
    }
}

impl Session {
    /// Mounts `fs` on `mountpoint`, and negotiates with the kernel. A dead mount there is replaced,
    /// and the folder below is never visible.
    pub fn mount(
        fs: Arc<dyn FileSystem>,
        mountpoint: &Path,
        options: &MountOptions,
        config: Config,
    ) -> Result<Self, MountError> {
        let (mount, fd) = Mount::new(mountpoint, options)?;
        let calls = Arc::new(Calls::default());
        let device = Device::new(fd, Arc::clone(&calls));
        let device = Arc::new(device);
        let prepared = if options.io_uring { prepare(&config, &calls, &device) } else { None };
        let (negotiated, offered) =
            handshake(&*fs, &device, &config, prepared.is_some(), mount.mountpoint())?;
        if prepared.is_some() && !offered {
            not_through_rings("the kernel does not offer it");
        }
        let prepared = prepared.filter(|_| offered);
        if let Some(kib) = config.read_ahead_kb
            && let Err(why) = mount::set_read_ahead(mount.connection, kib)
        {
            tracing::info!("read-ahead stays at the kernel's default: {why}");
        }
        let notifier = Notifier::new(Arc::clone(&device) as Arc<dyn Channel>);
        let devices = clone_devices(device, config.idle_readers.clamp(2, DEVICES));
        let readers = Readers::new(Arc::clone(&fs), negotiated, Arc::clone(&calls), devices, &config);
        let rings = Arc::default();
        Ok(Self { fs, config, negotiated, calls, readers, notifier, mount, prepared, rings, resumed: false })
    }

    /// Takes over the mount of a server that has ended: `descriptors` and `connection` come from it
    /// ([`Session::descriptors`], [`Session::connection`]). Nothing is mounted or negotiated;
    /// [`FileSystem::init`] is called. The kernel sends requests that were under way again when
    /// [`Session::run`] begins, if it can.
    ///
    /// # Errors
    /// [`MountError::Serve`] without a descriptor; [`MountError::Handshake`] if `fs` refuses what
    /// was negotiated.
    pub fn resume(
        fs: Arc<dyn FileSystem>,
        connection: &Connection,
        descriptors: Vec<OwnedFd>,
        config: Config,
    ) -> Result<Self, MountError> {
        let (mountpoint, negotiated) = (connection.mountpoint(), connection.negotiated());
        let calls = Arc::new(Calls::default());
        let devices: Vec<_> =
            descriptors.into_iter().map(|fd| Arc::new(Device::new(fd, Arc::clone(&calls)))).collect();
        let Some(first) = devices.first() else {
            return Err(MountError::Serve(mountpoint, io::ErrorKind::InvalidInput.into()));
        };
        let notifier = Notifier::new(Arc::clone(first) as Arc<dyn Channel>);
        if let Err(errno) = fs.init(&negotiated) {
            return Err(MountError::Handshake(mountpoint, io::Error::from_raw_os_error(errno.0)));
        }
        let mount = Mount::taken_over(mountpoint, connection.device());
        let readers = Readers::new(Arc::clone(&fs), negotiated, Arc::clone(&calls), devices, &config);
        let (prepared, rings) = (None, Arc::default());
        Ok(Self { fs, config, negotiated, calls, readers, notifier, mount, prepared, rings, resumed: true })
    }

    /// Duplicates of all descriptors of the kernel's device. While a process holds them, requests
    /// that were read and not answered wait for a successor instead of failing.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        self.readers.devices().iter().map(|device| device.share()).collect()
    }

    /// What a successor needs besides the descriptors.
    pub fn connection(&self) -> Connection {
        Connection::new(self.mount.mountpoint(), self.mount.connection, &self.negotiated)
    }

    /// From now on, records in `underway` which requests are not answered: for kernels that do not
    /// send them again ([`Connection::can_resend`]).
    pub fn keep_underway(&self, underway: Arc<dyn Underway>) {
        let _ = self.calls.underway.set(underway);
    }

    /// Answers EIO to requests that the previous server read and did not answer, for kernels that
    /// do not send them again.
    pub fn refuse(&self, requests: &[u64]) {
        for unique in requests {
            // The kernel knows a request only on the descriptor where it was read, and it may have
            // been answered.
            for device in self.readers.devices() {
                let _ = call::send(&**device, *unique, Errno::EIO.wire(), &[]);
            }
            if let Some(underway) = self.calls.underway.get() {
                underway.answered(*unique);
            }
        }
    }

    /// What the kernel agreed to.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// A handle for other threads, to end the mount and to send notifications to the kernel.
    pub fn handle(&self) -> SessionHandle {
        SessionHandle {
            readers: Arc::clone(&self.readers),
            notifier: self.notifier.clone(),
            rings: Arc::clone(&self.rings),
            mountpoint: self.mount.mountpoint().into(),
            connection: self.mount.connection,
        }
    }

    /// Serves until it is unmounted or aborted. Operations that still run then are interrupted and
    /// waited for as long as [`Config::shutdown_timeout`] says.
    pub fn run(mut self) -> Result<(), MountError> {
        self.mount.keep();
        let mountpoint = self.mount.mountpoint().to_owned();
        let serve = |why| MountError::Serve(mountpoint.clone(), why);
        let (alive, ended) = mpsc::channel();
        let watchdog = match self.config.deadline {
            Some(deadline) => {
                Some(watch((&self.calls, &self.readers, &self.rings), deadline, ended).map_err(serve)?)
            }
            None => None,
        };
        // Before anything is read. Otherwise the kernel would also send again what this server has
        // read itself.
        if self.resumed
            && self.connection().can_resend()
            && let Err(why) = self.notifier.resend()
        {
            tracing::warn!("what was under way is not asked again: {why}");
        }
        self.start_rings();
        if !self.readers.start() {
            return Err(serve(io::ErrorKind::OutOfMemory.into()));
        }
        self.readers.wait_gone(None);
        if self.mount.is_left() {
            tracing::warn!(
                "{} was cut off: it answers with errors until it is unmounted",
                self.mount.mountpoint().display()
            );
        }
        self.calls.interrupt_all();
        let end = Instant::now() + self.config.shutdown_timeout;
        let mut left = self.readers.wait_ended(self.config.shutdown_timeout);
        if let Some(rings) = self.rings.get() {
            left += rings.stop(end.saturating_duration_since(Instant::now()));
        }
        if left > 0 {
            tracing::warn!(
                "{} has ended; {left} operations still hang and are left",
                self.mount.mountpoint().display()
            );
        }
        drop(alive);
        if let Some(watchdog) = watchdog {
            let _ = watchdog.join();
        }
        self.fs.destroy();
        Ok(())
    }
}

impl Session {
    /// Lets the rings take requests. Without them, requests come from the device.
    fn start_rings(&mut self) {
        let Some(prepared) = self.prepared.take() else { return };
        match prepared.start(Arc::clone(&self.fs), self.negotiated, &self.config) {
            Ok(rings) => {
                self.readers.beside_rings();
                let _ = self.rings.set(rings);
                tracing::info!("requests come through io_uring");
            }
            Err(why) => not_through_rings(&why.to_string()),
        }
    }
}

fn prepare(config: &Config, calls: &Arc<Calls>, device: &Device) -> Option<Prepared> {
    Prepared::new(config, calls, device.descriptor()).inspect_err(|why| not_through_rings(why)).ok()
}

fn not_through_rings(why: &str) {
    tracing::warn!("requests do not come through io_uring, but from /dev/fuse: {why}");
}

/// Answers EIO to operations that take longer than `deadline`, until the other end of `ended`
/// drops.
fn watch(
    (calls, readers, rings): (&Arc<Calls>, &Arc<Readers>, &Arc<OnceLock<Rings>>),
    deadline: Duration,
    ended: mpsc::Receiver<()>,
) -> io::Result<thread::JoinHandle<()>> {
    let tick = (deadline / 8).clamp(Duration::from_millis(10), Duration::from_secs(1));
    let (calls, readers, rings) = (Arc::clone(calls), Arc::clone(readers), Arc::clone(rings));
    let watch = job("fuse-watchdog", move || {
        while ended.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
            let given_up = calls.expire(deadline);
            match rings.get() {
                Some(rings) => {
                    rings.give_up(given_up);
                    interrupt_late(&calls);
                }
                None => readers.give_up(given_up),
            }
        }
    });
    thread::Builder::new().name("fuse-watchdog".into()).spawn(watch)
}

/// Reads INIT and answers it. Returns what was agreed on, and whether requests come through rings.
fn handshake(
    fs: &dyn FileSystem,
    device: &Arc<Device>,
    config: &Config,
    rings: bool,
    mountpoint: &Path,
) -> Result<(Negotiated, bool), MountError> {
    let failed = |why: io::Error| MountError::Handshake(mountpoint.into(), why);
    let mut buffer = vec![0; crate::abi::HEADER_ROOM * 4];
    let size = loop {
        match device.receive(&mut buffer) {
            Received::Request(size) => break size,
            Received::Nothing => {}
            Received::Gone => return Err(failed(io::ErrorKind::NotConnected.into())),
        }
    };
    let message = Message::parse(&buffer[..size]).map_err(|why| failed(io::Error::other(why)))?;
    if message.header.opcode != opcode::INIT {
        return Err(failed(io::Error::other("the kernel did not start with INIT")));
    }
    let call = Call::begin(Arc::clone(device) as Arc<dyn Channel>, &message.header);
    let mut config = config.clone();
    if rings {
        config.features = config.features.with(Features::OVER_IO_URING);
    }
    let negotiated = match Negotiated::agree(&message.init(), &config) {
        Ok(negotiated) => negotiated,
        Err((major, minor)) => {
            call.answer(Err::<(), _>(Errno(libc::EPROTO)));
            return Err(MountError::Protocol(major, minor));
        }
    };
    if let Err(errno) = fs.init(&negotiated) {
        call.answer(Err::<(), _>(errno));
        return Err(failed(io::Error::from_raw_os_error(errno.0)));
    }
    call.answer(Ok(Wire(negotiated.reply(&config))));
    Ok((negotiated, negotiated.features.has(Features::OVER_IO_URING)))
}

/// A descriptor for each of the first readers. Further readers share them. All readers share one if
/// the kernel gives no more.
fn clone_devices(first: Arc<Device>, count: usize) -> Vec<Arc<Device>> {
    let mut devices = vec![first];
    while devices.len() < count {
        match devices[0].duplicate() {
            Ok(device) => devices.push(Arc::new(device)),
            Err(why) => {
                tracing::info!("all FUSE threads share one descriptor: {why}");
                break;
            }
        }
    }
    devices
}

/// Ends a session from outside, and sends notifications to the kernel. Cheap to clone.
#[derive(Clone)]
pub struct SessionHandle {
    readers: Arc<Readers>,
    notifier: Notifier,
    rings: Arc<OnceLock<Rings>>,
    mountpoint: PathBuf,
    connection: u32,
}

impl std::fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionHandle").field("mountpoint", &self.mountpoint).finish_non_exhaustive()
    }
}

impl SessionHandle {
    /// Notifications to the kernel.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Where it is mounted, absolute.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Unmounts, if nothing uses it; then [`Session::run`] returns.
    ///
    /// # Errors
    /// [`MountError::Busy`] if something does.
    pub fn unmount(&self) -> Result<(), MountError> {
        if self.is_gone() { Ok(()) } else { unmount(&self.mountpoint, false) }
    }

    /// Ends it in any case: unmounts, lazily if it is in use. If it is still in use after
    /// `timeout`, it aborts the connection, so that waiting calls get an error. Unmounting writes
    /// back changes of shared mappings, and waits for that.
    pub fn shutdown(&self, timeout: Duration) -> Result<(), MountError> {
        match self.unmount() {
            Err(MountError::Busy(_)) => unmount(&self.mountpoint, true)?,
            // The mount was gone already.
            Err(_) if self.is_gone() => {}
            other => other?,
        }
        // Another mount name space may still have it, too.
        if !self.readers.wait_gone(Some(Instant::now() + timeout)) {
            self.abort().map_err(|why| MountError::Unmount(self.mountpoint.clone(), why))?;
        }
        Ok(())
    }

    /// Aborts the connection to the kernel: all waiting and later calls get an error.
    pub fn abort(&self) -> io::Result<()> {
        if self.is_gone() { Ok(()) } else { mount::abort(self.connection) }
    }

    /// Stops reading requests and waits until those that were read are done, so that another server
    /// can take over the mount ([`Session::resume`]). Requests that wait for a lock need not be
    /// done, because the kernel sends them again. Programs on the mount wait meanwhile. `false` if
    /// some were not done at `deadline`, or the mount is gone: then it reads again. A mount that
    /// [`uses_io_uring`](Self::uses_io_uring) cannot be paused.
    pub fn pause(&self, deadline: Instant) -> bool {
        if self.uses_io_uring() {
            return false;
        }
        let paused = self.readers.pause(deadline);
        if !paused {
            self.readers.proceed();
        }
        paused
    }

    /// Reads requests again.
    pub fn proceed(&self) {
        self.readers.proceed();
    }

    /// Threads that read and run requests.
    pub fn readers(&self) -> usize {
        self.readers.threads() + self.rings.get().map_or(0, Rings::threads)
    }

    /// Whether requests come through `io_uring`. This is known when [`Session::run`] has begun.
    pub fn uses_io_uring(&self) -> bool {
        self.rings.get().is_some()
    }

    /// Whether the mount has ended.
    pub fn is_gone(&self) -> bool {
        self.readers.wait_gone(Some(Instant::now()))
    }
}
