//! `sluice backup`: one backup of the metadata, for a mount that asks for it.
//!
//! While a database keeps a snapshot, it keeps old versions of records, and these slow down whoever
//! changes the records. So a volume whose engine has snapshots is first copied to a local file, as
//! fast as the database returns it. All other work comes after that, at the lowest priority. Where
//! there are no snapshots, the backup leaves the database to others for most of the time.
//!
//! What must stay true: an object gets its name only when the backup is complete. Files without
//! names hold it until then, so that nothing is left of a backup whose process is killed.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Seek, Write},
    os::fd::AsRawFd,
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Args;
use futures::TryStreamExt;
use rustix::process::Signal;
use sluice_dump::{DumpOptions, LocalCopy, Packing, dump_binary, dump_json, has_snapshots};
use sluice_meta::engine::Engine;
use sluice_object::ObjectStore;
use sluice_types::{Clock as _, Ino, SystemClock, Time};

use crate::{
    engines,
    flags::{BackupFormat, StoreFlags},
    rotation, temporary, volume,
};

/// Where backups are in the store.
const FOLDER: &str = "meta/";
/// Bytes written to a file, or read from it, at once.
const BUFFER: usize = 1 << 20;

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
        go_with_the_mount()?;
        let begin = SystemClock.now();
        let engine = engines::open(&self.meta_url)?;
        let format = volume::format_of(engine.as_ref())?;
        let config = self.store.config(&format)?;
        let file = self.write(&*engine)?;
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

    /// Writes the backup to a file.
    fn write(&self, engine: &dyn Engine) -> Result<File> {
        if has_snapshots(engine)? {
            match self.by_copy(engine) {
                Ok(file) => return Ok(file),
                Err(error) => tracing::warn!(
                    "the metadata could not be copied to {}; the backup is made without a copy, which slows down other \
                     clients for longer. If room is missing there, make room, or let TMPDIR name another folder: \
                     {error:#}",
                    temporary::folder().display()
                ),
            }
        }
        give_way();
        let options = self.options(true);
        packed(|out| {
            match self.format {
                BackupFormat::Json => dump_json(engine, out, &options, &|_| {})?,
                BackupFormat::Binary => dump_binary(engine, out, &options, &|_| {})?,
            };
            Ok(())
        })
    }

    /// Writes the backup to a file, by way of a copy.
    fn by_copy(&self, engine: &dyn Engine) -> Result<File> {
        match self.format {
            BackupFormat::Json => {
                let copy = LocalCopy::take(engine, &temporary::folder(), false)?;
                give_way();
                packed(|out| Ok(copy.dump_json(out, &self.options(true), &|_| {}).map(drop)?))
            }
            BackupFormat::Binary => {
                let copy = dump_binary(engine, buffered(nameless()?), &self.options(false), &|_| {})?;
                give_way();
                let mut copy = copy.into_inner().map_err(io::IntoInnerError::into_error)?;
                copy.rewind()?;
                let mut copy = BufReader::with_capacity(BUFFER, copy);
                packed(|out| Ok(io::copy(&mut copy, out).map(drop)?))
            }
        }
    }

    fn options(&self, throttled: bool) -> DumpOptions {
        let skip_trash = self.skip_trash;
        DumpOptions { root: Ino::ROOT, keep_secrets: false, skip_trash, threads: 1, throttled }
    }
}

/// A new file that holds what `write` writes, packed.
fn packed(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<File> {
    let mut packer = Packing::Gzip.pack(buffered(nameless()?))?;
    write(&mut packer)?;
    Ok(packer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?)
}

fn nameless() -> Result<File> {
    let folder = temporary::folder();
    let context = || format!("no file for the backup in {}; TMPDIR names a folder", folder.display());
    tempfile::tempfile_in(&folder).with_context(context)
}

fn buffered(file: File) -> BufWriter<File> {
    BufWriter::with_capacity(BUFFER, file)
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

/// Nothing is left of this process when the mount goes that started it.
fn go_with_the_mount() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // If memory is short, it goes, and not the mount.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}

/// Everything else comes first from now on.
fn give_way() {
    // What the kernel does for it on disks follows from this, too.
    let _ = rustix::process::setpriority_process(None, 19);
    // The kernel may divide the processors between sessions first (sched_autogroup_enabled), and
    // compares priorities only within each. A process that leads a group stays in its session.
    if rustix::process::setsid().is_ok() {
        let _ = std::fs::write("/proc/self/autogroup", "19");
    }
}

fn time(text: &str) -> Result<Time, String> {
    Time::from_utc(rotation::STAMP, text).ok_or_else(|| format!("{text} is no time as 2026-03-01-040506"))
}
