//! A volume, mounted and served until its end.
//!
//! What must stay true: all written data is stored before the process ends, however the mount ends.

use std::{
    env,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process::{self, ExitCode},
    sync::{
        Arc, OnceLock,
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use sluice_data::{DataConfig, DataStore};
use sluice_fuse::{Connection, Session, SessionHandle, VolumeFs};
use sluice_meta::{Ended, Meta};
use sluice_object::{ObjectStore, StoreConfig};
use sluice_types::job;
use sluice_vfs::{Journal, MetaIndex, PreviousState, Vfs, VfsConfig};

use crate::{
    backup::Backups,
    fixed::Fixed,
    flags::FuseFlags,
    group::CacheGroup,
    guardian::{GuardianSocket, Message},
    metrics::{self, Exporter},
    mount_process::{HANDED_OVER, VOLUME_GONE, raise_priority, steady},
    push::Pushes,
    volume,
};

/// How long what still uses a mount may do so after it was told to end.
const GRACE: Duration = Duration::from_secs(5);

/// Why a mount shall end.
enum End {
    /// Sent to this process.
    Signal(i32),
    /// Sent to its guardian.
    Asked,
    /// Another mount process shall go on, if all is stored within that time.
    HandOver(Duration),
    Volume,
}

/// A mount that another mount process had.
pub(crate) struct ResumedMount {
    pub(crate) connection: Connection,
    /// Of the kernel's device.
    pub(crate) devices: Vec<OwnedFd>,
    /// What it left to be known.
    pub(crate) past: PreviousState,
}

/// What to serve, and how.
pub(crate) struct Serving<'a> {
    pub(crate) meta: Arc<Meta>,
    pub(crate) store: StoreConfig,
    pub(crate) check_storage: bool,
    pub(crate) data: DataConfig,
    pub(crate) vfs: VfsConfig,
    pub(crate) fuse: &'a FuseFlags,
    /// Where metrics are shown, if they are.
    pub(crate) metrics: Option<Exporter>,
    /// Where metrics are sent, if they are.
    pub(crate) pushes: Option<Pushes>,
    /// How the metadata are backed up, if they are.
    pub(crate) backups: Option<Backups>,
    /// The clients with which the cache is shared, if it is.
    pub(crate) group: Option<Arc<CacheGroup>>,
    pub(crate) read_only: bool,
    /// What a successor cannot change.
    pub(crate) fixed: Fixed,
    /// The guardian.
    pub(crate) socket: &'static GuardianSocket,
    /// What is handed on to a successor beside the kernel's device.
    pub(crate) journal: Arc<Journal>,
}

/// Mounts, or takes up a mount, and serves until somebody unmounts, a signal comes or the volume is
/// gone.
pub(crate) fn serve(
    serving: &Serving<'_>,
    mountpoint: &Path,
    resumed: Option<ResumedMount>,
) -> Result<ExitCode> {
    // First, since threads inherit it.
    steady();
    raise_priority();
    let (sender, receiver) = mpsc::channel();
    let ended = Arc::new(OnceLock::<Ended>::new());
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen to signals")?;
    let meta = Arc::clone(&serving.meta);
    let mut vfs_config = serving.vfs.clone();
    vfs_config.on_ended = Some(Arc::new({
        let (ended, sender) = (Arc::clone(&ended), sender.clone());
        move |why| {
            let _ = ended.set(why);
            let _ = sender.send(End::Volume);
        }
    }));
    let fresh = resumed.is_none();
    let vfs = match open_vfs(serving, vfs_config, fresh) {
        Ok(vfs) => vfs,
        Err(error) => {
            // A session that was taken up is for the next one.
            if fresh {
                let _ = meta.close();
            }
            return Err(error);
        }
    };
    let session = match mount(serving, &vfs, mountpoint, resumed) {
        Ok(session) => session,
        Err(error) => {
            if fresh {
                let _ = vfs.close(None);
            }
            return Err(error);
        }
    };
    let (handle, socket) = (session.handle(), serving.socket);
    thread::Builder::new().name("sluice-signals".into()).spawn({
        let sender = sender.clone();
        job("sluice-signals", move || listen(signals, &sender))
    })?;
    thread::Builder::new().name("sluice-end".into()).spawn({
        let vfs = Arc::clone(&vfs);
        job("sluice-end", move || end(&receiver, &handle, &vfs, socket))
    })?;
    let name = vfs.meta().env().format().name.clone();
    ready(serving, &session).context("the guardian has ended")?;
    tracing::info!("volume {name} is mounted on {}", mountpoint.display());
    let obey = job("sluice-guardian", move || obey(socket, &sender));
    thread::Builder::new().name("sluice-guardian".into()).spawn(obey)?;
    if let Some(exporter) = &serving.metrics {
        exporter.start(&vfs);
    }
    if let Some(pushes) = &serving.pushes {
        pushes.start(&vfs);
    }
    if let Some(backups) = &serving.backups {
        backups.start(&meta);
    }
    let served = session.run();
    let closed = vfs.close(None);
    if let Some(why) = ended.get() {
        tracing::error!("the mount of {name} has ended: {why}");
        return Ok(ExitCode::from(VOLUME_GONE));
    }
    served?;
    closed.context("not everything that was written could be stored")?;
    tracing::info!("volume {name} is unmounted from {}", mountpoint.display());
    Ok(ExitCode::SUCCESS)
}

/// Gives the guardian what a successor needs.
fn ready(serving: &Serving<'_>, session: &Session) -> Result<()> {
    let devices = session.descriptors()?;
    let mut fds = vec![serving.journal.file().as_fd()];
    fds.extend(devices.iter().map(AsFd::as_fd));
    serving.socket.ready(session.connection(), serving.fixed.clone(), &fds)?;
    // Everything relative was made absolute before; the directory may be unmounted.
    let _ = env::set_current_dir("/");
    Ok(())
}

/// Does what the guardian says.
fn obey(socket: &GuardianSocket, sender: &mpsc::Sender<End>) {
    while let Ok(Some((message, _))) = socket.receive() {
        let receiver = match message {
            Message::End => sender.send(End::Asked),
            Message::HandOver(seconds) => sender.send(End::HandOver(Duration::from_secs(seconds))),
            _ => Ok(()),
        };
        if receiver.is_err() {
            return;
        }
    }
    tracing::warn!("the guardian has ended: if this process dies, so does the mount");
}

fn open_vfs(serving: &Serving<'_>, mut config: VfsConfig, check: bool) -> Result<Arc<Vfs>> {
    let tries = Arc::<sluice_object::layers::Stats>::default();
    let store = sluice_object::open_observed(&serving.store, Arc::clone(&tries))?;
    let more =
        [serving.backups.as_ref().map(Backups::metrics), serving.group.as_deref().map(CacheGroup::metrics)];
    let all = [Some(metrics::of_tries(tries))].into_iter().chain(more).flatten();
    config.metrics = Some(metrics::all(all.collect()));
    // A mount that is taken up waits for it instead.
    if check {
        let uuid = serving.meta.env().format().uuid.clone();
        try_store(&serving.store, &uuid, serving.check_storage)?;
    }
    let index = MetaIndex::new(Arc::clone(&serving.meta));
    let data = DataStore::open(&serving.data, store, Arc::clone(&index) as _, None)?;
    let vfs = Vfs::new(index, data, config);
    if let Some(group) = &serving.group {
        group.start(vfs.data(), check)?;
    }
    Ok(vfs)
}

/// Refuses a store that cannot serve the volume.
pub(crate) fn try_store(config: &StoreConfig, uuid: &str, thoroughly: bool) -> Result<()> {
    check_store(volume::open_to_try(config.clone())?.as_ref(), uuid, thoroughly)
}

/// Refuses a store that holds another volume, and if asked to, one that does not work.
fn check_store(store: &dyn ObjectStore, uuid: &str, thoroughly: bool) -> Result<()> {
    volume::runtime()?.block_on(async {
        if thoroughly {
            sluice_object::probe(store)
                .await
                .with_context(|| format!("{} does not work", store.describe()))?;
        }
        // Older volumes have none, and some stores refuse; neither is a reason to stop.
        if let Ok(Ok(found)) =
            tokio::time::timeout(Duration::from_secs(10), store.get(crate::volume::UUID_OBJECT, None)).await
            && found != uuid.as_bytes()
            && found.is_ascii()
        {
            anyhow::bail!(
                "{} holds the objects of another volume (UUID {}); correct --bucket, or the settings with \
                 `sluice config`",
                store.describe(),
                String::from_utf8_lossy(&found)
            );
        }
        Ok(())
    })
}

fn mount(
    serving: &Serving<'_>,
    vfs: &Arc<Vfs>,
    mountpoint: &Path,
    resumed: Option<ResumedMount>,
) -> Result<Session> {
    let fs = VolumeFs::new(Arc::clone(vfs));
    let name = vfs.meta().env().format().name.clone();
    let (mut options, config) = serving.fuse.mount_options(&name, fs.features())?;
    if serving.read_only {
        options.set_read_only(true);
    }
    let served = Arc::clone(&fs) as _;
    let Some(ResumedMount { connection, devices, past }) = resumed else {
        let session = Session::mount(served, mountpoint, &options, config)?;
        fs.notify(session.handle().notifier());
        keep_underway(&session, &serving.journal);
        return Ok(session);
    };
    let restored = vfs.restore(past)?;
    let session = Session::resume(served, &connection, devices, config)?;
    fs.notify(session.handle().notifier());
    keep_underway(&session, &serving.journal);
    session.refuse(&restored.underway);
    fs.forget_before(session.handle().notifier(), restored);
    Ok(session)
}

/// Has noted what a kernel that does not ask a successor again waits for.
fn keep_underway(session: &Session, journal: &Arc<Journal>) {
    if !session.connection().can_resend() {
        session.keep_underway(Arc::clone(journal) as _);
    }
}

fn listen(mut signals: Signals, sender: &mpsc::Sender<End>) {
    for signal in signals.forever() {
        if signal != SIGHUP && sender.send(End::Signal(signal)).is_err() {
            return;
        }
    }
}

/// Ends the mount when told to; told once more in the same way, it waits for nobody. A service
/// manager may tell both this process and its guardian.
fn end(receiver: &Receiver<End>, handle: &SessionHandle, vfs: &Arc<Vfs>, socket: &GuardianSocket) {
    let mut times = [0; 2];
    loop {
        match receiver.recv() {
            Err(_) => return,
            Ok(End::HandOver(timeout)) => {
                let why = hand_over(timeout, handle, vfs);
                tracing::error!("cannot hand over: {why:#}");
                let _ = socket.send(
                    &Message::Refused(format!("the former mount process cannot hand over: {why:#}")),
                    &[],
                );
                continue;
            }
            Ok(End::Signal(signal)) => {
                tracing::info!("signal {signal}: unmounting {}", handle.mountpoint().display());
                times[0] += 1;
            }
            Ok(End::Asked) => {
                tracing::info!("told to end: unmounting {}", handle.mountpoint().display());
                times[1] += 1;
            }
            // Nobody asked it to go: programs get errors there, and do not write into the folder
            // below.
            Ok(End::Volume) => {
                if let Err(error) = handle.abort() {
                    tracing::error!(%error, "cannot cut the mount off, so the process ends");
                    process::exit(VOLUME_GONE.into());
                }
                return;
            }
        }
        break;
    }
    thread::scope(|scope| {
        let ending = scope.spawn(|| {
            if let Err(error) = vfs.data().flush_all() {
                tracing::error!(%error, "not everything could be stored");
            }
            if let Err(error) = handle.shutdown(GRACE) {
                tracing::error!(%error, "cannot unmount");
            }
        });
        while !ending.is_finished() {
            match receiver.recv_timeout(Duration::from_millis(100)) {
                Ok(End::Signal(_)) => times[0] += 1,
                Ok(End::Asked) => times[1] += 1,
                _ => continue,
            }
            if times.contains(&2) {
                tracing::warn!("told a second time: the mount is cut off");
                if let Err(error) = handle.abort() {
                    tracing::error!(%error, "cannot cut the mount off");
                    process::exit(1);
                }
            }
        }
    });
}

/// Stores everything and ends this process without unmounting; returns only if that cannot be, with
/// the reason.
fn hand_over(timeout: Duration, handle: &SessionHandle, vfs: &Arc<Vfs>) -> anyhow::Error {
    let deadline = Instant::now() + timeout;
    let flush = |vfs: &Arc<Vfs>| {
        let vfs = Arc::clone(vfs);
        within(deadline, move || Ok(vfs.data().flush_all()?))
    };
    // Most of it while programs go on, so that they have little to wait for.
    if let Err(why) = flush(vfs) {
        return why;
    }
    if handle.uses_io_uring() {
        return anyhow::anyhow!("requests in a ring of io_uring cannot be handed to another process");
    }
    if !handle.pause(deadline) {
        return anyhow::anyhow!("requests that were under way did not end in time");
    }
    if let Err(why) = flush(vfs) {
        handle.proceed();
        return why;
    }
    // Nothing of it can be lost any more: what fails now the next one finds as after a crash.
    let vfs = Arc::clone(vfs);
    if let Err(why) = within(deadline, move || Ok(vfs.hand_over()?)) {
        tracing::warn!("{why:#}");
    }
    process::exit(HANDED_OVER.into())
}

/// Waits for `work` until `deadline`, no longer.
fn within(deadline: Instant, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name("sluice-flush".into())
        .spawn(job("sluice-flush", move || sender.send(work())))?;
    match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(done) => done.context("not everything can be stored"),
        Err(_) => bail!("not everything could be stored in time"),
    }
}
