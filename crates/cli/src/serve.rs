//! A volume, mounted and served until its end.
//!
//! What must stay true: however it ends, what was written is flushed before the process goes.

use std::{
    env,
    path::Path,
    process::{self, ExitCode},
    sync::{
        Arc, OnceLock,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use sluice_data::{DataConfig, DataStore};
use sluice_fuse::{Session, SessionHandle, VolumeFs};
use sluice_meta::{Ended, Meta};
use sluice_object::{ObjectStore, StoreConfig};
use sluice_vfs::{MetaIndex, Vfs, VfsConfig};

use crate::{background, flags::FuseFlags, volume};

/// How long what still uses a mount may do so after it was told to end.
const GRACE: Duration = Duration::from_secs(5);
/// Exit code when the volume is gone, as `JuiceFS` has it.
const VOLUME_GONE: u8 = 11;

/// Why a mount shall end.
enum End {
    Signal(i32),
    Volume,
}

/// What to serve, and how.
pub(crate) struct Serving<'a> {
    pub(crate) meta: Arc<Meta>,
    pub(crate) store: StoreConfig,
    pub(crate) check_storage: bool,
    pub(crate) data: DataConfig,
    pub(crate) vfs: VfsConfig,
    pub(crate) fuse: &'a FuseFlags,
    pub(crate) read_only: bool,
}

/// Mounts and serves until somebody unmounts, a signal comes or the volume is gone.
pub(crate) fn serve(serving: &Serving<'_>, mountpoint: &Path) -> Result<ExitCode> {
    // First, since threads inherit it.
    raise_priority();
    let (tell, told) = mpsc::channel();
    let ended = Arc::new(OnceLock::<Ended>::new());
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen to signals")?;
    let meta = Arc::clone(&serving.meta);
    let mut vfs_config = serving.vfs.clone();
    vfs_config.on_ended = Some(Arc::new({
        let (ended, tell) = (Arc::clone(&ended), tell.clone());
        move |why| {
            let _ = ended.set(why);
            let _ = tell.send(End::Volume);
        }
    }));
    let vfs = match open_vfs(serving, vfs_config) {
        Ok(vfs) => vfs,
        Err(error) => {
            let _ = meta.close();
            return Err(error);
        }
    };
    let session = match mount(serving, &vfs, mountpoint) {
        Ok(session) => session,
        Err(error) => {
            let _ = vfs.close(None);
            return Err(error);
        }
    };
    let handle = session.handle();
    thread::Builder::new().name("sluice-signals".into()).spawn(move || listen(signals, &tell))?;
    thread::Builder::new().name("sluice-end".into()).spawn({
        let vfs = Arc::clone(&vfs);
        move || end(&told, &handle, &vfs)
    })?;
    let name = vfs.meta().env().format().name.clone();
    tracing::info!("volume {name} is mounted on {}", mountpoint.display());
    background::ready();
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

fn open_vfs(serving: &Serving<'_>, config: VfsConfig) -> Result<Arc<Vfs>> {
    let store = sluice_object::open(&serving.store)?;
    let tried = volume::open_to_try(serving.store.clone())?;
    check_store(tried.as_ref(), &serving.meta.env().format().uuid, serving.check_storage)?;
    let index = MetaIndex::new(Arc::clone(&serving.meta));
    let data = DataStore::open(&serving.data, store, Arc::clone(&index) as _, None)?;
    Ok(Vfs::new(index, data, config))
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
            tokio::time::timeout(Duration::from_secs(10), store.get("juicefs_uuid", None)).await
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

fn mount(serving: &Serving<'_>, vfs: &Arc<Vfs>, mountpoint: &Path) -> Result<Session> {
    let fs = VolumeFs::new(Arc::clone(vfs));
    let name = vfs.meta().env().format().name.clone();
    let (mut options, config) = serving.fuse.mount_options(&name, fs.features())?;
    if serving.read_only {
        options.set_read_only(true);
    }
    let session = Session::mount(Arc::clone(&fs) as _, mountpoint, &options, config)?;
    fs.notify(session.handle().notifier());
    Ok(session)
}

fn listen(mut signals: Signals, tell: &mpsc::Sender<End>) {
    for signal in signals.forever() {
        if signal != SIGHUP && tell.send(End::Signal(signal)).is_err() {
            return;
        }
    }
}

/// Ends the mount when told to; told once more by a signal, it waits for nobody.
fn end(told: &Receiver<End>, handle: &SessionHandle, vfs: &Vfs) {
    let Ok(why) = told.recv() else { return };
    match why {
        End::Signal(signal) => {
            tracing::info!("signal {signal}: unmounting {}", handle.mountpoint().display());
        }
        // Nobody asked it to go: programs get errors there, and do not write into the folder below.
        End::Volume => {
            if let Err(error) = handle.abort() {
                tracing::error!(%error, "cannot cut the mount off, so the process ends");
                process::exit(VOLUME_GONE.into());
            }
            return;
        }
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
            if let Ok(End::Signal(_)) = told.recv_timeout(Duration::from_millis(100)) {
                tracing::warn!("a second signal: the mount is cut off");
                if let Err(error) = handle.abort() {
                    tracing::error!(%error, "cannot cut the mount off");
                    process::exit(1);
                }
            }
        }
    });
}

/// Whatever makes a server steadier, as far as it is permitted: descriptors, priority, and not to be the first that
/// goes when memory is short.
fn raise_priority() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    let _ = rustix::process::setpriority_process(None, -19);
    if env::var_os("JFS_NO_OOM_ADJUST").is_none() {
        let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    }
}
