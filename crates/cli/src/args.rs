//! What may stand on the command line, apart from the arguments of each command, which stand with the command.

use clap::{Args, Parser};
use tracing_subscriber::EnvFilter;

use crate::commands::Command;

/// A POSIX file system on an object store and the database you already run.
#[derive(Parser)]
#[command(name = "sluice", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: Log,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How much is said.
#[derive(Args)]
pub(crate) struct Log {
    /// Say more
    #[arg(short, long, visible_alias = "debug", global = true)]
    verbose: bool,
    /// Say everything
    #[arg(long, global = true)]
    trace: bool,
    /// Say only what went wrong
    #[arg(short, long, global = true)]
    quiet: bool,
}

impl Log {
    /// Starts logging to standard error. `RUST_LOG` overrides the flags.
    pub(crate) fn init(&self) {
        let level = match self {
            Self { trace: true, .. } => "trace",
            Self { verbose: true, .. } => "debug",
            Self { quiet: true, .. } => "warn",
            _ => "info",
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    }
}
