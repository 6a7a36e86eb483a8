//! `sluice version`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

/// Print the version
#[derive(Args)]
#[command(after_help = "Example:\n  sluice version")]
pub(crate) struct Version {}

impl Version {
    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "all commands run alike")]
    pub(crate) fn run(self) -> Result<ExitCode> {
        outln!("sluice version {}", env!("CARGO_PKG_VERSION"));
        Ok(ExitCode::SUCCESS)
    }
}
