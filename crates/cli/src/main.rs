//! The program `sluice`. It parses the arguments and runs a command. Each command has a file in
//! `commands/`.
//!
//! This is the only crate that reads the environment, and the only one that prints.

#![allow(clippy::struct_excessive_bools, reason = "a command line is made of switches")]
#![allow(clippy::doc_markdown, reason = "the documentation of arguments is the help text")]

#[macro_use]
mod output;

mod args;
mod arguments;
mod background;
mod backup;
mod blocks;
mod commands;
mod consul;
mod control;
mod engines;
mod findings;
mod fixed;
mod flags;
mod fstab;
mod group;
mod guardian;
mod huge_pages;
mod internal_file;
mod metrics;
mod mount_process;
mod program;
mod progress;
mod push;
mod rotation;
mod serve;
mod signals;
mod sizes;
mod small_request;
mod synced_file;
mod table;
mod temporary;
mod tree;
mod version;
mod volume;

use std::{io::Write, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _};
use sluice_meta::{OpenError, engine::EngineError};
use tracing::field::Empty;

/// Blocks of many MiB come and go: what is freed must go back to the system, not stay in arenas
/// (`.cargo/config.toml`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = arguments::real();
    huge_pages::limit(&arguments);
    let matches = args::Cli::command().get_matches_from(args::as_mount_helper(arguments));
    let cli = args::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    cli.log.init();
    if cli.log.is_quiet() {
        output::be_quiet();
    }
    // The volume names itself and the session when it is opened. Of the highest level, so that it
    // is there whatever is logged.
    let command = matches.subcommand_name().unwrap_or_default();
    let _span = tracing::error_span!("command", command, volume = Empty, session = Empty).entered();
    match commands::run(cli.command, args::Cli::command) {
        Ok(code) => code,
        Err(error) => {
            let (advice, unreachable) = advice(&error);
            let message = format!("sluice: {error:#}{advice}");
            // A server's guardian says it.
            if guardian::failed(&message, unreachable) {
                return ExitCode::FAILURE;
            }
            // Standard error may be closed, too.
            let _ = writeln!(std::io::stderr(), "{message}");
            background::failed(&message);
            ExitCode::FAILURE
        }
    }
}

/// What to do about an engine that cannot be reached, and whether that is it; all other errors say
/// it themselves.
fn advice(error: &anyhow::Error) -> (&'static str, bool) {
    let unreachable = |error: &EngineError| matches!(error, EngineError::Unavailable { .. });
    let found = error.chain().any(|cause| {
        cause.downcast_ref().is_some_and(unreachable)
            || matches!(cause.downcast_ref(), Some(OpenError::Engine(error)) if unreachable(error))
    });
    (if found { "; check that it runs, and that META-URL names it" } else { "" }, found)
}
