//! `sluice man`: the manual pages, from the same definitions as the help.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use crate::program::Program;

/// Write the manual pages, one for each command
#[derive(Args)]
#[command(after_help = "Example:
  sluice man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Where to; made if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(self, program: Program) -> Result<ExitCode> {
        let wrong = || format!("cannot write the manual pages to {}", self.dir.display());
        fs::create_dir_all(&self.dir).with_context(wrong)?;
        clap_mangen::generate_to(program().disable_help_subcommand(true), &self.dir).with_context(wrong)?;
        outln!(
            "the manual pages are in {}; read one with `man {}/sluice-mount.1`",
            self.dir.display(),
            self.dir.display()
        );
        Ok(ExitCode::SUCCESS)
    }
}
