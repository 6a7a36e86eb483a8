//! `sluice umount`: unmounts a volume, and waits until all written data is stored.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::internal_file;

/// How long the serving process may take to end.
const TIMEOUT: Duration = Duration::from_mins(1);
/// How often is looked whether something has happened.
const PAUSE: Duration = Duration::from_millis(10);

/// Unmount a volume
#[derive(Args)]
#[command(after_help = "Examples:\n  sluice umount /mnt/vol\n  sluice umount --flush /mnt/vol")]
pub(crate) struct Umount {
    /// Where it is mounted
    mountpoint: PathBuf,
    /// Unmount although it is in use
    #[arg(short, long)]
    force: bool,
    /// Wait until staged blocks are uploaded
    #[arg(long)]
    flush: bool,
}

impl Umount {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mountpoint = std::path::absolute(&self.mountpoint)?;
        let mountpoint = fs::canonicalize(&mountpoint).unwrap_or(mountpoint);
        refuse_others(&mountpoint)?;
        if self.force && !self.flush {
            // Whoever serves it may not answer any more, so nobody is asked.
            sluice_fuse::unmount(&mountpoint, true)?;
            return Ok(ExitCode::SUCCESS);
        }
        if sluice_fuse::clear_dead(&mountpoint)? {
            return Ok(ExitCode::SUCCESS);
        }
        if self.flush {
            wait_for_staged(&mountpoint)?;
        }
        let process = process(&mountpoint);
        sluice_fuse::unmount(&mountpoint, self.force)?;
        match process {
            _ if self.force => {}
            Some(process) if !process.wait() => {
                tracing::warn!("process {} still stores what was written; it ends by itself", process.pid);
            }
            Some(_) => {}
            None => tracing::warn!(
                "whether all that was written is stored is not known: the mount does not tell you which process serves it"
            ),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The process that serves a mount. Process ids are given out again: the time of its start tells it
/// from others.
struct MountProcess {
    pid: u64,
    start: String,
}

impl MountProcess {
    fn wait(&self) -> bool {
        let deadline = Instant::now() + TIMEOUT;
        while start_of(self.pid).as_ref() == Some(&self.start) {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    }
}

/// Start time of a process that runs.
fn start_of(pid: u64) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}

fn process(mountpoint: &Path) -> Option<MountProcess> {
    let config = internal_file::read(mountpoint, "config").ok()?;
    let pid = serde_json::from_str::<Value>(&config).ok()?.get("Pid")?.as_u64()?;
    Some(MountProcess { pid, start: start_of(pid)? })
}

/// Refuses what is no volume: whoever mounted that unmounts it by other means.
fn refuse_others(mountpoint: &Path) -> Result<()> {
    match sluice_fuse::types_on(mountpoint).pop() {
        Some(kind) if !sluice_fuse::is_volume_type(&kind) => {
            bail!("what is mounted on {} is no volume but {kind}; use umount", mountpoint.display())
        }
        // What is not mounted at all is told so below.
        _ => Ok(()),
    }
}

fn wait_for_staged(mountpoint: &Path) -> Result<()> {
    let mut shown = u64::MAX;
    loop {
        let stats = internal_file::read(mountpoint, "stats")
            .with_context(|| format!("{} is no mounted volume", mountpoint.display()))?;
        let left = internal_file::numbers(&stats).get("juicefs_staging_blocks").map(|left| *left as u64);
        let Some(left) = left else {
            bail!("{} does not say how much is staged", mountpoint.display());
        };
        if left == 0 {
            return Ok(());
        }
        if left != shown {
            errln!("{left} staged blocks are still to be uploaded");
            shown = left;
        }
        thread::sleep(PAUSE * 10);
    }
}
