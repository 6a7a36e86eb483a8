//! `sluice clone`: copies a tree without copying its data.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::{
    control::{self, Control, Message},
    progress::Progress,
};

/// Keep owner, mode and times.
const PRESERVE: u8 = 2;

/// Copy a file or directory without copying its data
#[derive(Args)]
#[command(after_help = "Example:\n  sluice clone /mnt/vol/data /mnt/vol/copy")]
pub(crate) struct Clone {
    /// What to copy
    source: PathBuf,
    /// Where to; with a slash at the end, into that directory
    destination: PathBuf,
    /// Keep owner, group, mode and times
    #[arg(short, long)]
    preserve: bool,
    /// Directories copied at once in a mount of JuiceFS; one of Sluice copies whole batches
    #[arg(long, default_value_t = 4)]
    threads: u32,
}

impl Clone {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (source, source_dir, source_name) = control::place(&self.source)?;
        let mut destination = self.destination.clone();
        if destination.as_os_str().as_encoded_bytes().ends_with(b"/") {
            use std::os::unix::ffi::OsStrExt;
            destination.push(std::ffi::OsStr::from_bytes(&source_name));
        }
        let (destination, dir, name) = control::place(&destination)?;
        ensure!(fs::symlink_metadata(&destination).is_err(), "{} exists already", destination.display());
        ensure!(!destination.starts_with(&source), "{} lies in {}", destination.display(), source.display());
        if device(&source)? != device(&dir)? {
            bail!("{} and {} are not in one mount", source.display(), dir.display());
        }
        let message = Message::new(control::CLONE)
            .ino(control::inode(&source)?)
            .ino(control::inode(&source_dir)?)
            .ino(control::inode(&dir)?)
            .name(&name)?
            .put(&umask().to_be_bytes())
            .put(&[if self.preserve { PRESERVE } else { 0 }, self.threads.clamp(1, 255) as u8]);
        let progress = Progress::new("clone entries", None);
        let cloned = Control::open(&dir)?.ask(message, progress.piece());
        let (count, time) = progress.finish();
        cloned.with_context(|| format!("cannot clone {} to {}", source.display(), destination.display()))?;
        doneln!("cloned {count} entries in {:.2} s", time.as_secs_f64());
        Ok(ExitCode::SUCCESS)
    }
}

fn device(path: &Path) -> Result<u64> {
    let found = fs::symlink_metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    Ok(found.dev())
}

/// The umask of this process. It can only be read by setting it; nothing else runs here meanwhile.
fn umask() -> u16 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits() as u16
}
