//! `sluice compact`: merges the slices of files; the mount process does the work.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{
    control::{self, Control, Message},
    progress::Progress,
};

/// Merge the slices that files are made of
///
/// Files that were written in many small pieces are read faster afterwards, and take fewer objects.
///
/// Example: `sluice compact /mnt/jfs/logs`
#[derive(Args)]
pub(crate) struct Compact {
    /// Files, and directories with all below them, in a mounted volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Files compacted at once; a mount of Sluice takes at most 64
    #[arg(short = 'p', long, value_name = "N", default_value_t = 10)]
    threads: u16,
}

impl Compact {
    pub(crate) fn run(self) -> Result<ExitCode> {
        ensure!(self.threads > 0, "--threads has to be at least 1");
        let progress = Progress::new("compact chunks", None);
        let mut code = ExitCode::SUCCESS;
        for path in &self.paths {
            let done =
                self.compact(path, &progress).with_context(|| format!("cannot compact {}", path.display()));
            if let Err(error) = done {
                progress.say(format_args!("sluice: {error:#}"));
                code = ExitCode::FAILURE;
            }
        }
        let (count, time) = progress.finish();
        doneln!("looked at {count} chunks in {:.2} s", time.as_secs_f64());
        Ok(code)
    }

    fn compact(&self, path: &Path, progress: &Progress) -> Result<()> {
        let path = std::path::absolute(path)?;
        let message =
            Message::new(control::COMPACT).ino(control::inode(&path)?).put(&self.threads.to_be_bytes());
        let mut piece = progress.piece();
        // The first number is the number of chunks found so far.
        Control::open(&path)?.ask(message, |_, done| piece(done, 0)).map(drop)
    }
}
