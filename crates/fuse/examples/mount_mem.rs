//! Mounts a volume whose metadata and data live in memory: `mount_mem MOUNTPOINT [OPTIONS]`.
//! Unmounting ends it.

use std::{env, error::Error, path::PathBuf, sync::Arc};

use sluice_data::{DataConfig, DataStore};
use sluice_fuse::{Config, MountOptions, Session, VolumeFs};
use sluice_meta::{Meta, Options, mem::MemEngine, schema::VolumeFormat};
use sluice_object::MemStore;
use sluice_types::{Clock, SystemClock};
use sluice_vfs::{MetaIndex, Vfs, VfsConfig};

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let mut args = env::args_os().skip(1);
    let mountpoint = PathBuf::from(args.next().ok_or("usage: mount_mem MOUNTPOINT [OPTIONS]")?);
    let mut options = MountOptions::new("sluice:memory", "sluice");
    options.allow_other = true;
    if let Some(more) = args.next() {
        options.apply(&more.to_string_lossy())?;
    }
    let engine = Arc::new(MemEngine::new());
    let format = VolumeFormat {
        name: "memory".into(),
        trash_days: env::var("TRASH_DAYS").ok().and_then(|days| days.parse().ok()).unwrap_or(0),
        enable_acl: env::var_os("ACL").is_some(),
        ..VolumeFormat::default()
    };
    Meta::format(engine.as_ref(), &format, SystemClock.now())?;
    let meta = Meta::open(engine, Options::default())?;
    let index = MetaIndex::new(meta);
    let store = Arc::new(MemStore::new());
    let data = DataStore::open(&DataConfig::default(), store, Arc::clone(&index) as _, None)?;
    let vfs = Vfs::new(index, data, VfsConfig { xattr: true, ..VfsConfig::default() });
    let fs = VolumeFs::new(Arc::clone(&vfs));
    let adapter = Arc::clone(&fs);
    let config = Config { features: fs.features(), read_ahead_kb: Some(1024), ..Config::default() };
    let session = Session::mount(fs, &mountpoint, &options, config)?;
    adapter.notify(session.handle().notifier());
    session.run()?;
    Ok(vfs.close(None)?)
}
