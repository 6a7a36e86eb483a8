//! `sluice rmr`: removes trees; the mount process does the work.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    control::{self, Control, Message},
    progress::Progress,
};

/// Remove trees
#[derive(Args)]
#[command(after_help = "Example:\n  sluice rmr /mnt/vol/dir")]
pub(crate) struct Rmr {
    /// What to remove
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Do not put it in the trash; for root
    #[arg(long)]
    skip_trash: bool,
    /// Removals at once in a mount of JuiceFS, at most 255; one of Sluice removes whole batches
    #[arg(short = 'p', long, default_value_t = 50)]
    threads: u32,
}

impl Rmr {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.skip_trash && !rustix::process::geteuid().is_root() {
            bail!("only root may pass the trash by");
        }
        let progress = Progress::new("remove entries", None);
        let mut code = ExitCode::SUCCESS;
        for path in &self.paths {
            let removed =
                self.remove(path, &progress).with_context(|| format!("cannot remove {}", path.display()));
            if let Err(error) = removed {
                progress.say(format_args!("sluice: {error:#}"));
                code = ExitCode::FAILURE;
            }
        }
        if progress.count() == 0 && code == ExitCode::FAILURE {
            // The errors have said what happened.
            progress.clear();
            return Ok(code);
        }
        let (count, time) = progress.finish();
        doneln!("removed {count} entries in {:.2} s", time.as_secs_f64());
        Ok(code)
    }

    fn remove(&self, path: &Path, progress: &Progress) -> Result<()> {
        let (_, dir, name) = control::place(path)?;
        let message = Message::new(control::RMR)
            .ino(control::inode(&dir)?)
            .name(&name)?
            .put(&[u8::from(self.skip_trash), self.threads.clamp(1, 255) as u8]);
        Control::open(&dir)?.ask(message, progress.piece()).map(drop)
    }
}
