//! The command `sluice`: arguments become a command, one file each under `commands/`.
//!
//! This is the only crate that names engines and reads the environment, and the only one that prints.

#![allow(clippy::struct_excessive_bools, reason = "a command line is made of switches")]
#![allow(clippy::doc_markdown, reason = "the documentation of arguments is the help text")]

mod args;
mod arguments;
mod background;
mod commands;
mod control;
mod engines;
mod flags;
mod progress;
mod serve;
mod sizes;
mod table;
mod tree;
mod version;
mod volume;

use std::process::ExitCode;

use clap::Parser;

/// Blocks of many MiB come and go: what is freed must go back to the system, not stay in arenas.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = arguments::real();
    let cli = args::Cli::parse_from(args::as_mount_helper(arguments));
    cli.log.init();
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sluice: {error:#}");
            background::failed(&error);
            ExitCode::FAILURE
        }
    }
}
