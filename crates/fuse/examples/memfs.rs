//! Mounts a file system that lives in memory: `memfs MOUNTPOINT [OPTIONS]`. Ctrl-C ends it.

#[path = "../tests/memfs/mod.rs"]
mod memfs;

use std::{env, error::Error, path::PathBuf, time::Duration};

use memfs::{Behaviour, MemFs};
use sluice_fuse::{Config, MountOptions, Session};

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let mut args = env::args_os().skip(1);
    let mountpoint = PathBuf::from(args.next().ok_or("usage: memfs MOUNTPOINT [OPTIONS]")?);
    let mut options = MountOptions::new("memory", "memfs");
    if let Some(more) = args.next() {
        options.apply(&more.to_string_lossy())?;
    }
    let attr_ttl = env::var("ATTR_TTL").ok().and_then(|secs| secs.parse().ok()).unwrap_or(3600);
    let behaviour = Behaviour { attr_ttl: Duration::from_secs(attr_ttl), ..Behaviour::default() };
    let session = Session::mount(MemFs::new(behaviour), &mountpoint, &options, Config::default())?;
    println!("mounted: {:?}", session.negotiated());
    Ok(session.run()?)
}
