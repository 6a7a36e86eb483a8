//! `sluice backup`: one backup of the metadata, for a mount that asks for it.
//!
//! What must stay true: an object gets its name only when the backup is complete.

use std::{
    io::{BufWriter, Write},
    os::fd::AsRawFd,
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Args;
use futures::TryStreamExt;
use rustix::process::Signal;
use sluice_dump::{DumpOptions, Packing, dump_binary, dump_json};
use sluice_object::ObjectStore;
use sluice_types::{Clock as _, Ino, SystemClock, Time};

use crate::{
    engines,
    flags::{BackupFormat, StoreFlags},
    rotation, volume,
};

/// Where backups are in the store.
const FOLDER: &str = "meta/";

/// Back up the metadata of a volume once, to its object store: mounts do it by themselves
#[derive(Args)]
#[command(hide = true, after_help = "Example:\n  sluice backup redis://localhost/1")]
pub(crate) struct Backup {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// The form
    #[arg(long, value_enum, default_value_t)]
    format: BackupFormat,
    /// Leave out the trash
    #[arg(long)]
    skip_trash: bool,
    /// The time that the name says, as YYYY-MM-DD-HHMMSS; now if none
    #[arg(long, value_parser = time)]
    time: Option<Time>,
    #[command(flatten)]
    store: StoreFlags,
}

impl Backup {
    pub(crate) fn run(self) -> Result<ExitCode> {
        give_way()?;
        let begin = SystemClock.now();
        let engine = engines::open(&self.meta_url)?;
        let format = volume::format_of(engine.as_ref())?;
        let config = self.store.config(&format)?;
        let options = DumpOptions {
            root: Ino::ROOT,
            keep_secrets: false,
            skip_trash: self.skip_trash,
            threads: 1,
            gentle: true,
        };
        // Without a name: nothing is left of it if this process is killed.
        let file = tempfile::tempfile().context("no file for the backup; TMPDIR names a folder")?;
        let mut packer = Packing::Gzip.pack(BufWriter::with_capacity(1 << 20, &file))?;
        match self.format {
            BackupFormat::Json => dump_json(&*engine, &mut packer, &options, &|_| {})?,
            BackupFormat::Binary => dump_binary(&*engine, &mut packer, &options, &|_| {})?,
        };
        packer.finish()?.flush()?;
        let size = file.metadata()?.len();
        let now = self.time.unwrap_or(begin);
        let name = rotation::name(now, self.format.suffix());
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let store = sluice_object::open(&config)?;
        volume::runtime()?.block_on(async {
            store.put_file(&format!("{FOLDER}{name}"), &path).await.context("the backup was not stored")?;
            let time = SystemClock.now().since(begin).as_secs_f64();
            tracing::info!("the metadata are backed up: {FOLDER}{name}, {size} bytes, {time:.1} s");
            // The backup is there all the same.
            if let Err(error) = rotate(store.as_ref(), self.format.suffix(), now).await {
                tracing::warn!("old backups of the metadata are not cleared away: {error:#}");
            }
            anyhow::Ok(())
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Deletes backups that are outdated.
async fn rotate(store: &dyn ObjectStore, suffix: &str, now: Time) -> Result<()> {
    let found: Vec<String> = store.list(FOLDER).map_ok(|object| object.key).try_collect().await?;
    let names: Vec<String> =
        found.iter().filter_map(|key| Some(key.strip_prefix(FOLDER)?.to_owned())).collect();
    for name in rotation::outdated(&names, suffix, now) {
        store.delete(&format!("{FOLDER}{name}")).await?;
    }
    Ok(())
}

/// Everything else comes first, and nothing is left of this process when the mount goes that
/// started it.
fn give_way() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // What the kernel does for it on disks follows from this, too.
    let _ = rustix::process::setpriority_process(None, 19);
    // If memory is short, it goes, and not the mount.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}

fn time(text: &str) -> Result<Time, String> {
    Time::from_utc(rotation::STAMP, text).ok_or_else(|| format!("{text} is no time as 2026-03-01-040506"))
}
